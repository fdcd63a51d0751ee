// The suites' memory on a GPU and in the harness; see device_memory.h.
#include "device_memory.h"

#include <cuda_runtime.h>

#include <cstring>
#include <exception>
#include <utility>

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

static std::exception_ptr failure;

void synchronize() {
    if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
    CLOVER_CUDA(cudaDeviceSynchronize());
}

void settle() {
    try {
        synchronize();
    } catch (...) {
        failure = std::current_exception();
    }
}

void release(void* p) {
    settle();
    (void)cudaFree(p);
}

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
