#include "bench.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "flops.h"
#include "run_log.h"
#include "update.h"

namespace clover {
namespace {

double median(std::vector<double> x) {
    std::sort(x.begin(), x.end());
    return x[x.size() / 2];
}

/// Seconds of what `work` asks of the device, waited for.
template <class Work>
double seconds_of(Context& ctx, Tensor any, Work&& work) {
    float waited_for;
    ctx.device.memory.to_host(ctx, &waited_for, any.data, sizeof waited_for);
    const auto start = std::chrono::steady_clock::now();
    work();
    ctx.device.memory.to_host(ctx, &waited_for, any.data, sizeof waited_for);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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

OptimizerBench bench_optimizer(Config config, const Device& device, int64_t steps) {
    Context ctx(device);
    Arena parameter_arena(device, "parameters"), gradient_arena(device, "gradients"), optimizer_arena(device, "optimizer"), other(device, "copy, workspace");
    const ParameterTable table(config.model);
    Parameters parameters(table, config, true, parameter_arena, gradient_arena, optimizer_arena);
    Tensor workspace, scale, from, to;
    other.place(workspace, Dtype::f32, {int64_t(update_workspace_bytes(device, config, parameters) / sizeof(float)) + 64});
    other.place(scale, Dtype::f32, {1});
    for (Tensor* t : {&from, &to}) other.place(*t, Dtype::f32, {int64_t{256} << 18});
    commit_together(device, {&parameter_arena, &gradient_arena, &optimizer_arena, &other});
    ctx.workspace.base = workspace.data, ctx.workspace.size = workspace.bytes();
    parameters.initialise(ctx, config.model, uint64_t(config.train.seed));
    device.elementwise.cast(ctx, parameters.grad, parameters.master);
    device.elementwise.fill(ctx, scale, 1);

    OptimizerBench b{};
    b.device = device.name, b.recipe = to_string(config.precision.recipe), b.optimizer = to_string(config.optimizer.name);
    b.parameters = table.parameter_count(), b.steps = steps, b.bytes = update_traffic_bytes(config, parameters);
    std::vector<double> copies, adds, seconds, copy_ratios, add_ratios;  // of a byte, of a step
    const auto measure_memory = [&] {
        copies.push_back(seconds_of(ctx, to, [&] { device.elementwise.cast(ctx, to, from); }) / double(2 * from.bytes()));
        adds.push_back(seconds_of(ctx, to, [&] { device.elementwise.add(ctx, to, to, from); }) / double(3 * from.bytes()));
    };
    const auto ratio = [&](double s, const std::vector<double>& around) { return s / double(b.bytes) / ((around[around.size() - 2] + around.back()) / 2); };
    measure_memory();
    for (int64_t step = 0; step <= steps; step++) {
        const double s = seconds_of(ctx, scale, [&] { update(ctx, config, parameters, {.grad_scale = scale, .lr = 1e-4, .step = step + 1, .updates = step + 1}); });
        measure_memory();
        if (step == 0) continue;  // warms up
        seconds.push_back(s), copy_ratios.push_back(ratio(s, copies)), add_ratios.push_back(ratio(s, adds));
    }
    b.seconds = median(seconds), b.gb_per_s = double(b.bytes) / b.seconds / 1e9;
    b.copy_gb_per_s = 1 / median(copies) / 1e9, b.add_gb_per_s = 1 / median(adds) / 1e9, b.copy_ratio = median(copy_ratios), b.add_ratio = median(add_ratios);
    return b;
}

std::string to_json(const OptimizerBench& b) {
    return nlohmann::ordered_json{{"device", b.device}, {"recipe", b.recipe}, {"optimizer", b.optimizer}, {"parameters", b.parameters}, {"steps", b.steps},
                                  {"seconds", b.seconds}, {"bytes", b.bytes}, {"gb_per_s", b.gb_per_s}, {"copy_gb_per_s", b.copy_gb_per_s},
                                  {"copy_ratio", b.copy_ratio}, {"add_gb_per_s", b.add_gb_per_s}, {"add_ratio", b.add_ratio}}.dump() + "\n";
}

std::string to_table(const OptimizerBench& b) {
    char buffer[512];
    std::snprintf(buffer, sizeof buffer,
                  "%s, recipe %s, optimizer %s, %lld parameters\n  step (median of %lld)   %.4f s\n  read and written       %s, %.1f bytes a parameter\n"
                  "  speed                  %.1f GB/s\n  a copy, y = x          %.1f GB/s; the step takes %.2f times as long for its bytes\n"
                  "  y += x                 %.1f GB/s; %.2f times\n",
                  b.device.c_str(), b.recipe.c_str(), b.optimizer.c_str(), static_cast<long long>(b.parameters), static_cast<long long>(b.steps), b.seconds,
                  format_bytes(b.bytes).c_str(), double(b.bytes) / double(b.parameters), b.gb_per_s, b.copy_gb_per_s, b.copy_ratio,
                  b.add_gb_per_s, b.add_ratio);
    return buffer;
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
