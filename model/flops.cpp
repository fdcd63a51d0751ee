#include "flops.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "../kernels/random.h"

namespace clover {

double training_flops(const ModelConfig& c, int64_t batch, int64_t sequence) {
    const double t = double(sequence), n = double(batch) * t, layers = double(c.layers), hidden = double(c.hidden);
    const double inner = double(c.heads * c.head_size), ffn = double(c.ffn);
    double forward = 2 * n * layers * (4 * hidden * inner + 2 * hidden * ffn + 2 * t * inner) + 2 * n * hidden * double(c.vocab);
    if (c.position != Position::relative) return 3 * forward;
    return 3 * (forward + 2 * n * layers * t * inner) + 2 * (2 * t * layers * hidden * inner);
}

// One square product with its memory.
struct MatmulPeak::Product {
    int64_t size;
    Context ctx;
    Arena arena;
    Tensor a, b, c, scratch;

    Product(const Device& device, Dtype dtype, int64_t n) : size(n), ctx(device), arena(device, "matrix product peak", false) {
        for (Tensor* t : {&a, &b, &c}) arena.place(*t, dtype, {n, n});
        const size_t bytes = device.gemm.workspace_bytes(ctx, gemm());
        arena.place(scratch, Dtype::f32, {int64_t(bytes / sizeof(float)) + 16});
        arena.commit();
        ctx.workspace.base = scratch.data;
        ctx.workspace.size = scratch.bytes();
        for (const Tensor& t : {a, b}) fill_with_random(t);
    }
    Gemm gemm() const { return {.c = c, .a = a, .b = b, .transpose_b = true}; }

    // A GPU multiplies zeros faster than numbers, for it draws less power.
    void fill_with_random(Tensor t) {
        by_dtype(t.dtype, [&](auto element) {
            using T = decltype(element);
            std::vector<T> row(size_t(t.columns()));
            for (int64_t r = 0; r < t.rows(); r++) {
                for (size_t i = 0; i < row.size(); i++) row[i] = from_float<T>(2 * uniform(uint32_t(r * t.columns() + int64_t(i)) * 2654435761u) - 1);
                ctx.device.memory.from_host(ctx, t.row_range(r, 1).data, row.data(), t.row_range(r, 1).bytes());
            }
        });
    }
    double seconds() {
        float last;
        const auto start = std::chrono::steady_clock::now();
        ctx.device.gemm.run(ctx, gemm());
        ctx.device.memory.to_host(ctx, &last, c.data, sizeof last);  // waits
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
};

MatmulPeak::MatmulPeak(const Device& device, Dtype dtype) {
    constexpr double long_enough = 0.02;
    const int64_t largest = &device == &find_device("cpu") ? 2048 : 8192;
    for (int64_t size = 256;; size *= 2) {
        product_ = nullptr;
        product_ = std::make_unique<Product>(device, dtype, size);
        if (size == largest || product_->seconds() > long_enough) return;
    }
}
MatmulPeak::~MatmulPeak() = default;

size_t MatmulPeak::bytes() const { return product_->arena.bytes(); }
int64_t MatmulPeak::size() const { return product_->size; }

double MatmulPeak::measure(int runs) {
    std::vector<double> seconds;
    for (int i = 0; i < runs + 2; i++) seconds.push_back(product_->seconds());
    std::sort(seconds.begin() + 2, seconds.end());
    const double n = double(product_->size);
    return 2 * n * n * n / seconds[size_t(2 + runs / 2)];
}

}  // namespace clover
