// The part of the CUDA runtime and of the device language that Clover uses, for the SIMT harness (simt.h). Names, values and rules are those
// of CUDA 13; what is missing here is not used. In the place of nvcc's built-in words stand macros and functions.
#pragma once
#define CLOVER_SIMT 1

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "simt.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) alignas(n)
#define __shared__ static_assert(false, "Shared memory is dynamic in Clover: it comes from shared_memory<T>().");

// ---- Types ---------------------------------------------------------------------------------------------------------------------

#define SIMT_VECTORS(name, T)                                                                                      \
    struct name##1 { T x; };                                                                                       \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                                             \
    struct name##3 { T x, y, z; };                                                                                 \
    struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; };                             \
    inline name##1 make_##name##1(T x) { return {x}; }                                                             \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                     \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                             \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
SIMT_VECTORS(char, signed char)
SIMT_VECTORS(uchar, unsigned char)
SIMT_VECTORS(short, short)
SIMT_VECTORS(ushort, unsigned short)
SIMT_VECTORS(int, int)
SIMT_VECTORS(uint, unsigned)
SIMT_VECTORS(longlong, long long)
SIMT_VECTORS(ulonglong, unsigned long long)
SIMT_VECTORS(float, float)
SIMT_VECTORS(double, double)
#undef SIMT_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDevicePointer = 17,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorStubLibrary = 34,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorUnknown = 999,
};
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrManagedMemory = 83,
    cudaDevAttrConcurrentManagedAccess = 89,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerMultiprocessor, sharedMemPerBlockOptin;
    int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor;
    int maxThreadsDim[3], maxGridSize[3];
    int major, minor, multiProcessorCount, l2CacheSize, memoryBusWidth, managedMemory, concurrentManagedAccess, ECCEnabled, pciBusID, pciDeviceID;
};
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes, preferredShmemCarveout;
};
struct cudaLaunchAttribute;
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
// The names gridDim and blockDim are also fields of cudaLaunchConfig_t: as macros they become calls of a function or of a member.
#define gridDim simt_grid_size()
#define blockDim simt_block_size()
struct cudaLaunchConfig_t {
    dim3 grid_size, block_size;
    dim3& simt_grid_size() { return grid_size; }
    dim3& simt_block_size() { return block_size; }
    size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
    cudaLaunchAttribute* attrs = nullptr;
    unsigned numAttrs = 0;
};
constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4;
constexpr unsigned cudaMemAttachGlobal = 1, cudaMemAttachHost = 2;

// ---- The runtime: called by the host -------------------------------------------------------------------------------------------

const char* cudaGetErrorString(cudaError_t);
const char* cudaGetErrorName(cudaError_t);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

cudaError_t cudaGetDeviceCount(int*);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDevice(int*);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int);
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int);
cudaError_t cudaDriverGetVersion(int*);
cudaError_t cudaRuntimeGetVersion(int*);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);

namespace simt {
cudaError_t allocate(void** p, size_t bytes);
cudaError_t allocate_managed(void** p, size_t bytes);
cudaError_t allocate_pinned(void** p, size_t bytes);
}  // namespace simt
template <class T>
cudaError_t cudaMalloc(T** p, size_t bytes) { return simt::allocate(reinterpret_cast<void**>(p), bytes); }
template <class T>
cudaError_t cudaMallocManaged(T** p, size_t bytes, unsigned = cudaMemAttachGlobal) { return simt::allocate_managed(reinterpret_cast<void**>(p), bytes); }
template <class T>
cudaError_t cudaMallocHost(T** p, size_t bytes, unsigned = 0) { return simt::allocate_pinned(reinterpret_cast<void**>(p), bytes); }
template <class T>
cudaError_t cudaHostAlloc(T** p, size_t bytes, unsigned) { return simt::allocate_pinned(reinterpret_cast<void**>(p), bytes); }
cudaError_t cudaFree(void*);
cudaError_t cudaFreeHost(void*);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, const void*);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t = nullptr);
cudaError_t cudaMemset(void*, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void*, int value, size_t bytes, cudaStream_t = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t*);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t*);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

namespace simt {
cudaError_t set_function_attribute(const void* kernel, cudaFuncAttribute, int value);
cudaError_t function_attributes(cudaFuncAttributes*, const void* kernel);
cudaError_t launch(const cudaLaunchConfig_t&, const void* kernel, void (*call)(void*), std::shared_ptr<void> parameters, size_t parameter_bytes);

/// A kernel and its arguments; each thread of the launch calls it once.
template <class... Parameters>
struct Bound {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
    static void call(void* self) {
        Bound& b = *static_cast<Bound*>(self);
        std::apply(b.kernel, b.arguments);
    }
};
}  // namespace simt
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute a, int value) {
    return simt::set_function_attribute(reinterpret_cast<const void*>(kernel), a, value);
}
template <class... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(P...)) {
    return simt::function_attributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments), "The kernel takes another number of arguments.");
    static_assert((std::is_trivially_copyable_v<Parameters> && ...), "Kernel parameters are copied byte by byte.");
    static_assert(!(std::is_reference_v<Parameters> || ...), "A kernel cannot take references.");
    using Call = simt::Bound<Parameters...>;
    auto bound = std::make_shared<Call>(Call{kernel, {std::forward<Arguments>(arguments)...}});
    return simt::launch(*config, reinterpret_cast<const void*>(kernel), &Call::call, bound, sizeof(Call));
}

// ---- The device language: called by kernels ------------------------------------------------------------------------------------

__attribute__((const)) uint3 simt_block_size() noexcept;
__attribute__((const)) uint3 simt_grid_size() noexcept;
namespace simt {
// Constant within a thread, and a fiber is one thread.
__attribute__((const)) uint3 thread_index() noexcept;
__attribute__((const)) uint3 block_index() noexcept;

int barrier(int predicate, int kind);  // kind 0: plain, 1: or, 2: and, 3: count
enum class WarpOperation : uint8_t {
    shuffle, shuffle_up, shuffle_down, shuffle_xor, ballot, any, all, add, min_signed, max_signed, min_unsigned, max_unsigned, bit_and, bit_or, bit_xor
};
uint64_t warp_operation(WarpOperation operation, uint32_t mask, uint64_t value, int argument, int width);
void sync_warp(uint32_t mask);

enum class AtomicOperation : uint8_t { add, min, max, bit_and, bit_or, bit_xor, exchange, compare };
/// Returns the old value; `is_signed` is of the comparison.
uint64_t atomic(AtomicOperation operation, void* p, int bytes, bool is_signed, uint64_t value, uint64_t compare);

template <class T>
uint64_t to_bits(T x) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "Shuffles move 4 or 8 bytes.");
    if constexpr (sizeof(T) == 4) return std::bit_cast<uint32_t>(x);
    else return std::bit_cast<uint64_t>(x);
}
template <class T>
T from_bits(uint64_t x) {
    if constexpr (sizeof(T) == 4) return std::bit_cast<T>(uint32_t(x));
    else return std::bit_cast<T>(x);
}
}  // namespace simt

#define threadIdx (::simt::thread_index())
#define blockIdx (::simt::block_index())
constexpr int warpSize = 32;

__forceinline__ void __syncthreads() { simt::barrier(0, 0); }
__forceinline__ int __syncthreads_or(int p) { return simt::barrier(p, 1); }
__forceinline__ int __syncthreads_and(int p) { return simt::barrier(p, 2); }
__forceinline__ int __syncthreads_count(int p) { return simt::barrier(p, 3); }
__forceinline__ void __syncwarp(unsigned mask = 0xffffffffu) { simt::sync_warp(mask); }
// The machine runs its threads one after the other: memory has no order of its own. The race checker takes no notice of fences.
__forceinline__ void __threadfence() {}
__forceinline__ void __threadfence_block() {}
__forceinline__ void __nanosleep(unsigned) {}

template <class T>
__forceinline__ T __shfl_sync(unsigned mask, T x, int source, int width = 32) {
    return simt::from_bits<T>(simt::warp_operation(simt::WarpOperation::shuffle, mask, simt::to_bits(x), source, width));
}
template <class T>
__forceinline__ T __shfl_up_sync(unsigned mask, T x, unsigned delta, int width = 32) {
    return simt::from_bits<T>(simt::warp_operation(simt::WarpOperation::shuffle_up, mask, simt::to_bits(x), int(delta), width));
}
template <class T>
__forceinline__ T __shfl_down_sync(unsigned mask, T x, unsigned delta, int width = 32) {
    return simt::from_bits<T>(simt::warp_operation(simt::WarpOperation::shuffle_down, mask, simt::to_bits(x), int(delta), width));
}
template <class T>
__forceinline__ T __shfl_xor_sync(unsigned mask, T x, int lane_mask, int width = 32) {
    return simt::from_bits<T>(simt::warp_operation(simt::WarpOperation::shuffle_xor, mask, simt::to_bits(x), lane_mask, width));
}
__forceinline__ unsigned __ballot_sync(unsigned mask, int p) { return unsigned(simt::warp_operation(simt::WarpOperation::ballot, mask, p != 0, 0, 32)); }
__forceinline__ int __any_sync(unsigned mask, int p) { return int(simt::warp_operation(simt::WarpOperation::any, mask, p != 0, 0, 32)); }
__forceinline__ int __all_sync(unsigned mask, int p) { return int(simt::warp_operation(simt::WarpOperation::all, mask, p != 0, 0, 32)); }
#define SIMT_REDUCE(name, T, operation) \
    __forceinline__ T name(unsigned mask, T x) { return T(simt::warp_operation(simt::WarpOperation::operation, mask, uint32_t(x), 0, 32)); }
SIMT_REDUCE(__reduce_add_sync, unsigned, add)
SIMT_REDUCE(__reduce_add_sync, int, add)
SIMT_REDUCE(__reduce_min_sync, unsigned, min_unsigned)
SIMT_REDUCE(__reduce_min_sync, int, min_signed)
SIMT_REDUCE(__reduce_max_sync, unsigned, max_unsigned)
SIMT_REDUCE(__reduce_max_sync, int, max_signed)
SIMT_REDUCE(__reduce_and_sync, unsigned, bit_and)
SIMT_REDUCE(__reduce_or_sync, unsigned, bit_or)
SIMT_REDUCE(__reduce_xor_sync, unsigned, bit_xor)
#undef SIMT_REDUCE

// Atomics on integers. On floats they would make results depend on the order.
#define SIMT_ATOMIC(name, T, operation)                                                                                              \
    __forceinline__ T name(T* p, T x) {                                                                                              \
        return static_cast<T>(simt::atomic(simt::AtomicOperation::operation, p, sizeof(T), std::is_signed_v<T>, uint64_t(x), 0));                 \
    }
#define SIMT_ATOMICS(T)                                                                                                              \
    SIMT_ATOMIC(atomicAdd, T, add) SIMT_ATOMIC(atomicMin, T, min) SIMT_ATOMIC(atomicMax, T, max) SIMT_ATOMIC(atomicAnd, T, bit_and)   \
    SIMT_ATOMIC(atomicOr, T, bit_or) SIMT_ATOMIC(atomicXor, T, bit_xor) SIMT_ATOMIC(atomicExch, T, exchange)                         \
    __forceinline__ T atomicCAS(T* p, T compare, T x) {                                                                              \
        return static_cast<T>(simt::atomic(simt::AtomicOperation::compare, p, sizeof(T), false, uint64_t(x), uint64_t(compare)));                 \
    }
SIMT_ATOMICS(int)
SIMT_ATOMICS(unsigned)
SIMT_ATOMICS(unsigned long long)
#undef SIMT_ATOMICS
#undef SIMT_ATOMIC
float atomicAdd(float*, float) = delete;
double atomicAdd(double*, double) = delete;

template <class T>
__forceinline__ T __ldg(const T* p) { return *p; }
template <class T>
__forceinline__ T __ldcs(const T* p) { return *p; }
template <class T>
__forceinline__ void __stcs(T* p, T x) { *p = x; }

__forceinline__ int __popc(unsigned x) { return std::popcount(x); }
__forceinline__ int __popcll(unsigned long long x) { return std::popcount(x); }
__forceinline__ int __clz(int x) { return std::countl_zero(unsigned(x)); }
__forceinline__ int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
__forceinline__ int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(unsigned(x)) + 1; }
__forceinline__ int __ffsll(long long x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1; }
__forceinline__ unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1u) << (31 - i);
    return y;
}
__forceinline__ unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
__forceinline__ unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return uint64_t(static_cast<unsigned __int128>(a) * b >> 64); }

__forceinline__ unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
__forceinline__ int __float_as_int(float x) { return std::bit_cast<int>(x); }
__forceinline__ float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
__forceinline__ float __int_as_float(int x) { return std::bit_cast<float>(x); }
__forceinline__ int __float2int_rn(float x) { return int(std::nearbyint(x)); }
__forceinline__ int __float2int_rd(float x) { return int(std::floor(x)); }
__forceinline__ int __float2int_rz(float x) { return int(x); }
__forceinline__ float __int2float_rn(int x) { return float(x); }

// With -ffp-contract=off every operation rounds by itself.
__forceinline__ float __fadd_rn(float a, float b) { return a + b; }
__forceinline__ float __fsub_rn(float a, float b) { return a - b; }
__forceinline__ float __fmul_rn(float a, float b) { return a * b; }
__forceinline__ float __fdiv_rn(float a, float b) { return a / b; }
__forceinline__ float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
__forceinline__ float __fsqrt_rn(float x) { return std::sqrt(x); }
__forceinline__ float __frcp_rn(float x) { return 1.0f / x; }
__forceinline__ float __frsqrt_rn(float x) { return float(1.0 / std::sqrt(double(x))); }
__forceinline__ float __fdividef(float a, float b) { return a / b; }
__forceinline__ float __expf(float x) { return std::exp(x); }
__forceinline__ float __logf(float x) { return std::log(x); }
__forceinline__ float __log2f(float x) { return std::log2(x); }
__forceinline__ float __powf(float x, float y) { return std::pow(x, y); }
__forceinline__ float __saturatef(float x) { return x >= 0 ? (x <= 1 ? x : 1.0f) : 0.0f; }
__forceinline__ float rsqrtf(float x) { return float(1.0 / std::sqrt(double(x))); }
__forceinline__ double rsqrt(double x) { return 1.0 / std::sqrt(x); }

#define SIMT_MIN_MAX(T)                                          \
    __forceinline__ T min(T a, T b) { return b < a ? b : a; }    \
    __forceinline__ T max(T a, T b) { return a < b ? b : a; }
SIMT_MIN_MAX(int)
SIMT_MIN_MAX(unsigned)
SIMT_MIN_MAX(long)
SIMT_MIN_MAX(unsigned long)
SIMT_MIN_MAX(long long)
SIMT_MIN_MAX(unsigned long long)
#undef SIMT_MIN_MAX
__forceinline__ float min(float a, float b) { return std::fmin(a, b); }
__forceinline__ float max(float a, float b) { return std::fmax(a, b); }
__forceinline__ double min(double a, double b) { return std::fmin(a, b); }
__forceinline__ double max(double a, double b) { return std::fmax(a, b); }

// ---- Library calls in kernels are checked too ----------------------------------------------------------------------------------

#ifdef __SANITIZE_THREAD__
extern "C" {
void* memcpy(void* __restrict, const void* __restrict, size_t) noexcept __asm__("simt_memcpy");
void* memmove(void*, const void*, size_t) noexcept __asm__("simt_memmove");
void* memset(void*, int, size_t) noexcept __asm__("simt_memset");
}
#endif
