// What the suites of the pointwise and row operations share.
#pragma once
#include <omp.h>

#include <functional>

#include "support.h"

namespace clover::test {

/// Dtypes of activations and weights as the precision recipes combine them.
struct Dtypes {
    Dtype activation, weight;
};
constexpr Dtypes all_dtypes[] = {
    {Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::bf16}, {Dtype::bf16, Dtype::f32}, {Dtype::f16, Dtype::f16}, {Dtype::f16, Dtype::f32}};

/// x, rounded where the tensor it is stored in is of 16 bits.
inline double stored(double x, Dtype dtype) {
    return dtype == Dtype::f32 ? x : by_dtype(dtype, [&](auto t) { return double(to_float(from_float<decltype(t)>(float(x)))); });
}

/// f32: normalised error at most 1e-5. bf16 and f16: at most `factor` times that of a plain implementation that rounds at the same places;
/// 1e-6 allows for results that the plain one has exactly.
inline void check_close(const std::vector<double>& ours, const std::vector<double>& exact, const std::vector<double>& plain, Dtype dtype,
                        double factor) {
    const double error = normalised_error(ours, exact);
    if (dtype == Dtype::f32)
        CHECK(error <= 1e-5);
    else
        CHECK(error <= factor * normalised_error(plain, exact) + 1e-6);
}

/// ∂f/∂at by central differences.
inline std::vector<double> finite_differences(std::vector<double> at, const std::function<double(const std::vector<double>&)>& f) {
    constexpr double h = 1e-5;
    std::vector<double> slope(at.size());
    for (size_t i = 0; i < at.size(); i++) {
        const double x = at[i];
        at[i] = x + h;
        const double above = f(at);
        at[i] = x - h;
        slope[i] = (above - f(at)) / (2 * h);
        at[i] = x;
    }
    return slope;
}

/// run() gives the result's tensors; they must be the same bits for 1, 2, 3, 4 and 7 threads of the CPU, under 20 orders of blocks, warps
/// and lanes in the harness, and in five runs on a GPU.
inline void check_repeatable(const Device& device, const std::function<std::vector<Owned>()>& run) {
    INFO(on(device));
    const bool threads = !is_cuda(device);
    const int before = omp_get_max_threads();
    std::vector<Owned> first;
    for (int variant : threads ? std::vector<int>{1, 2, 3, 4, 7} : schedules(device)) {
        CAPTURE(variant);
        if (threads) omp_set_num_threads(variant);
        const LaunchOrder order(device, variant);
        std::vector<Owned> results = run();
        for (size_t i = 0; i < first.size(); i++) CHECK(same_bits(first[i], results[i]));
        if (first.empty()) first = std::move(results);
    }
    omp_set_num_threads(before);
}

/// The tensors as a list (Owned cannot be copied, so an initialiser list will not do).
template <class... Tensors>
std::vector<Owned> list(Tensors&&... tensors) {
    std::vector<Owned> all;
    (all.push_back(std::move(tensors)), ...);
    return all;
}

}  // namespace clover::test
