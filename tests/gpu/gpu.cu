#include "gpu.h"

#include <algorithm>

#include "../../kernels/cuda.cuh"

namespace clover::gpu {

Facts facts(Context& ctx) {
    const CudaState& state = cuda_state(ctx);
    cudaDeviceProp properties;
    Facts f{};
    CLOVER_CUDA(cudaGetDeviceProperties(&properties, state.device));
    CLOVER_CUDA(cudaDriverGetVersion(&f.driver));
    CLOVER_CUDA(cudaRuntimeGetVersion(&f.runtime));
    f.name = properties.name, f.memory = properties.totalGlobalMem;
    f.capability = state.capability, f.multiprocessors = state.multiprocessors;
    return f;
}

void wait(Context& ctx) { CLOVER_CUDA(cudaStreamSynchronize(cuda_state(ctx).stream)); }

namespace {
struct Event {
    cudaEvent_t event;
    Event() { CLOVER_CUDA(cudaEventCreate(&event)); }
    ~Event() { cudaEventDestroy(event); }
    Event(const Event&) = delete;
};
}  // namespace

std::vector<double> time_calls(Context& ctx, const std::function<void()>& work, int runs) {
    const cudaStream_t stream = cuda_state(ctx).stream;
    work();
    std::vector<Event> marks(size_t(runs) + 1);
    CLOVER_CUDA(cudaEventRecord(marks[0].event, stream));
    for (int i = 0; i < runs; i++) {
        work();
        CLOVER_CUDA(cudaEventRecord(marks[size_t(i) + 1].event, stream));
    }
    wait(ctx);
    std::vector<double> seconds;
    for (int i = 0; i < runs; i++) {
        float milliseconds = 0;
        CLOVER_CUDA(cudaEventElapsedTime(&milliseconds, marks[size_t(i)].event, marks[size_t(i) + 1].event));
        seconds.push_back(1e-3 * milliseconds);
    }
    return seconds;
}

double copy_bandwidth(Context& ctx, size_t bytes, int runs) {
    const MemoryOps& memory = ctx.device.memory;
    void *from = memory.allocate(bytes, true), *to = memory.allocate(bytes, false);
    std::vector<double> seconds =
        time_calls(ctx, [&] { CLOVER_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_state(ctx).stream)); }, runs);
    memory.release(from, bytes), memory.release(to, bytes);
    std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.end());
    return 2 * double(bytes) / seconds[size_t(runs / 2)];
}

}  // namespace clover::gpu
