#include "bench.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "flops.h"
#include "run_log.h"

namespace clover {
namespace {

double median(std::vector<double> x) {
    std::sort(x.begin(), x.end());
    return x[x.size() / 2];
}

}  // namespace

TrainBench bench_train(Config config, const Device& device, int64_t steps) {
    config.train.sample_prompts.clear();  // random tokens have no text
    config.train.ramp_up = {};            // every step is of a full batch
    Trainer trainer(config, device, synthetic_data(config));
    MatmulPeak peak(device, precision_of(config.precision).activation);
    trainer.step();
    std::vector<double> peaks{peak.measure(5)}, seconds, utilisations;
    double flops = 0, tokens = 0;
    for (int64_t i = 0; i < steps; i++) {
        const StepReport r = trainer.step();
        peaks.push_back(peak.measure(5));
        seconds.push_back(r.seconds);
        utilisations.push_back(r.flops / r.seconds / ((peaks[size_t(i)] + peaks[size_t(i) + 1]) / 2));
        flops = r.flops, tokens = r.tokens_per_s * r.seconds;
    }

    TrainBench b{};
    b.device = device.name, b.recipe = to_string(config.precision.recipe), b.parameters = trainer.table().parameter_count();
    b.micro_batch = config.train.micro_batch, b.global_batch = config.train.global_batch, b.context = config.model.context, b.steps = steps;
    b.seconds = median(seconds), b.tokens_per_s = tokens / b.seconds, b.gflops = flops / b.seconds / 1e9;
    b.peak_gflops = median(peaks) / 1e9, b.peak_size = peak.size(), b.utilisation = median(utilisations);
    b.peak_rss_bytes = peak_resident_bytes(), b.planned_bytes = total_bytes(trainer.memory()) + peak.bytes();
    return b;
}

std::string to_json(const TrainBench& b) {
    return nlohmann::ordered_json{{"device", b.device}, {"recipe", b.recipe}, {"parameters", b.parameters}, {"micro_batch", b.micro_batch},
                                  {"global_batch", b.global_batch}, {"context", b.context}, {"steps", b.steps}, {"seconds", b.seconds},
                                  {"tokens_per_s", b.tokens_per_s}, {"gflops", b.gflops}, {"peak_gflops", b.peak_gflops},
                                  {"utilisation", b.utilisation}, {"peak_rss_bytes", b.peak_rss_bytes}, {"planned_bytes", b.planned_bytes}}.dump() + "\n";
}

std::string to_table(const TrainBench& b) {
    char buffer[1024];
    const bool on_cpu = b.device == "cpu";  // on a GPU the process's own memory tells nothing
    std::snprintf(buffer, sizeof buffer,
                  "%s, recipe %s, %lld parameters, %lld sequences of %lld tokens a step in micro-batches of %lld\n"
                  "  step (median of %lld)   %.4f s\n  tokens                 %.0f /s\n  model FLOPs            %.1f GFLOP/s\n"
                  "  matrix product peak    %.1f GFLOP/s (%lld³, around every step)\n  utilisation            %.1f %%\n"
                  "  memory, peak           %s%s planned\n",
                  b.device.c_str(), b.recipe.c_str(), static_cast<long long>(b.parameters), static_cast<long long>(b.global_batch),
                  static_cast<long long>(b.context), static_cast<long long>(b.micro_batch), static_cast<long long>(b.steps), b.seconds,
                  b.tokens_per_s, b.gflops, b.peak_gflops, static_cast<long long>(b.peak_size), 100 * b.utilisation, on_cpu ? (format_bytes(b.peak_rss_bytes) + " of ").c_str() : "", format_bytes(b.planned_bytes).c_str());
    return buffer;
}

}  // namespace clover
