// Tiny models for the suites: a config, a model over it with its arenas, and batches of random tokens.
#pragma once
#include <memory>

#include "../model/model.h"
#include "support.h"

namespace clover::test {

inline Config tiny_config(const std::string& family, const std::vector<std::string>& overrides = {}) {
    return parse_config("[model]\nfamily = \"" + family +
                            "\"\nlayers = 3\nhidden = 24\nheads = 3\nvocab = 61\ncontext = 13\ninit = \"normal\"\ninit_std = 0.2\n"
                            "[train]\nsteps = 20\nmicro_batch = 2\nglobal_batch = 4\nseed = 5\n[optimizer]\nlr = 1e-2\nschedule = \"constant\"\nwarmup = 3\n[precision]\nrecipe = \"fp32\"\n",
                        "tiny", overrides);
}

/// A model with its memory, parameters drawn from the config's seed.
struct TinyModel {
    Config config;
    Context ctx;
    Arena parameter_arena, gradient_arena, optimizer_arena, activation_arena, workspace_arena;
    ParameterTable table;
    Parameters parameters;
    Model model;
    Tensor losses, workspace;

    TinyModel(const Config& c, ModelShape shape, const Device& device = find_device("cpu"))
        : config(c), ctx(device), parameter_arena(device, "p"), gradient_arena(device, "g"), optimizer_arena(device, "o"),
          activation_arena(device, "a"), workspace_arena(device, "w"), table(config.model),
          parameters(table, config, shape.training, parameter_arena, gradient_arena, optimizer_arena),
          model(config.model, parameters, shape, activation_arena) {
        activation_arena.place(losses, Dtype::f32, {shape.batch * shape.sequence});
        workspace_arena.place(workspace, Dtype::f32, {int64_t(model.workspace_bytes(ctx) / 4) + 16});
        for (Arena* a : {&parameter_arena, &gradient_arena, &optimizer_arena, &activation_arena, &workspace_arena}) a->commit();
        ctx.workspace.base = workspace.data;
        ctx.workspace.size = workspace.bytes();
        model.prepare(ctx);
        parameters.initialise(ctx, config.model, uint64_t(config.train.seed));
        randomise_vectors();
    }
    TinyModel(const TinyModel&) = delete;

    /// Gains and biases away from 1 and 0, so that every term counts.
    void randomise_vectors() {
        std::vector<float> master = floats_of(ctx.device, parameters.master);
        for (const Parameter& p : table.all())
            for (int64_t i = p.offset; !p.matrix && i < p.offset + p.count; i++)
                master[size_t(i)] += 0.1f * normal(random_bits(9, Stream::initialisation, 1, 0, uint64_t(i)));
        write_floats(ctx.device, parameters.master, master);
        parameters.refresh(ctx, 0);
    }
    std::vector<double> all_logits() {
        Owned out(Dtype::f32, {model.shape().batch * model.shape().sequence, config.model.vocab});
        model.logits(ctx, out, 0);
        return out.values();
    }
};

inline Owned random_ids(int64_t count, int64_t vocab, uint32_t tag) {
    Owned ids(Dtype::i32, {count});
    for (int64_t i = 0; i < count; i++) ids.set(i, double(random_bits(3, Stream::data_order, tag, 0, uint64_t(i))[0] % uint64_t(vocab)));
    return ids;
}

}  // namespace clover::test
