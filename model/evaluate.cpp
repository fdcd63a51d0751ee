#include "evaluate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "trainer.h"

namespace clover {
namespace {

using json = nlohmann::ordered_json;

/// The parameters of a checkpoint, for forward passes.
struct EvalParameters {
    Config config;
    Context ctx;
    Arena arena, unused, scratch;
    ParameterTable table;
    Parameters parameters;
    Tensor workspace;

    EvalParameters(const CheckpointInfo& checkpoint, const Device& device)
        : config(checkpoint.config), ctx(device), arena(device, "parameters"), unused(device, "unused"), scratch(device, "workspace"), table(config.model),
          parameters(table, config, false, arena, unused, unused) {
        scratch.place(workspace, Dtype::f32, {int64_t(device.optimizer.refresh_workspace_bytes(parameters.weights(0)) / sizeof(float)) + 16});
        commit_together(device, {&arena, &scratch});
        ctx.workspace.base = workspace.data, ctx.workspace.size = workspace.bytes();
        load_parameters(ctx, checkpoint, parameters, false);
    }
};

/// A model of one context length over them; one at a time, as it lends its workspace to their context.
class WindowModel {
public:
    WindowModel(EvalParameters& p, int64_t batch, int64_t context)
        : ctx_(p.ctx), config_(p.config.data), arena_(ctx_.device, "activations", false), workspace_arena_(ctx_.device, "workspace", false),
          model_(p.config.model, p.parameters, {.batch = batch, .sequence = context, .training = false, .documents = resets()}, arena_) {
        arena_.place(ids_, Dtype::i32, {batch * context});
        arena_.place(targets_, Dtype::i32, {batch * context});
        arena_.place(losses_, Dtype::f32, {batch * context});
        workspace_arena_.place(workspace_, Dtype::f32, {int64_t(model_.workspace_bytes(ctx_) / sizeof(float)) + 16});
        commit_together(ctx_.device, {&arena_, &workspace_arena_});
        ctx_.workspace.base = workspace_.data, ctx_.workspace.size = workspace_.bytes();
        model_.prepare(ctx_);
    }
    void run(const ExampleOptions& example, const int32_t* ids, const int32_t* targets, float* losses) {
        ctx_.device.memory.from_host(ctx_, ids_.data, ids, ids_.bytes());
        ctx_.device.memory.from_host(ctx_, targets_.data, targets, targets_.bytes());
        if (resets()) {
            document_rows(ids, ids_.count(), example, documents_);
            model_.set_documents(documents_, config_.reset_attention, config_.reset_positions);
        }
        model_.forward(ctx_, ids_);
        model_.loss(ctx_, losses_, targets_);
        ctx_.device.memory.to_host(ctx_, losses, losses_.data, losses_.bytes());
    }

private:
    Context& ctx_;
    const DataConfig& config_;
    Arena arena_, workspace_arena_;
    Model model_;
    Tensor ids_, targets_, losses_, workspace_;
    std::vector<RowRange> documents_;

    bool resets() const { return config_.reset_attention || config_.reset_positions; }
};

/// Losses by the number of tokens before: 1, 2, 3–4, 5–8, …
class PositionLosses {
public:
    void add(int64_t position, double loss) {
        Bucket& b = buckets_[size_t(std::bit_width(uint64_t(position)))];
        b.nats += loss, b.tokens++;
    }
    std::vector<PositionLoss> means(int64_t context) const {
        std::vector<PositionLoss> means;
        for (size_t k = 0; k < buckets_.size(); k++) {
            const Bucket& b = buckets_[k];
            if (b.tokens == 0) continue;
            const int64_t from = k == 0 ? 1 : (int64_t{1} << (k - 1)) + 1;
            means.push_back({from, std::min(int64_t{1} << k, context), b.tokens, b.nats / double(b.tokens)});
        }
        return means;
    }

private:
    struct Bucket {
        double nats = 0;
        int64_t tokens = 0;
    };
    std::array<Bucket, 64> buckets_ = {};
};

WindowedLoss windowed_loss(WindowModel& model, int64_t batch, const TrainingData& data, const WindowOptions& options, const DataConfig& config) {
    const ValidSet& set = data.valid[0];
    const PackedWindows windows(*set.data, options, set.first, set.sequences);
    const ExampleOptions example{.context = options.context, .end_of_document = data.end_of_document, .train_on_eod = config.train_on_eod,
                                 .train_after_eod = config.train_after_eod};
    LossTotals totals;
    PositionLosses positions;
    score_windows(windows, batch, -1, example, [&](const int32_t* ids, const int32_t* targets, float* losses) { model.run(example, ids, targets, losses); },
                  [&](int64_t position, int32_t target, float loss) {
                      totals.add(loss, data.token_bytes[size_t(target)]);
                      positions.add(position, loss);
                  });
    const int64_t bytes = std::llround(double(totals.bytes) * set.bytes_per_token_byte);
    require(totals.tokens > 0 && bytes > 0, "--tokens ", options.tokens, ": there is no text to predict among them; raise it");
    const double loss = totals.nats / double(totals.tokens);
    return {.tokens = totals.tokens, .bytes = bytes, .loss = loss, .perplexity = std::exp(loss),
            .bits_per_byte = totals.nats / std::log(2.0) / double(bytes), .positions = positions.means(options.context)};
}

LengthReport evaluate_length(EvalParameters& p, const TrainingData& data, int64_t context, const EvalOptions& o) {
    const ModelConfig& model = p.config.model;
    LengthReport report{.context = context, .refused = "", .apart = {}, .sliding = {}};
    if (model.position == Position::learned && context > model.context) {
        report.refused = text("learned positions end at ", model.context);
        return report;
    }
    const int64_t tokens = o.tokens > 0 ? o.tokens : -1;
    const int64_t batch = o.micro_batch > 0 ? o.micro_batch : std::max<int64_t>(1, p.config.train.micro_batch * model.context / context);
    WindowModel windows(p, batch, context);
    report.apart = windowed_loss(windows, batch, data, {.context = context, .stride = context, .tokens = tokens}, p.config.data);
    if (o.stride > 0) report.sliding = windowed_loss(windows, batch, data, {.context = context, .stride = o.stride, .tokens = tokens}, p.config.data);
    return report;
}

void check_lengths(const std::vector<int64_t>& contexts, const TrainingData& data, const EvalOptions& o) {
    const auto [least, most] = std::minmax_element(contexts.begin(), contexts.end());
    require(o.stride <= *least, "--stride ", o.stride, " is longer than --context ", *least, ", which would leave tokens out; take at most ", *least);
    const ValidSet& set = data.valid[0];
    const int64_t predicted = PackedWindows(*set.data, {.context = *most, .tokens = o.tokens > 0 ? o.tokens : -1}, set.first, set.sequences).predicted();
    require(predicted >= *most, "--context ", *most, ": ", o.data, " has ", predicted, " tokens to predict", o.tokens > 0 ? " with --tokens" : "",
            ", which do not fill one window; take a shorter context or more text");
}

std::string row(const char* pattern, auto... values) {
    char line[200];
    std::snprintf(line, sizeof line, pattern, values...);
    return line;
}

std::string table_rows(int64_t context, int64_t stride, const WindowedLoss& w) {
    const std::string windows = stride > 0 ? text("stride ", stride) : "apart";
    return row("%8lld  %-14s %12lld %10.4f %12.3f %10.4f\n", static_cast<long long>(context), windows.c_str(), static_cast<long long>(w.tokens), w.loss,
               w.perplexity, w.bits_per_byte);
}

std::string position_rows(int64_t context, int64_t stride, const WindowedLoss& w) {
    std::string rows = text("\ncontext ", context, stride > 0 ? text(", stride ", stride) : ", apart", ": loss by tokens before\n");
    for (const PositionLoss& p : w.positions) {
        const std::string range = p.from == p.to ? text(p.from) : text(p.from, "-", p.to);
        rows += row("%15s %12lld %10.4f\n", range.c_str(), static_cast<long long>(p.tokens), p.loss);
    }
    return rows;
}

json json_of(const std::optional<WindowedLoss>& w, bool positions) {
    if (!w) return nullptr;
    json j{{"loss", w->loss}, {"perplexity", w->perplexity}, {"bits_per_byte", w->bits_per_byte}, {"tokens", w->tokens}, {"bytes", w->bytes}};
    if (!positions) return j;
    j["positions"] = json::array();
    for (const PositionLoss& p : w->positions) j["positions"].push_back(json{{"from", p.from}, {"to", p.to}, {"tokens", p.tokens}, {"loss", p.loss}});
    return j;
}

}  // namespace

EvalReport evaluate_lengths(const CheckpointInfo& checkpoint, const Device& device, const EvalOptions& o) {
    const TrainingData data = open_evaluation_data(checkpoint.config, checkpoint.tokenizer_spec, o.data);
    std::vector<int64_t> contexts = o.contexts;
    if (contexts.empty()) contexts.push_back(checkpoint.config.model.context);
    check_lengths(contexts, data, o);
    EvalParameters parameters(checkpoint, device);
    EvalReport report{.checkpoint = checkpoint.folder, .data = o.data, .step = checkpoint.progress.step, .trained_context = checkpoint.config.model.context,
                      .stride = o.stride, .lengths = {}};
    for (int64_t context : contexts) report.lengths.push_back(evaluate_length(parameters, data, context, o));
    return report;
}

std::string to_table(const EvalReport& r, bool positions) {
    std::string table = text(r.checkpoint, ", trained at context ", r.trained_context, "\n"), more;
    table += row("%8s  %-14s %12s %10s %12s %10s\n", "context", "windows", "tokens", "nats/token", "perplexity", "bits/byte");
    for (const LengthReport& l : r.lengths) {
        if (!l.refused.empty()) table += row("%8lld  ", static_cast<long long>(l.context)) + l.refused + "\n";
        for (const auto& [loss, stride] : {std::pair{&l.apart, int64_t{0}}, {&l.sliding, r.stride}}) {
            if (!*loss) continue;
            table += table_rows(l.context, stride, **loss);
            more += position_rows(l.context, stride, **loss);
        }
    }
    return positions ? table + more : table;
}

std::string to_json(const EvalReport& r, bool positions) {
    json j{{"checkpoint", r.checkpoint}, {"step", r.step}, {"data", r.data}, {"trained_context", r.trained_context}, {"stride", nullptr},
           {"lengths", json::array()}};
    if (r.stride > 0) j["stride"] = r.stride;
    for (const LengthReport& l : r.lengths) {
        json entry{{"context", l.context}, {"apart", json_of(l.apart, positions)}, {"sliding", json_of(l.sliding, positions)}};
        if (!l.refused.empty()) entry["refused"] = l.refused;
        j["lengths"].push_back(entry);
    }
    return j.dump() + "\n";
}

}  // namespace clover
