// Combinations of values: those that are refused, and those that are only strange.
#include <algorithm>

#include "config_draft.h"

namespace clover::config {
namespace {

constexpr int64_t largest_head = 256;  // kernels/attention.h

void check_model(const Draft& d, const std::string& origin) {
    const ModelConfig& m = d.config.model;
    const std::string where = d.blame({"model.head_size", "model.heads", "model.hidden"}, origin);
    require(d.has("model.head_size") || m.hidden % m.heads == 0, where, ": ", d.said("model.hidden"), " is not a multiple of ",
            d.said("model.heads"));
    require(m.head_size <= largest_head, where, ": ", d.said("model.hidden"), " and ", d.said("model.heads"), " make heads of ", m.head_size,
            ", but attention takes at most ", largest_head, "; raise model.heads or set model.head_size");
    require((m.position != Position::relative && m.position != Position::sinusoidal) || m.hidden % 2 == 0, where, ": ",
            d.said("model.hidden"), " must be even for ", d.said("model.position"), ", which pairs sines with cosines");
}

void check_batches(const Draft& d, const std::string& origin) {
    const TrainConfig& t = d.config.train;
    require(t.global_batch % t.micro_batch == 0, d.blame({"train.micro_batch", "train.global_batch"}, origin), ": ",
            d.said("train.global_batch"), " must be a multiple of ", d.said("train.micro_batch"));
    if (t.ramp_up.samples == 0) return;
    const RampUp& r = t.ramp_up;
    const std::string where = d.blame({"train.ramp_up", "train.global_batch", "train.micro_batch"}, origin);
    require(r.start < t.global_batch, where, ": ", d.said("train.ramp_up"), " must start below ", d.said("train.global_batch"),
            "; for no ramp-up write []");
    require((t.global_batch - r.start) % r.increment == 0, where, ": ", d.said("train.ramp_up"), " does not reach ",
            d.said("train.global_batch"), " from ", r.start, " in increments of ", r.increment);
    require(r.start % t.micro_batch == 0 && r.increment % t.micro_batch == 0, where, ": start and increment of ", d.said("train.ramp_up"),
            " must be multiples of ", d.said("train.micro_batch"));
}

void check_optimizer(const Draft& d, const std::string& origin) {
    const OptimizerConfig& o = d.config.optimizer;
    require(o.min_lr <= o.lr, d.blame({"optimizer.min_lr", "optimizer.lr"}, origin), ": ", d.said("optimizer.min_lr"),
            " must not be above ", d.said("optimizer.lr"));
    require(o.start_lr <= o.lr, d.blame({"optimizer.start_lr", "optimizer.lr"}, origin), ": ", d.said("optimizer.start_lr"),
            " must not be above ", d.said("optimizer.lr"));
    require(o.decay == 0 || o.warmup <= o.decay, d.blame({"optimizer.warmup", "optimizer.decay"}, origin), ": ",
            d.said("optimizer.warmup"), " must not be longer than ", d.said("optimizer.decay"));
    require(o.name != OptimizerName::adam || o.weight_decay == 0, d.blame({"optimizer.weight_decay", "optimizer.name"}, origin), ": ",
            d.said("optimizer.name"), " has no weight decay, but ", d.said("optimizer.weight_decay"), "; use optimizer.name = \"adamw\"");
    const std::pair<const char*, bool> adafactors[] = {{"optimizer.relative_step", o.relative_step}, {"optimizer.parameter_scale", o.parameter_scale}, {"optimizer.momentum", o.momentum}};
    for (const auto& [key, set] : adafactors)
        require(!set || o.name == OptimizerName::adafactor, d.blame({key, "optimizer.name"}, origin), ": ", d.said(key), " is of adafactor, but ", d.said("optimizer.name"));
    require(o.name != OptimizerName::adafactor || d.config.precision.moments == Storage::f32, d.blame({"precision.moments", "optimizer.name"}, origin), ": ",
            d.said("precision.moments"), " is for Adam, but ", d.said("optimizer.name"), ", which keeps f32");
}

void check_data(const Draft& d, const std::string& origin) {
    const DataConfig& data = d.config.data;
    require(data.split.empty() || data.valid.empty(), d.blame({"data.split", "data.valid"}, origin), ": ", d.said("data.split"),
            " takes validation from data.train, but data.valid names other sets; keep one");
    const bool ranged = std::any_of(data.train.begin(), data.train.end(), [](const DataSource& s) { return s.from > 0 || s.to < 1; });
    require(data.split.empty() || !ranged, d.blame({"data.split", "data.train"}, origin), ": ", d.said("data.split"),
            " cuts the sets of data.train, which have ranges of their own; keep one");
    require(data.split.empty() || data.split[0] > 0, d.blame({"data.split"}, origin), ": ", d.said("data.split"), " leaves nothing to train on");
    const Position position = d.config.model.position;
    require(!data.reset_positions || position == Position::learned || position == Position::sinusoidal, d.blame({"data.reset_positions"}, origin), ": ",
            d.said("data.reset_positions"), " has no effect on ", d.said("model.position"), ", which only knows distances; use data.reset_attention");
}

void check_precision(const Draft& d, const std::string& origin) {
    const PrecisionConfig& p = d.config.precision;
    require(p.only == Only::all || p.recipe == Recipe::bf16 || p.recipe == Recipe::bf16_sr, d.blame({"precision.only", "precision.recipe"}, origin), ": ",
            d.said("precision.only"), " chooses who follows recipe bf16 or bf16-sr, but ", d.said("precision.recipe"));
}

}  // namespace

void check_combinations(const Draft& draft, const std::string& origin) {
    check_model(draft, origin);
    check_batches(draft, origin);
    check_optimizer(draft, origin);
    check_data(draft, origin);
    check_precision(draft, origin);
}

}  // namespace clover::config

namespace clover {

std::vector<std::string> config_warnings(const Config& c) {
    const bool in_samples = counts_samples(c.optimizer.schedule);
    const int64_t run = in_samples ? samples_after(c.train.ramp_up, c.train.global_batch, c.train.steps) : c.train.steps;
    std::vector<std::string> warnings;
    // A warm-up from lr to lr changes nothing.
    if (c.optimizer.warmup > run && c.optimizer.start_lr < c.optimizer.lr)
        warnings.push_back(text("optimizer.warmup = ", c.optimizer.warmup, " is longer than the run of ", run,
                                in_samples ? " samples" : " steps", "; the learning rate never reaches optimizer.lr"));
    if (!c.data.split.empty() && c.data.split[1] == 0) warnings.push_back("data.split leaves no share for validation; the run is not validated");
    // β2 v is nearest to v itself from 1 − 2⁻⁸ on.
    if (c.precision.moments == Storage::bf16 && c.optimizer.beta2 > 1 - 0x1p-8)
        warnings.push_back(text("precision.moments = \"bf16\" cannot hold a second moment that decays by optimizer.beta2 = ", c.optimizer.beta2,
                                "; it never shrinks; use 0.95, or f32"));
    return warnings;
}

}  // namespace clover
