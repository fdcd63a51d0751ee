// Whole tiny models against the golden files (tests/golden/README.md): logits, loss, every gradient, ten optimizer steps, greedy
// text. The references are Hugging Face's BLOOM and an independent Gopher, in f64; here the fp32 recipe must match them to 1e-5.
#include "../model/trainer.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "../model/safetensors.h"
#include "tiny.h"

using namespace clover;
using namespace clover::test;

namespace {

constexpr double tolerance = 1e-5;
constexpr const char* files[] = {"bloom-1", "bloom-2", "gopher-1", "gopher-2", "gopher-3"};

std::string golden_path(const std::string& name) {
    return (std::filesystem::path(__FILE__).parent_path() / "golden" / (name + ".safetensors")).string();
}

struct Golden {
    SafetensorsFile file;
    Config config;
    int64_t batch, sequence;

    explicit Golden(const std::string& name)
        : file(golden_path(name)), config(parse_config(file.metadata().at("config"), file.path(), {})), batch(file.at("ids").shape[0]),
          sequence(file.at("ids").shape[1]) {}

    std::vector<float> floats(const std::string& name) const {
        const SafetensorsEntry& e = file.at(name);
        REQUIRE(e.dtype == "F32");
        std::vector<float> v((e.end - e.begin) / sizeof(float));
        std::memcpy(v.data(), file.data(e), e.end - e.begin);
        return v;
    }
    std::vector<double> values(const std::string& name) const {
        const std::vector<float> v = floats(name);
        return {v.begin(), v.end()};
    }
    std::vector<int32_t> ids(const std::string& name) const {
        const SafetensorsEntry& e = file.at(name);
        REQUIRE(e.dtype == "I32");
        std::vector<int32_t> v((e.end - e.begin) / sizeof(int32_t));
        std::memcpy(v.data(), file.data(e), e.end - e.begin);
        return v;
    }
    /// Gives the parameters (recipe fp32) the values that the reference began with.
    void fill(const Device& device, const Parameters& parameters) const {
        for (const Parameter& p : parameters.table.all()) {
            REQUIRE(file.at("param/" + p.name).shape == p.shape);
            write_floats(device, Parameters::slice(parameters.master, p), floats("param/" + p.name));
        }
    }
};

Owned tensor_of(const std::vector<int32_t>& ids) {
    Owned t(Dtype::i32, {int64_t(ids.size())});
    t.fill([&](int64_t i) { return ids[size_t(i)]; });
    return t;
}

std::vector<double> values_of(const Device& device, Tensor t) {
    const std::vector<float> x = floats_of(device, t);
    return {x.begin(), x.end()};
}

int64_t trained(const std::vector<int32_t>& targets) {
    return std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
}

/// A model with the parameters of a golden file, and exactly the workspace that it asks for.
class GoldenModel {
public:
    GoldenModel(const Device& device, const Golden& golden, ModelShape shape)
        : config_(golden.config), ctx_(device), table_(config_.model), weights_(device, "parameters"), gradients_(device, "gradients"),
          moments_(device, "optimizer"), activations_(device, "activations"),
          parameters(table_, config_, shape.training, weights_, gradients_, moments_),
          model(config_.model, parameters, shape, activations_) {
        for (Arena* arena : {&weights_, &gradients_, &moments_, &activations_})
            if (arena->bytes() > 0) arena->commit();
        golden.fill(device, parameters);
        model.prepare(ctx);
        ctx_.reserve(model.workspace_bytes(ctx));
    }

    /// One micro-batch forward and backward; the gradient is that of Σ losses / count. Returns Σ losses.
    double accumulate(const std::vector<int32_t>& ids, const std::vector<int32_t>& targets, int64_t count, bool fresh) {
        const Owned ids_tensor = tensor_of(ids), targets_tensor = tensor_of(targets);
        const Owned losses(Dtype::f32, {int64_t(ids.size())});
        model.forward(ctx, ids_tensor);
        model.loss_backward(ctx, losses, targets_tensor, 1.0f / float(count), fresh);
        model.backward(ctx, ids_tensor, fresh);
        const std::vector<double> each = losses.values();
        return std::accumulate(each.begin(), each.end(), 0.0);
    }

    /// Gradients of one whole batch; returns its mean loss.
    double gradients(const std::vector<int32_t>& ids, const std::vector<int32_t>& targets) {
        model.zero_gradients(ctx);
        return accumulate(ids, targets, trained(targets), true) / double(trained(targets));
    }

    double gradient_norm() {
        const Owned squares(Dtype::f32, {1});
        ctx.device.elementwise.sum_of_squares(ctx, squares, parameters.grad);
        return std::sqrt(squares.at(0));
    }

    std::vector<double> logits(int64_t first, int64_t rows) {
        const Owned out(Dtype::f32, {rows, config_.model.vocab});
        model.logits(ctx, out, first);
        return out.values();
    }

    void reserve(size_t workspace) { ctx_.reserve(workspace); }

private:
    Config config_;
    TestContext ctx_;
    ParameterTable table_;
    Arena weights_, gradients_, moments_, activations_;

public:
    Context& ctx = ctx_;
    Parameters parameters;
    Model model;
};

void check_gradients(const Golden& golden, const GoldenModel& tiny) {
    for (const Parameter& p : tiny.parameters.table.all()) {
        INFO("gradient of ", p.name);
        CHECK(normalised_error(values_of(tiny.ctx.device, Parameters::slice(tiny.parameters.grad, p)), golden.values("grad/" + p.name)) <= tolerance);
    }
}

/// The bias of the keys shifts all scores of a query alike, so its gradient is zero but for rounding, of which Adam makes full steps.
std::vector<double> without_key_bias(const std::vector<double>& values, const Parameter& p, const ModelConfig& config) {
    if (p.role != Role::qkv_bias) return values;
    std::vector<double> kept;
    for (size_t i = 0; i < values.size(); i++)
        if (int64_t(i) / config.head_size % 3 != 1) kept.push_back(values[i]);
    return kept;
}

/// The sequences of the ten steps, in order.
TrainingData step_data(const Golden& golden) {
    TrainingData data = synthetic_data(golden.config);
    data.read = [tokens = golden.ids("step_tokens"), length = golden.config.model.context + 1](int64_t i, int32_t* out) {
        std::copy_n(tokens.begin() + i * length, length, out);
    };
    return data;
}

int32_t most_likely(const std::vector<double>& logits) {
    return int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

TEST_SUITE("golden") {
    TEST_CASE("the parameters are those of the file, no more and no fewer") {
        for (const char* name : files) {
            INFO(name);
            const Golden golden(name);
            const auto is_parameter = [](const SafetensorsEntry& e) { return e.name.starts_with("param/"); };
            const auto& entries = golden.file.entries();
            CHECK(ParameterTable(golden.config.model).all().size() == size_t(std::count_if(entries.begin(), entries.end(), is_parameter)));
        }
    }
    TEST_CASE("logits and loss") {
        for (const Device& device : test_devices())
            for (const char* name : files) {
                INFO(on(device), ", ", std::string(name));
                const Golden golden(name);
                for (const bool training : {false, true}) {
                    INFO("training ", training);
                    GoldenModel tiny(device, golden, {.batch = golden.batch, .sequence = golden.sequence, .training = training});
                    const int64_t rows = golden.batch * golden.sequence;
                    const Owned ids = tensor_of(golden.ids("ids")), targets = tensor_of(golden.ids("targets")), losses(Dtype::f32, {rows});
                    tiny.model.forward(tiny.ctx, ids);
                    CHECK(normalised_error(tiny.logits(0, rows), golden.values("logits")) <= tolerance);
                    tiny.model.loss(tiny.ctx, losses, targets);
                    const std::vector<double> each = losses.values();
                    const double mean = std::accumulate(each.begin(), each.end(), 0.0) / double(trained(golden.ids("targets")));
                    CHECK(normalised_error({mean}, golden.values("loss")) <= tolerance);
                }
            }
    }
    TEST_CASE("every gradient, and their norm") {
        for (const Device& device : test_devices())
            for (const char* name : files) {
                INFO(on(device), ", ", std::string(name));
                const Golden golden(name);
                GoldenModel tiny(device, golden, {.batch = golden.batch, .sequence = golden.sequence, .training = true});
                // The second time shows that a step leaves nothing behind.
                for (int repetition : {1, 2}) {
                    INFO("repetition ", repetition);
                    const double loss = tiny.gradients(golden.ids("ids"), golden.ids("targets"));
                    CHECK(normalised_error({loss}, golden.values("loss")) <= tolerance);
                    check_gradients(golden, tiny);
                    CHECK(normalised_error({tiny.gradient_norm()}, golden.values("grad_norm")) <= tolerance);
                }
            }
    }
    TEST_CASE("the same gradients from one micro-batch per sequence") {
        for (const Device& device : test_devices())
            for (const char* name : files) {
                INFO(on(device), ", ", std::string(name));
                const Golden golden(name);
                const std::vector<int32_t> ids = golden.ids("ids"), targets = golden.ids("targets");
                GoldenModel tiny(device, golden, {.batch = 1, .sequence = golden.sequence, .training = true});
                tiny.model.zero_gradients(tiny.ctx);
                for (int64_t b = 0; b < golden.batch; b++) {
                    const int64_t first = b * golden.sequence, end = first + golden.sequence;
                    tiny.accumulate({ids.begin() + first, ids.begin() + end}, {targets.begin() + first, targets.begin() + end},
                                    trained(targets), b == 0);
                }
                check_gradients(golden, tiny);
            }
    }
    TEST_CASE("ten steps of the trainer, one micro-batch per sequence") {
        for (const Device& device : test_devices())
            for (const char* name : files) {
                INFO(on(device), ", ", std::string(name));
                const Golden golden(name);
                Config config = golden.config;
                config.train.micro_batch = 1;
                Trainer trainer(config, device, step_data(golden));
                golden.fill(device, trainer.parameters());
                const std::vector<double> losses = golden.values("step_losses"), norms = golden.values("step_grad_norms");
                for (size_t i = 0; i < losses.size(); i++) {
                    INFO("step ", i + 1);
                    const StepReport report = trainer.step();
                    CHECK(normalised_error({report.loss}, {losses[i]}) <= tolerance);
                    CHECK(normalised_error({report.grad_norm}, {norms[i]}) <= tolerance);
                }
                for (const Parameter& p : trainer.table().all()) {
                    if (!golden.file.find("final/" + p.name)) continue;
                    INFO(p.name, " after ten steps");
                    const auto kept = [&](const std::vector<double>& v) { return without_key_bias(v, p, golden.config.model); };
                    const std::vector<double> ours = values_of(device, Parameters::slice(trainer.parameters().master, p));
                    CHECK(normalised_error(kept(ours), kept(golden.values("final/" + p.name))) <= tolerance);
                }
            }
    }
    TEST_CASE("a prompt of four tokens, then token by token through the cache: the logits of the whole sequence") {
        for (const Device& device : test_devices())
            for (const char* name : files) {
                INFO(on(device), ", ", std::string(name));
                const Golden golden(name);
                const std::vector<int32_t> ids = golden.ids("ids");
                const int64_t vocab = golden.config.model.vocab, prompt = 4;
                GoldenModel tiny(device, golden, {.batch = golden.batch, .sequence = prompt, .training = false, .cache = golden.sequence});
                std::vector<double> logits(size_t(golden.batch * golden.sequence * vocab));
                tiny.model.start_generation(tiny.ctx);
                for (int64_t past = 0, count = prompt; past < golden.sequence; past += count, count = 1) {
                    std::vector<int32_t> fed;
                    for (int64_t b = 0; b < golden.batch; b++)
                        for (int64_t n = 0; n < count; n++) fed.push_back(ids[size_t(b * golden.sequence + past + n)]);
                    tiny.model.forward_cached(tiny.ctx, tensor_of(fed), tensor_of(std::vector<int32_t>(size_t(golden.batch), int32_t(past))));
                    const std::vector<double> rows = tiny.logits(0, golden.batch * count);
                    for (int64_t b = 0; b < golden.batch; b++)
                        std::copy_n(rows.begin() + b * count * vocab, count * vocab, logits.begin() + (b * golden.sequence + past) * vocab);
                }
                CHECK(normalised_error(logits, golden.values("logits")) <= tolerance);
            }
    }
    TEST_CASE("greedy text: from the whole sequence anew for each token") {
        for (const Device& device : test_devices()) {
            INFO(on(device));
            const Golden golden("bloom-1");
            const std::vector<int32_t> prompt = golden.ids("prompt"), expected = golden.ids("greedy");
            const size_t length = prompt.size() + expected.size();
            GoldenModel tiny(device, golden, {.batch = 1, .sequence = int64_t(length), .training = false});
            std::vector<int32_t> text = prompt;
            while (text.size() < length) {
                std::vector<int32_t> padded = text;
                padded.resize(length);
                tiny.model.forward(tiny.ctx, tensor_of(padded));
                text.push_back(most_likely(tiny.logits(int64_t(text.size()) - 1, 1)));
            }
            CHECK(std::vector<int32_t>(text.begin() + int64_t(prompt.size()), text.end()) == expected);
        }
    }
    TEST_CASE("greedy text: from the generator") {
        for (const Device& device : test_devices()) {
            INFO(on(device));
            const Golden golden("bloom-1");
            const std::vector<int32_t> prompt = golden.ids("prompt"), expected = golden.ids("greedy");
            GoldenModel tiny(device, golden, {.batch = 1, .sequence = 1, .training = false});
            Arena arena(device, "generation");
            Generator generator(golden.config.model, tiny.parameters, int64_t(prompt.size() + expected.size()), arena);
            arena.commit();
            generator.prepare(tiny.ctx);
            tiny.reserve(generator.workspace_bytes(tiny.ctx));
            std::vector<int32_t> text;
            generator.generate(tiny.ctx, prompt, int64_t(expected.size()), {.temperature = 0}, [&](int32_t id) {
                text.push_back(id);
                return true;
            });
            CHECK(text == expected);
        }
    }
}
