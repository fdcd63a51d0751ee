// The host's side of the CUDA runtime: devices, memory calls, streams and events.
//
// Work of a stream is queued. By the seed it runs at once or later, at latest when something synchronises with it; so what the host does
// too early is seen. One lock guards everything; a thread that waits lends a hand to the other streams.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>

#include "memory.h"
#include "symbols.h"

using namespace simt;

struct Work {
    const char* name;
    std::function<bool()> run;
};
struct CUstream_st {
    int device;
    bool blocking;  // it and the default stream wait for each other; not so those made with cudaStreamNonBlocking
    std::deque<Work> queue = {};
    uint64_t given = 0;  // works
};
struct CUevent_st {
    int64_t recorded = 0, done = 0;  // records asked for, and passed by their stream
    std::chrono::steady_clock::time_point when = {};
    cudaStream_t stream = nullptr;
};

namespace simt {

Options& options() {
    static Options o;
    return o;
}

namespace {

constexpr size_t always_allowed_shared = 48 << 10;

std::mutex lock;
std::condition_variable changed;
std::vector<std::unique_ptr<CUstream_st>> streams;  // in the order they were made
std::vector<std::unique_ptr<CUevent_st>> events;
std::map<int, cudaStream_t> default_streams;
std::map<uintptr_t, Region*> pinned;
std::map<const void*, size_t> raised_shared;
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

using Lock = std::unique_lock<std::mutex>;

cudaError_t failed(cudaError_t e) { return e == cudaSuccess ? e : last_error = e; }

size_t shared_limit() { return (options().capability >= 90 ? 227 : 163) << 10; }

/// Decided by the seed and the number of works that the stream was given so far (the default stream: since it was last empty).
bool runs_at_once(cudaStream_t s) {
    uint64_t x = options().seed * 0x9e3779b97f4a7c15u + ++s->given;
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 29) * 0x94d049bb133111ebu;
    return x >> 63;
}

cudaStream_t stream_or_default(cudaStream_t s) {
    if (s) return s;
    cudaStream_t& d = default_streams[current_device];
    if (!d) d = streams.emplace_back(new CUstream_st{current_device, true}).get();
    return d;
}

void drop_all_work() {
    for (const auto& s : streams) s->queue.clear();
    for (const auto& e : events) e->done = e->recorded;
}

/// Runs the first work of s; false if it cannot go yet.
bool step(cudaStream_t s) {
    open_memory();
    try {
        if (!s->queue.front().run()) return false;
    } catch (...) {
        drop_all_work();
        changed.notify_all();
        throw;
    }
    s->queue.pop_front();
    changed.notify_all();
    return true;
}

/// Runs what s can run now.
void advance(cudaStream_t s) {
    while (!s->queue.empty() && step(s)) {}
}

/// Until done(); runs s, and the others when that cannot go on. Device memory is closed then.
template <class Done>
void run_until(Lock& held, cudaStream_t s, Done done) {
    const struct Close {
        ~Close() { close_memory(); }
    } close;
    const auto start = std::chrono::steady_clock::now();
    while (!done()) {
        if (s && !s->queue.empty() && step(s)) continue;
        bool moved = false;
        for (size_t i = 0; i < streams.size(); i++)
            if (streams[i].get() != s && !streams[i]->queue.empty() && step(streams[i].get())) moved = true;
        if (moved || done()) continue;
        changed.wait_for(held, std::chrono::milliseconds(20));
        if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > options().most_seconds) {
            const std::string name = s && !s->queue.empty() ? s->queue.front().name : "work";
            drop_all_work();
            throw Fault(name + ": the stream waits for ever (peers that never come)");
        }
    }
}

void check_may_wait(const char* call) {
    if (must_not_wait) throw Fault(std::string(call) + ": " + must_not_wait);
}

void drain(Lock& held, cudaStream_t s) {
    run_until(held, s, [s] { return s->queue.empty(); });
}
void drain_device(Lock& held, int device, bool only_blocking = false) {
    run_until(held, nullptr, [=] {
        for (const auto& s : streams)
            if (s->device == device && (s->blocking || !only_blocking) && !s->queue.empty()) return false;
        return true;
    });
}

/// For calls that destructors make: while an exception is on its way, a fault of what still runs is only printed.
template <class F>
void finish(F run) {
    if (std::uncaught_exceptions() == 0) return run();
    try {
        run();
    } catch (const Fault& fault) {
        std::fprintf(stderr, "SIMT, while another exception is on its way: %s\n", fault.what());
    }
}

void enqueue_locked(Lock& held, cudaStream_t stream, const char* name, std::function<bool()> run) {
    cudaStream_t s = stream_or_default(stream);
    if (!stream) drain_device(held, current_device, true);
    else if (s->blocking && default_streams.count(s->device)) drain(held, default_streams[s->device]);
    s->queue.push_back({name, std::move(run)});
    changed.notify_all();
    if (!stream && s->queue.size() == 1) s->given = 0;
    if (runs_at_once(s)) advance(s);
}

template <class T>
bool among(const std::vector<std::unique_ptr<T>>& all, const T* one) {
    return std::any_of(all.begin(), all.end(), [one](const auto& x) { return x.get() == one; });
}
template <class T>
void remove(std::vector<std::unique_ptr<T>>& all, const T* one) {
    std::erase_if(all, [one](const auto& x) { return x.get() == one; });
}
bool known(cudaStream_t s) { return !s || among(streams, s); }
bool known(cudaEvent_t e) { return among(events, e); }

Region* find_pinned(const void* p) {
    auto at = pinned.upper_bound(reinterpret_cast<uintptr_t>(p));
    if (at == pinned.begin()) return nullptr;
    Region* r = (--at)->second;
    return reinterpret_cast<uintptr_t>(p) < r->base + std::max<size_t>(r->bytes, 1) ? r : nullptr;
}
bool on_device(const void* p) {
    const Region* r = find_region(reinterpret_cast<uintptr_t>(p));
    return r && r->live;
}
bool in_arena(const void* p) { return reinterpret_cast<uintptr_t>(p) - arena_base < arena_bytes; }

/// Where a copy of device memory is unwritten, the NaN that fresh memory holds.
void fill_unwritten(void* to, const Region& r, size_t offset, size_t bytes) {
    if (all_written(r, offset, bytes)) return;
    for (size_t i = 0; i < bytes; i++)
        if (!all_written(r, offset + i, 1)) static_cast<uint8_t*>(to)[i] = 0xff;
}

/// The copy itself. Written-ness moves along with the bytes.
void copy_now(void* to, const void* from, size_t bytes) {
    Region* source = in_arena(from) ? find_region(reinterpret_cast<uintptr_t>(from)) : nullptr;
    Region* target = in_arena(to) ? find_region(reinterpret_cast<uintptr_t>(to)) : nullptr;
    const auto inside = [bytes](const Region* r, const void* p) {
        const uintptr_t a = reinterpret_cast<uintptr_t>(p);
        return r && r->live && a >= r->base && a + bytes <= r->base + r->bytes;
    };
    if (in_arena(to) && !inside(target, to)) throw Fault("cudaMemcpy writes " + std::to_string(bytes) + " bytes at " + describe_address(reinterpret_cast<uintptr_t>(to)));
    if (in_arena(from) && !inside(source, from)) throw Fault("cudaMemcpy reads " + std::to_string(bytes) + " bytes at " + describe_address(reinterpret_cast<uintptr_t>(from)));
    std::memmove(to, from, bytes);
    const size_t source_offset = source ? reinterpret_cast<uintptr_t>(from) - source->base : 0;
    if (source && !target) fill_unwritten(to, *source, source_offset, bytes);
    if (!target) return;
    const size_t offset = reinterpret_cast<uintptr_t>(to) - target->base;
    if (!source || all_written(*source, source_offset, bytes)) return set_written(*target, offset, bytes, true);
    for (size_t i = 0; i < bytes; i++) set_written(*target, offset + i, 1, all_written(*source, source_offset + i, 1));
}

cudaError_t check_direction(const void* to, const void* from, cudaMemcpyKind kind) {
    const bool to_device = in_arena(to), from_device = in_arena(from);
    const auto managed = [](const void* p) { const Region* r = find_region(reinterpret_cast<uintptr_t>(p)); return r && r->kind == MemoryKind::managed; };
    switch (kind) {
        case cudaMemcpyHostToHost: return (to_device && !managed(to)) || (from_device && !managed(from)) ? cudaErrorInvalidValue : cudaSuccess;
        case cudaMemcpyHostToDevice: return !to_device || (from_device && !managed(from)) ? cudaErrorInvalidValue : cudaSuccess;
        case cudaMemcpyDeviceToHost: return !from_device || (to_device && !managed(to)) ? cudaErrorInvalidValue : cudaSuccess;
        case cudaMemcpyDeviceToDevice: return !to_device || !from_device ? cudaErrorInvalidValue : cudaSuccess;
        case cudaMemcpyDefault: return cudaSuccess;
    }
    return cudaErrorInvalidMemcpyDirection;
}

/// Memory that a queued copy can read or write by itself later: the device's, or pinned.
bool can_wait(const void* p) { return in_arena(p) || find_pinned(p); }

}  // namespace

void enqueue(cudaStream_t stream, const char* name, std::function<bool()> run) {
    Lock held(lock);
    enqueue_locked(held, stream, name, std::move(run));
}

constinit thread_local const char* must_not_wait = nullptr;

int stream_device(cudaStream_t stream) { return stream ? stream->device : current_device; }

cudaError_t allocate(void** p, size_t bytes) {
    Lock held(lock);
    *p = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (allocated_bytes(current_device) + bytes > options().memory) return failed(cudaErrorMemoryAllocation);
    *p = reinterpret_cast<void*>(allocate_region(bytes, MemoryKind::device, current_device)->base);
    return cudaSuccess;
}
cudaError_t allocate_managed(void** p, size_t bytes) {
    Lock held(lock);
    *p = nullptr;
    if (bytes == 0) return failed(cudaErrorInvalidValue);
    if (allocated_bytes(current_device) + bytes > options().memory) return failed(cudaErrorMemoryAllocation);
    *p = reinterpret_cast<void*>(allocate_region(bytes, MemoryKind::managed, current_device)->base);
    return cudaSuccess;
}
cudaError_t allocate_pinned(void** p, size_t bytes) {
    Lock held(lock);
    *p = nullptr;
    if (bytes == 0) return cudaSuccess;
    Region* r = allocate_region(bytes, MemoryKind::pinned, current_device);
    pinned[r->base] = r;
    *p = reinterpret_cast<void*>(r->base);
    return cudaSuccess;
}

// ---- Launches ------------------------------------------------------------------------------------------------------------------

cudaError_t set_function_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    Lock held(lock);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || size_t(value) > shared_limit()) return failed(cudaErrorInvalidValue);
    raised_shared[kernel] = size_t(value);
    return cudaSuccess;
}

cudaError_t function_attributes(cudaFuncAttributes* a, const void* kernel) {
    Lock held(lock);
    const auto raised = raised_shared.find(kernel);
    const size_t shared = raised == raised_shared.end() ? always_allowed_shared : raised->second;
    *a = {0, 0, 0, 1024, 64, options().capability, options().capability, 0, int(shared), -1};
    return cudaSuccess;
}

cudaError_t launch(const cudaLaunchConfig_t& c, const void* kernel, void (*call)(void*), std::shared_ptr<void> parameters, size_t parameter_bytes) {
    Lock held(lock);
    const dim3 g = c.grid_size, b = c.block_size;
    if (!known(c.stream)) return failed(cudaErrorInvalidResourceHandle);
    const bool zero = !g.x || !g.y || !g.z || !b.x || !b.y || !b.z;
    const uint64_t threads = uint64_t(b.x) * b.y * b.z;
    if (zero || b.x > 1024 || b.y > 1024 || b.z > 64 || threads > 1024) return failed(cudaErrorInvalidConfiguration);
    if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) return failed(cudaErrorInvalidConfiguration);
    const auto raised = raised_shared.find(kernel);
    const size_t most = raised == raised_shared.end() ? always_allowed_shared : std::max(always_allowed_shared, raised->second);
    if (c.dynamicSmemBytes > std::min(most, shared_limit()) || c.numAttrs != 0 || parameter_bytes > 32764) return failed(cudaErrorInvalidValue);
    const int device = stream_device(c.stream);
    if (device != current_device) return failed(cudaErrorInvalidResourceHandle);
    enqueue_locked(held, c.stream, "kernel", [request = LaunchRequest{kernel, call, std::move(parameters), parameter_bytes, g, b, c.dynamicSmemBytes, device, options()}] {
        run_launch(request);
        return true;
    });
    return cudaSuccess;
}

}  // namespace simt

// ---- Devices and errors --------------------------------------------------------------------------------------------------------

const char* cudaGetErrorString(cudaError_t e) {
    switch (e) {
        case cudaSuccess: return "no error";
        case cudaErrorInvalidValue: return "invalid argument";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInvalidConfiguration: return "invalid configuration argument";
        case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
        case cudaErrorInvalidDevice: return "invalid device ordinal";
        case cudaErrorInvalidResourceHandle: return "invalid resource handle";
        case cudaErrorNotReady: return "device not ready";
        case cudaErrorNoDevice: return "no CUDA-capable device is detected";
        default: return "an error of the pretended runtime";
    }
}
const char* cudaGetErrorName(cudaError_t e) { return cudaGetErrorString(e); }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* n) {
    *n = options().devices;
    return *n > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= options().devices) return failed(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
    *device = current_device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    if (device < 0 || device >= options().devices) return failed(cudaErrorInvalidDevice);
    *p = {};
    std::snprintf(p->name, sizeof p->name, "SIMT harness sm_%d", options().capability);
    p->totalGlobalMem = options().memory;
    p->sharedMemPerBlock = always_allowed_shared;
    p->sharedMemPerBlockOptin = shared_limit();
    p->sharedMemPerMultiprocessor = shared_limit() + 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = options().capability / 10;
    p->minor = options().capability % 10;
    p->multiProcessorCount = options().capability >= 90 ? 132 : 108;
    p->l2CacheSize = 50 << 20;
    p->memoryBusWidth = 5120;
    p->managedMemory = p->concurrentManagedAccess = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr a, int device) {
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, device) != cudaSuccess) return cudaErrorInvalidDevice;
    switch (a) {
        case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(p.sharedMemPerBlock); break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrClockRate: *value = 1755000; break;
        case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
        case cudaDevAttrMemoryClockRate: *value = 2619000; break;
        case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
        case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
        case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
        case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = int(p.sharedMemPerMultiprocessor); break;
        case cudaDevAttrManagedMemory: case cudaDevAttrConcurrentManagedAccess: *value = 1; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(p.sharedMemPerBlockOptin); break;
        default: return failed(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* v) { return *v = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* v) { return *v = 13000, cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
    Lock held(lock);
    check_may_wait("cudaDeviceSynchronize");
    drain_device(held, current_device);
    return cudaSuccess;
}

// ---- Memory --------------------------------------------------------------------------------------------------------------------

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    Lock held(lock);
    *total = options().memory;
    *free = *total - std::min(*total, allocated_bytes(current_device));
    return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
    Lock held(lock);
    if (!p) return cudaSuccess;
    Region* r = in_arena(p) ? find_region(reinterpret_cast<uintptr_t>(p)) : nullptr;
    if (!r || !r->live || r->base != reinterpret_cast<uintptr_t>(p)) return failed(cudaErrorInvalidValue);
    finish([&] { drain_device(held, r->device); });
    free_region(r);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* p) {
    Lock held(lock);
    if (!p) return cudaSuccess;
    const auto at = pinned.find(reinterpret_cast<uintptr_t>(p));
    if (at == pinned.end()) return failed(cudaErrorInvalidValue);
    Region* r = at->second;
    pinned.erase(at);
    free_region(r);
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
    Lock held(lock);
    const Region* r = in_arena(p) ? find_region(reinterpret_cast<uintptr_t>(p)) : find_pinned(p);
    void* q = const_cast<void*>(p);
    if (!r || !r->live) *a = {cudaMemoryTypeUnregistered, -1, nullptr, q};
    else if (r->kind == MemoryKind::device) *a = {cudaMemoryTypeDevice, r->device, q, nullptr};
    else *a = {r->kind == MemoryKind::managed ? cudaMemoryTypeManaged : cudaMemoryTypeHost, r->device, q, q};
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    Lock held(lock);
    if (!known(stream)) return failed(cudaErrorInvalidResourceHandle);
    if (bytes == 0) return cudaSuccess;
    if (!to || !from) return failed(cudaErrorInvalidValue);
    if (const cudaError_t e = check_direction(to, from, kind)) return failed(e);
    if (!can_wait(to)) {  // ordinary host memory receives it before the call returns
        drain(held, stream_or_default(stream));
        enqueue_locked(held, stream, "copy", [=] { return copy_now(to, from, bytes), true; });
        drain(held, stream_or_default(stream));
        return cudaSuccess;
    }
    if (can_wait(from)) {
        const bool to_pinned = !in_arena(to), from_pinned = !in_arena(from);
        enqueue_locked(held, stream, "copy", [=] {
            if ((to_pinned && !find_pinned(to)) || (from_pinned && !find_pinned(from)))
                throw Fault("cudaMemcpyAsync: the host's memory was freed before the copy ran");
            return copy_now(to, from, bytes), true;
        });
        return cudaSuccess;
    }
    // Ordinary host memory is read before the call returns.
    auto staged = std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    enqueue_locked(held, stream, "copy", [=] { return copy_now(to, staged->data(), bytes), true; });
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (const cudaError_t e = cudaMemcpyAsync(to, from, bytes, kind, nullptr)) return e;
    return kind == cudaMemcpyDeviceToDevice ? cudaSuccess : cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
    Lock held(lock);
    if (!known(stream)) return failed(cudaErrorInvalidResourceHandle);
    if (bytes == 0) return cudaSuccess;
    if (!on_device(p)) return failed(cudaErrorInvalidValue);
    enqueue_locked(held, stream, "memset", [=] {
        library_access("cudaMemset", p, bytes, true);
        std::memset(p, value, bytes);
        return true;
    });
    return cudaSuccess;
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) { return cudaMemsetAsync(p, value, bytes, nullptr); }

// ---- Streams and events --------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, cudaStreamDefault); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
    Lock held(lock);
    *s = streams.emplace_back(new CUstream_st{current_device, !(flags & cudaStreamNonBlocking)}).get();
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    Lock held(lock);
    if (!s || !known(s)) return failed(cudaErrorInvalidResourceHandle);
    finish([&] { drain(held, s); });
    remove(streams, s);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    Lock held(lock);
    check_may_wait("cudaStreamSynchronize");
    if (!known(s)) return failed(cudaErrorInvalidResourceHandle);
    drain(held, stream_or_default(s));
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
    Lock held(lock);
    if (!known(s)) return failed(cudaErrorInvalidResourceHandle);
    advance(stream_or_default(s));
    return stream_or_default(s)->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    Lock held(lock);
    if (!known(s) || !known(e)) return failed(cudaErrorInvalidResourceHandle);
    enqueue_locked(held, s, "cudaStreamWaitEvent", [e, n = e->recorded] { return !known(e) || e->done >= n; });
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, cudaEventDefault); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
    Lock held(lock);
    *e = events.emplace_back(new CUevent_st).get();
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    Lock held(lock);
    if (!known(e)) return failed(cudaErrorInvalidResourceHandle);
    remove(events, e);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    Lock held(lock);
    if (!known(s) || !known(e)) return failed(cudaErrorInvalidResourceHandle);
    e->stream = stream_or_default(s);
    enqueue_locked(held, s, "cudaEventRecord", [e, n = ++e->recorded] {
        if (!known(e)) return true;
        e->done = std::max(e->done, n);
        e->when = std::chrono::steady_clock::now();
        return true;
    });
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    Lock held(lock);
    check_may_wait("cudaEventSynchronize");
    if (!known(e)) return failed(cudaErrorInvalidResourceHandle);
    run_until(held, e->stream && known(e->stream) ? e->stream : nullptr, [e, n = e->recorded] { return e->done >= n; });
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    Lock held(lock);
    if (!known(e)) return failed(cudaErrorInvalidResourceHandle);
    if (e->stream && known(e->stream)) advance(e->stream);
    return e->done >= e->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
    Lock held(lock);
    if (!known(a) || !known(b) || !a->recorded || !b->recorded) return failed(cudaErrorInvalidResourceHandle);
    if (a->done < a->recorded || b->done < b->recorded) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(b->when - a->when).count();
    return cudaSuccess;
}
