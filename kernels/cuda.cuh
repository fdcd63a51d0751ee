// What every .cu file starts from: the context's stream, launching kernels, checking the runtime, shared memory, vector access, sums
// over a warp and a block.
//
// The sources are compiled twice: by nvcc, and by g++ against the headers of tests/simt/, which run every thread of a kernel on the
// CPU and check what it does. For both to work:
//   - kernels start through launch(), never by <<<>>>;
//   - all shared memory is dynamic and comes from shared_memory<T>(); a kernel describes it as one struct or one array;
//   - PTX stands in ptx.cuh alone; accesses of 8 or 16 bytes go through load_vector() and store_vector();
//   - no float atomics, no cooperative groups, no thread block clusters, no library of device code.
#pragma once
#include <cuda_runtime.h>

#include <set>

#include "device.h"
#include "ptx.cuh"

namespace clover {

/// Throws Error naming `what` unless the call succeeded.
inline void check_cuda(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw Error(text("CUDA: ", what, ": ", cudaGetErrorString(status)));
}
#define CLOVER_CUDA(call) ::clover::check_cuda((call), #call)

/// What the CUDA device keeps for a rank. All work of a context goes to its one stream, in order.
struct CudaState {
    cudaStream_t stream = nullptr;
    int device = 0;
    int capability = 0;            // 80 for sm_80, 90 for sm_90
    int multiprocessors = 0;
    size_t shared_limit = 0;       // bytes of dynamic shared memory that a block may ask for
    std::set<const void*> raised;  // kernels that were allowed more than 48 KiB
};
/// The context's state, made on first use. Defined in device.cu.
CudaState& cuda_state(Context& ctx);

struct Launch {
    dim3 grid, block;
    size_t shared_bytes = 0;
};

/// Runs kernel(arguments...) on the context's stream; each argument is converted to the kernel's parameter type. Throws Error when
/// the launch is refused. An empty grid is no launch.
template <class... Parameters, class... Arguments>
void launch(Context& ctx, const Launch& l, void (*kernel)(Parameters...), const Arguments&... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments));
    if (l.grid.x == 0 || l.grid.y == 0 || l.grid.z == 0) return;
    CudaState& state = cuda_state(ctx);
    constexpr size_t always_allowed = 48 << 10;
    if (l.shared_bytes > always_allowed && state.raised.insert(reinterpret_cast<const void*>(kernel)).second)
        CLOVER_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(state.shared_limit)));
    const cudaLaunchConfig_t config{l.grid, l.block, l.shared_bytes, state.stream, nullptr, 0};  // the harness has macros by its members' names
    CLOVER_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

/// Blocks of `size` that cover n.
inline unsigned blocks_for(int64_t n, int64_t size) {
    const int64_t blocks = (n + size - 1) / size;
    CLOVER_CHECK(blocks < (int64_t{1} << 31), n, " elements in blocks of ", size);
    return unsigned(blocks);
}

// ---- In kernels ----------------------------------------------------------------------------------------------------------------

constexpr int warp_size = 32;
constexpr unsigned all_lanes = 0xffffffffu;

/// N elements that are loaded and stored as one (N · sizeof(T) is 4, 8 or 16 bytes; p must be aligned to that).
template <class T, int N>
struct alignas(N * sizeof(T)) Vector {
    T x[N];
    __device__ T& operator[](int i) { return x[i]; }
    __device__ const T& operator[](int i) const { return x[i]; }
};
template <int N, class T>
__device__ inline Vector<T, N> load_vector(const T* p) {
    Vector<T, N> v;
    ptx::load<N * sizeof(T)>(v.x, p);
    return v;
}
template <class T, int N>
__device__ inline void store_vector(T* p, const Vector<T, N>& v) {
    ptx::store<N * sizeof(T)>(p, v.x);
}
/// Elements of 16 bytes: what one thread moves at once.
template <class T>
inline constexpr int per_16_bytes = 16 / int(sizeof(T));

/// The same bits in every lane: each level adds the same two numbers on both sides.
__device__ inline float warp_sum(float x) {
    for (int step = warp_size / 2; step > 0; step /= 2) x += __shfl_xor_sync(all_lanes, x, step);
    return x;
}
__device__ inline float warp_max(float x) {
    for (int step = warp_size / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(all_lanes, x, step));
    return x;
}

}  // namespace clover
