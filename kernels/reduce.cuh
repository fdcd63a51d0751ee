// What the memory-bound kernels share: numbers of any storage as floats, several at a time; sums over the threads that work on one row;
// column sums in two kernels. All sums are added in an order that the sizes alone decide.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "cuda.cuh"

namespace clover {

/// Grids and the rows of partial sums are made for this many multiprocessors (H100, H200) and not for those present: the same bits everywhere.
constexpr int64_t planned_multiprocessors = 132;

// ---- Access --------------------------------------------------------------------------------------------------------------------

/// True if rows of `columns` elements of the tensors present can be accessed `width` elements at a time.
inline bool by_vectors(int width, int64_t columns, std::initializer_list<Tensor> tensors) {
    bool aligned = columns % width == 0;
    for (const Tensor& t : tensors) aligned = aligned && reinterpret_cast<uintptr_t>(t.data) % (size_t(width) * bytes_of(t.dtype)) == 0;
    return aligned;
}

/// to = `width` numbers from p on, in one access.
template <int width, class T>
__device__ inline void load_floats(float (&to)[width], const T* p) {
    const Vector<T, width> v = load_vector<width>(p);
    for (int k = 0; k < width; k++) to[k] = to_float(v[k]);
}
/// Rounded to T, in one access.
template <int width, class T>
__device__ inline void store_floats(T* p, const float (&from)[width]) {
    Vector<T, width> v;
    for (int k = 0; k < width; k++) v[k] = from_float<T>(from[k]);
    store_vector(p, v);
}

/// Numbers whose dtype is known at run time.
struct AnyFloats {
    const void* data = nullptr;
    Dtype dtype = Dtype::f32;

    AnyFloats() = default;
    explicit AnyFloats(const Tensor& t) : data(t.data), dtype(t.dtype) {
        CLOVER_CHECK(t.dtype != Dtype::i32, t.describe());
    }
    __device__ explicit AnyFloats(const float* p) : data(p) {}
    __device__ explicit operator bool() const { return data != nullptr; }

    /// to = `width` numbers from element i on.
    template <int width>
    __device__ void load(float (&to)[width], int64_t i) const {
        if (dtype == Dtype::bf16)
            load_floats(to, static_cast<const bf16*>(data) + i);
        else if (dtype == Dtype::f16)
            load_floats(to, static_cast<const f16*>(data) + i);
        else
            load_floats(to, static_cast<const float*>(data) + i);
    }
    template <int width>
    __device__ Vector<float, width> fetch(int64_t i) const {
        Vector<float, width> v;
        load(v.x, i);
        return v;
    }
    __device__ float operator[](int64_t i) const { return fetch<1>(i)[0]; }
};

/// Numbers of a dtype known at compile time. Both have fetch: `width` numbers from element i on, to be converted when they are used.
template <class T>
struct Floats {
    const T* data;
    __device__ explicit operator bool() const { return data != nullptr; }
    template <int width>
    __device__ Vector<T, width> fetch(int64_t i) const {
        return load_vector<width>(data + i);
    }
};

/// *p in every lane, read by one of them. By the whole warp.
template <class T>
__device__ inline T warp_load(const T* p) {
    T x{};
    if (threadIdx.x % warp_size == 0) x = *p;
    return __shfl_sync(all_lanes, x, 0);
}

// ---- The threads that work on one row: a warp, or the block --------------------------------------------------------------------
// For __launch_bounds__: threads of a block, and blocks of a multiprocessor for which there must be registers (80 and 64 for a thread).

/// Floats of shared memory that sums over a block need: one of each of at most 32 warps, for each of up to 4 sums.
constexpr int reduction_floats = 32 * 4;

struct WarpGroup {
    static constexpr int most_threads = 256, resident_blocks = 3;
    __device__ static int rank() { return int(threadIdx.x % warp_size); }
    __device__ static int size() { return warp_size; }
    /// Place of the group in its block.
    __device__ static int place() { return int(threadIdx.x / warp_size); }
    template <int n>
    __device__ static void sum(float (&x)[n], float*) {
        for (int k = 0; k < n; k++) x[k] = warp_sum(x[k]);
    }
};

struct BlockGroup {
    static constexpr int most_threads = 512, resident_blocks = 2;
    __device__ static int rank() { return int(threadIdx.x); }
    __device__ static int size() { return int(blockDim.x); }
    __device__ static int place() { return 0; }

    /// The same bits in every thread. `shared` has reduction_floats.
    template <int n>
    __device__ static void sum(float (&x)[n], float* shared) {
        static_assert(32 * n <= reduction_floats);
        const int lane = int(threadIdx.x) % warp_size, warp = int(threadIdx.x) / warp_size, warps = int(blockDim.x) / warp_size;
        for (int k = 0; k < n; k++) x[k] = warp_sum(x[k]);
        if (lane == 0)
            for (int k = 0; k < n; k++) shared[32 * k + warp] = x[k];
        __syncthreads();
        for (int k = 0; k < n; k++) x[k] = warp_sum(lane < warps ? shared[32 * k + lane] : 0.0f);
        __syncthreads();
    }
    __device__ static float max(float x, float* shared) {
        const int lane = int(threadIdx.x) % warp_size, warp = int(threadIdx.x) / warp_size, warps = int(blockDim.x) / warp_size;
        x = warp_max(x);
        if (lane == 0) shared[warp] = x;
        __syncthreads();
        x = warp_max(shared[lane < warps ? lane : 0]);
        __syncthreads();
        return x;
    }
};

// ---- Sums over rows ------------------------------------------------------------------------------------------------------------

/// How N rows of C columns are cut for sums over them: each block has its row of partial sums. `most` bounds their number for C = 128.
struct RowCut {
    int64_t rows, blocks;
    RowCut(int64_t N, int64_t C, int64_t least_rows, int64_t most)
        : rows(std::max(least_rows, ceil(N, std::max<int64_t>(1, most / ceil(C, 128))))), blocks(ceil(N, rows)) {}
    static int64_t ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
};

/// sums (C) += Σ_b partials (count, C): block (32, warps) for 32 columns. blockIdx.y = 1 does the same for `second`, whose partials
/// follow the first's.
template <int warps>
__global__ void __launch_bounds__(warp_size * warps) add_partials_kernel(float* first, float* second, const float* partials, int64_t count, int64_t C) {
    float(*const shared)[warp_size] = shared_memory<float[warp_size]>();
    const int64_t column = int64_t(blockIdx.x) * warp_size + threadIdx.x;
    const float* const mine = partials + blockIdx.y * count * C + column;
    float sum = 0;
    if (column < C) {
#pragma unroll 8
        for (int64_t b = threadIdx.y; b < count; b += warps) sum += mine[b * C];
    }
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= C) return;
    sum = 0;
    for (int w = 0; w < warps; w++) sum += shared[w][threadIdx.x];
    (blockIdx.y ? second : first)[column] += sum;
}

/// first (C) += Σ_b of the first `count` rows of partials, second (C), where given, += Σ_b of the `count` rows after them.
template <int warps = 16>
void add_partials(Context& ctx, float* first, float* second, const float* partials, int64_t count, int64_t C) {
    if (count == 0) return;
    launch(ctx, {dim3(blocks_for(C, warp_size), second ? 2 : 1), dim3(warp_size, warps), sizeof(float[warps][warp_size])},
           add_partials_kernel<warps>, first, second, partials, count, C);
}

}  // namespace clover
