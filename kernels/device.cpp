#include "device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>

namespace clover {
namespace {

constexpr size_t page = 4096;
size_t whole_pages(size_t bytes) { return (bytes + page - 1) / page * page; }

// A number in a file of one line; the largest where there is none ("max", or no such file).
size_t number_in(const char* path) {
    size_t n;
    return std::ifstream(path) >> n ? n : std::numeric_limits<size_t>::max();
}

// What a container (cgroup v2) still allows, or, if less, what Linux thinks can be had without swapping.
size_t available() {
    const size_t most = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
    const size_t allowed = most == std::numeric_limits<size_t>::max() ? most : most - std::min(most, used);
    std::ifstream info("/proc/meminfo");
    for (std::string line; std::getline(info, line);)
        if (line.rfind("MemAvailable:", 0) == 0) return std::min<size_t>(allowed, std::stoull(line.substr(13)) * 1024);
    return allowed;
}

// Fresh pages are zero anyway.
void* allocate(size_t bytes, bool) {
    if (bytes == 0) return nullptr;
    void* p = mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw Error(text("not enough memory for ", bytes, " bytes"));
    madvise(p, whole_pages(bytes), MADV_HUGEPAGE);
    return p;
}
void release(void* p, size_t bytes) {
    if (p) munmap(p, whole_pages(bytes));
}
void copy(Context&, void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

const Device cpu{"cpu",     {available, allocate, release, copy, copy}, gemm_cpu,          norm_cpu,        gelu_cpu, embedding_cpu,
                 attention_cpu, cross_entropy_cpu,          elementwise_cpu, optimizer_cpu, adamw_cpu, adafactor_cpu};

}  // namespace

const Device& find_device(const std::string& name) {
    std::string why_not;
    if (name == "cpu") return cpu;
    if (name == "auto") {
        const Device* device = cuda_device ? cuda_device(why_not) : nullptr;
        return device ? *device : cpu;
    }
    require(name == "cuda", "--device ", name, ": the devices are cpu, cuda, and auto for cuda where there is a GPU and else cpu");
    require(cuda_device != nullptr, "--device cuda: this build is without CUDA; install the CUDA Toolkit and build again, or use --device cpu");
    const Device* device = cuda_device(why_not);
    require(device != nullptr, "--device cuda: ", why_not, "; use --device cpu");
    return *device;
}

}  // namespace clover
