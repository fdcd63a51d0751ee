#include "flops.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace clover {

double training_flops(const ModelConfig& c, int64_t batch, int64_t sequence) {
    const double t = double(sequence), n = double(batch) * t, layers = double(c.layers), hidden = double(c.hidden);
    const double inner = double(c.heads * c.head_size), ffn = double(c.ffn);
    double forward = 2 * n * layers * (4 * hidden * inner + 2 * hidden * ffn + 2 * t * inner) + 2 * n * hidden * double(c.vocab);
    if (c.position != Position::relative) return 3 * forward;
    return 3 * (forward + 2 * n * layers * t * inner) + 2 * (2 * t * layers * hidden * inner);
}

namespace {
constexpr int64_t peak_size = 2048;
}

MatmulPeak::MatmulPeak(const Device& device, Dtype dtype) : ctx_(device), arena_(device, "matrix product peak") {
    for (Tensor* t : {&a_, &b_, &c_}) arena_.place(*t, dtype, {peak_size, peak_size});
    const size_t scratch = device.gemm.workspace_bytes(ctx_, {.c = c_, .a = a_, .b = b_, .transpose_b = true});
    arena_.place(scratch_, Dtype::f32, {int64_t(scratch / sizeof(float)) + 16});
    arena_.commit();
    ctx_.workspace.base = scratch_.data;
    ctx_.workspace.size = scratch_.bytes();
    device.elementwise.fill(ctx_, a_, 0.5f);
    device.elementwise.fill(ctx_, b_, 0.25f);
}

double MatmulPeak::measure(int runs) {
    std::vector<double> seconds;
    for (int i = 0; i < runs + 2; i++) {
        const auto start = std::chrono::steady_clock::now();
        ctx_.device.gemm.run(ctx_, {.c = c_, .a = a_, .b = b_, .transpose_b = true});
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(seconds.begin() + 2, seconds.end());
    return 2.0 * peak_size * peak_size * peak_size / seconds[size_t(2 + runs / 2)];
}

}  // namespace clover
