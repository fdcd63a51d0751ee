// What the suites need of CUDA, for files without CUDA headers: memory that the host and the kernels both reach, and the harness's
// choices. Defined in device_memory.cu; a build without CUDA sources lacks it, and the addresses of these functions are null there.
#pragma once
#include <cstddef>
#include <cstdint>

namespace clover::test::cuda {

/// Managed memory of exactly this size, zeroed, for the host and the kernels of the current device. Throws Error where there is none.
__attribute__((weak)) void* allocate(size_t bytes);
__attribute__((weak)) void release(void* p);
/// Waits for all work of the device. Throws Error, or the harness's Fault, if it failed.
__attribute__((weak)) void synchronize();
/// For destructors: waits too, but leaves the failure for the next synchronize() to throw. release() does so.
__attribute__((weak)) void settle();
/// In the harness: kernels may not read this managed memory before they have written it. It holds NaN, everywhere.
__attribute__((weak)) void forget(void* p, size_t bytes);
/// In the harness: whether all of it has been written since it was forgotten. On a GPU true.
__attribute__((weak)) bool written(const void* p, size_t bytes);

/// Whether kernels run in the harness (tests/simt/simt.h).
__attribute__((weak)) bool in_harness();
/// In the harness: the seed of the order of blocks, warps and lanes, and the way mma adds (0 exactly, 1 as sm_80, 2 as sm_90).
__attribute__((weak)) void set_schedule(uint64_t seed);
__attribute__((weak)) void set_mma(int model);

}  // namespace clover::test::cuda
