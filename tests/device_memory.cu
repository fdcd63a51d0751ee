// The suites' memory on a GPU and in the harness; see device_memory.h.
#include "device_memory.h"

#include <cuda_runtime.h>

#include <cstring>

#include "../kernels/cuda.cuh"
#ifdef CLOVER_SIMT
#include "simt/simt.h"
#endif

namespace clover::test::cuda {

void* allocate(size_t bytes) {
    void* p = nullptr;
    CLOVER_CUDA(cudaMallocManaged(&p, bytes));
    std::memset(p, 0, bytes);
    return p;
}

// Work that still uses the memory is waited for; what it says is for the caller of synchronize(), not for a destructor.
void release(void* p) { (void)cudaFree(p); }

void synchronize() { CLOVER_CUDA(cudaDeviceSynchronize()); }

void forget(void* p, size_t bytes) {
    std::memset(p, 0xff, bytes);
#ifdef CLOVER_SIMT
    simt::forget(p, bytes);
#endif
}

#ifdef CLOVER_SIMT
bool written(const void* p, size_t bytes) { return simt::written(p, bytes); }
bool in_harness() { return true; }
void set_schedule(uint64_t seed) { simt::options().seed = seed; }
void set_mma(int model) { simt::options().mma = simt::MmaModel(model); }
#else
bool written(const void*, size_t) { return true; }
bool in_harness() { return false; }
void set_schedule(uint64_t) {}
void set_mma(int) {}
#endif

}  // namespace clover::test::cuda
