// The CUDA device: its table of operations, its memory, and what it keeps for a context.
//
// A context has one stream; all of its kernels, products and copies go there, in order, so nothing needs an event. The host waits in
// to_host alone, and in from_host when the staging memory is full.
#include <algorithm>
#include <cstring>

#include "cuda.cuh"

namespace clover {
namespace {

// Host memory that is not pinned may still be read after cudaMemcpyAsync has returned (or be read by a copy that waits for the stream
// first: the documentation leaves it to the driver). So from_host copies through pinned memory of its own, and the stream is waited
// for once in so many bytes. Token ids of a step fit in many times over.
constexpr size_t staging_bytes = size_t{4} << 20;

struct State : CudaState {
    char* staging = nullptr;
    size_t staged = 0;  // bytes that copies under way may still read

    State() {
        CLOVER_CUDA(cudaGetDevice(&device));
        const auto attribute = [&](cudaDeviceAttr which) {
            int value = 0;
            CLOVER_CUDA(cudaDeviceGetAttribute(&value, which, device));
            return value;
        };
        capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
        multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
        shared_limit = size_t(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
        void* pinned = nullptr;
        CLOVER_CUDA(cudaMallocHost(&pinned, staging_bytes));
        staging = static_cast<char*>(pinned);
        CLOVER_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    ~State() {
        cudaStreamSynchronize(stream);  // copies under way read the staging memory
        cudaStreamDestroy(stream);
        cudaFreeHost(staging);
    }
    State(const State&) = delete;

    void wait() {
        CLOVER_CUDA(cudaStreamSynchronize(stream));
        staged = 0;
    }
};

State& state_of(Context& ctx) {
    if (!ctx.device_state) ctx.device_state = std::make_shared<State>();
    return *static_cast<State*>(ctx.device_state.get());
}

size_t available() {
    size_t free = 0, total = 0;
    CLOVER_CUDA(cudaMemGetInfo(&free, &total));
    return free;
}

// The zeros are there before any stream can ask for them.
void* allocate(size_t bytes, bool zeroed) {
    if (bytes == 0) return nullptr;
    void* p = nullptr;
    const cudaError_t status = cudaMalloc(&p, bytes);
    if (status == cudaErrorMemoryAllocation) throw Error(text("not enough GPU memory for ", bytes, " bytes, ", available(), " are free"));
    check_cuda(status, "cudaMalloc");
    if (zeroed) {
        CLOVER_CUDA(cudaMemset(p, 0, bytes));
        CLOVER_CUDA(cudaDeviceSynchronize());
    }
    return p;
}
// Waits for what still uses the memory. An error here belongs to work done before, and shows in the next call that can throw.
void release(void* p, size_t) {
    if (p) cudaFree(p);
}

void to_host(Context& ctx, void* host, const void* device, size_t bytes) {
    if (bytes == 0) return;
    State& state = state_of(ctx);
    CLOVER_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, state.stream));
    state.wait();
}
void from_host(Context& ctx, void* device, const void* host, size_t bytes) {
    State& state = state_of(ctx);
    for (size_t done = 0; done < bytes;) {
        if (state.staged == staging_bytes) state.wait();
        const size_t part = std::min(bytes - done, staging_bytes - state.staged);
        char* const staged = state.staging + state.staged;
        std::memcpy(staged, static_cast<const char*>(host) + done, part);
        CLOVER_CUDA(cudaMemcpyAsync(static_cast<char*>(device) + done, staged, part, cudaMemcpyHostToDevice, state.stream));
        state.staged += part;
        done += part;
    }
}

// Any kernel shows whether this build has code that the GPU can run.
__global__ void nothing() {}

// What keeps the current GPU from being used, or an empty string.
std::string obstacle() {
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    if (found == cudaErrorInsufficientDriver) {
        int version = 0;
        CLOVER_CUDA(cudaRuntimeGetVersion(&version));
        return text("no NVIDIA driver is installed, or it is too old for CUDA ", version / 1000, ".", version % 1000 / 10);
    }
    if (found == cudaErrorNoDevice || (found == cudaSuccess && count == 0)) return "there is no NVIDIA GPU in this machine, or none is visible";
    if (found != cudaSuccess) return text("CUDA does not start: ", cudaGetErrorString(found));
    int device = 0, major = 0, minor = 0;
    CLOVER_CUDA(cudaGetDevice(&device));
    CLOVER_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    CLOVER_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    if (major < 8) return text("the GPU has compute capability ", major, ".", minor, ", 8.0 or newer is needed");
    if (cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 0) != cudaSuccess)
        return text("this build has no code for the GPU's compute capability ", major, ".", minor, "; build with GPU_ARCH=sm_", major, minor);
    return "";
}

}  // namespace

CudaState& cuda_state(Context& ctx) { return state_of(ctx); }

const Device* cuda_device(std::string& why_not) {
    static const Device device{"cuda",         {available, allocate, release, to_host, from_host}, gemm_cuda, norm_cuda, gelu_cuda, embedding_cuda,
                               attention_cuda, cross_entropy_cuda, elementwise_cuda, optimizer_cuda, adamw_cuda, adafactor_cuda};
    why_not = obstacle();
    return why_not.empty() ? &device : nullptr;
}

}  // namespace clover
