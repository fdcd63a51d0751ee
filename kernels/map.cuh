// Elementwise operations on CUDA: out[i] = f(in[i], …) for operands of any storage. A thread takes 16 elements in vectors of `width`, and
// asks for all of them before it uses the first, so that enough bytes are under way to keep the memory busy. Out may be one of the operands.
#pragma once
#include <utility>

#include "reduce.cuh"

namespace clover {

constexpr int map_threads = 256, map_elements = 16;

template <int width, class F, class Out, class... In, size_t... operand>
__device__ inline void map_tile(std::index_sequence<operand...>, int64_t n, F f, Out* out, const In*... in) {
    constexpr int vectors = map_elements / width, step = map_threads * width;
    const int64_t first = int64_t(blockIdx.x) * (map_threads * map_elements) + int64_t(threadIdx.x) * width;
    float x[sizeof...(In) + 1][vectors][width];  // one more: an array cannot be empty
#pragma unroll
    for (int k = 0; k < vectors; k++)
        if (first + k * step < n) (load_floats(x[operand][k], in + first + k * step), ...);
#pragma unroll
    for (int k = 0; k < vectors; k++) {
        if (first + k * step >= n) continue;
        float y[width];
        for (int j = 0; j < width; j++) y[j] = f(x[operand][k][j]...);
        store_floats(out + first + k * step, y);
    }
}

/// n is a multiple of width.
template <int width, class F, class Out, class... In>
__global__ void __launch_bounds__(map_threads) map_kernel(int64_t n, F f, Out* out, const In*... in) {
    map_tile<width>(std::index_sequence_for<In...>{}, n, f, out, in...);
}

/// out[i] = f(in[i], …) for i < n. The vectors' width is that of 16 bytes of the widest type; what does not fit them goes one by one.
template <class F, class Out, class... In>
void map(Context& ctx, int64_t n, F f, Out* out, In*... in) {
    constexpr int width = int(16 / std::max({sizeof(Out), sizeof(In)...}));
    const auto aligned = [&](auto* p) { return reinterpret_cast<uintptr_t>(p) % (width * sizeof(*p)) == 0; };
    const int64_t even = (aligned(out) && ... && aligned(in)) ? n / width * width : 0;
    constexpr int64_t tile = map_threads * map_elements;
    launch(ctx, {blocks_for(even, tile), map_threads}, map_kernel<width, F, Out, In...>, even, f, out, in...);
    launch(ctx, {blocks_for(n - even, tile), map_threads}, map_kernel<1, F, Out, In...>, n - even, f, out + even, (in + even)...);
}

}  // namespace clover
