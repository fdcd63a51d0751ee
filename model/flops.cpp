#include "flops.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "arena.h"

namespace clover {

double training_flops(const ModelConfig& c, int64_t batch, int64_t sequence) {
    const double t = double(sequence), n = double(batch) * t, layers = double(c.layers), hidden = double(c.hidden);
    const double inner = double(c.heads * c.head_size), ffn = double(c.ffn);
    double forward = 2 * n * layers * (4 * hidden * inner + 2 * hidden * ffn + 2 * t * inner) + 2 * n * hidden * double(c.vocab);
    if (c.position != Position::relative) return 3 * forward;
    return 3 * (forward + 2 * n * layers * t * inner) + 2 * (2 * t * layers * hidden * inner);
}

double measure_matmul_peak(const Device& device, Dtype dtype, int runs) {
    constexpr int64_t n = 2048;
    Context ctx(device);
    Arena arena(device, "peak");
    Tensor a, b, c, scratch;
    arena.place(a, dtype, {n, n});
    arena.place(b, dtype, {n, n});
    arena.place(c, dtype, {n, n});
    arena.place(scratch, Dtype::f32, {int64_t(device.gemm.workspace_bytes(ctx, {.c = c, .a = a, .b = b, .transpose_b = true}) / sizeof(float)) + 16});
    arena.commit();
    ctx.workspace.base = scratch.data;
    ctx.workspace.size = scratch.bytes();
    device.elementwise.fill(ctx, a, 0.5f);
    device.elementwise.fill(ctx, b, 0.25f);
    std::vector<double> seconds;
    for (int i = 0; i < runs + 2; i++) {
        const auto start = std::chrono::steady_clock::now();
        device.gemm.run(ctx, {.c = c, .a = a, .b = b, .transpose_b = true});
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(seconds.begin() + 2, seconds.end());
    return 2.0 * n * n * n / seconds[size_t(2 + runs / 2)];
}

}  // namespace clover
