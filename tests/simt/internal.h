// What the parts of the harness share. The machine is one: kernels run on one thread of the host at a time, under the runtime's lock.
#pragma once
#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simt.h"

namespace simt {

// ---- Threads (scheduler.cpp) ---------------------------------------------------------------------------------------------------

/// A copy that cp.async has started and its thread has not waited for.
struct AsyncCopy {
    void* shared;
    const void* source;
    int bytes, valid;
    int64_t group;           // of this thread, counted from 0; the open one is Thread::groups
    const void* place;
    unsigned char data[16];  // of the source, when it was issued
    uint32_t source_write[4][2];  // who had last written the source's words: segment and Thread::who
};

enum class Wait : uint8_t { none, barrier, collective, exited };

struct Warp;

/// One thread of the block that runs: a fiber.
struct Thread {
    uintptr_t stack_low = 0, stack_bytes = 0;
    uint32_t who = 0;   // index in the block << clock_bits | the warp's clock
    uint32_t bit = 0;   // 1 << lane
    uint32_t warp_bit = 0;
    uint32_t index = 0;
    int lane = 0;
    Warp* warp = nullptr;
    int64_t accesses = 0;         // left until this thread counts as one in an endless loop
    void* context = nullptr;      // to continue it
    const void* place = nullptr;  // the return address of its last call into the harness
    Wait wait = Wait::none;
    const char* waits_for = "";
    uint3 id{};
    int64_t groups = 0;           // of cp.async, closed ones
    std::vector<AsyncCopy> async;
};

/// The thread of the block that runs now on this thread of the host; null outside kernels.
extern constinit thread_local Thread* running;
/// The same while the kernel's own code runs, whose accesses are checked; null in the harness. (The linker keeps one copy of an inline function:
/// the harness may call one that was compiled for a kernel.)
extern constinit thread_local Thread* watched;

/// In the harness, called from a kernel at `place`: named in faults, and tells call sites apart.
class Inside {
public:
    explicit Inside(const void* place) : thread_(watched) {
        watched = nullptr;
        if (thread_) thread_->place = place;
    }
    ~Inside() { watched = thread_; }
    Inside(const Inside&) = delete;

private:
    Thread* thread_;
};
/// Every function that kernels call begins with this.
#define SIMT_PLACE() const ::simt::Inside simt_inside(__builtin_return_address(0))

/// Ends the launch with a Fault of that thread at `place`.
[[noreturn]] void fault_at(const Thread& thread, const void* place, const std::string& what);

/// A fault that a race may turn out to be the cause of: reported at the end of the block, unless a race is found until then.
void suspect(const Thread& thread, const void* place, const std::string& what);

/// What cudaLaunchKernelEx was given.
struct LaunchRequest {
    const void* kernel;
    void (*call)(void*);
    std::shared_ptr<void> parameters;
    size_t parameter_bytes;
    dim3 grid, block;
    size_t shared_bytes;
    int device;
    Options options;
};
/// Runs the launch to its end. Throws Fault.
void run_launch(const LaunchRequest& request);
/// Of the launch that runs.
const Options& launch_options();

/// The state of the launch that runs.
struct Machine {
    const LaunchRequest* request = nullptr;
    uintptr_t parameters_low = 0, parameters_bytes = 0;
    uint3 block{};
    // Segments number the stretches between barriers, over all blocks and launches: what happened in a segment before block_segment and
    // not before launch_segment belongs to another block of this launch.
    uint32_t segment = 1, block_segment = 1, launch_segment = 1;
};
extern Machine machine;
/// The block's number in its launch of a segment of this launch.
uint3 block_of_segment(uint32_t segment);

constexpr int clock_bits = 22;  // of Thread::who

/// Whether this thread is ordered behind what the lane `earlier` of its warp did in this segment at `clock`.
bool ordered_in_warp(const Thread& later, uint32_t earlier_lane, uint32_t clock);

// ---- cp.async (async.cpp) ------------------------------------------------------------------------------------------------------

/// Starts a copy of `bytes` (4, 8 or 16), of which the first `valid` are read and the others become zero: checks both accesses and holds
/// the data back. Until the thread's wait, touching the destination or changing the source is a fault. Alignment is checked here.
void async_issue(void* shared, const void* source, int bytes, int valid);
/// Closes this thread's group.
void async_commit();
/// Delivers all of this thread's groups but the latest `pending`; what is delivered counts as written by this thread now.
void async_wait(int pending);

// ---- Memory (memory.cpp) -------------------------------------------------------------------------------------------------------

enum class MemoryKind : uint8_t { device, managed, pinned };

/// For stand-ins of libraries, outside kernels: memory of the device that an operation reads or writes. Throws Fault naming `who` when it is
/// not inside one live allocation, or read before it was written; written memory counts as written. Only within a queued operation.
void library_access(const char* who, const void* p, size_t bytes, bool write);

// ---- Streams (runtime.cpp) -----------------------------------------------------------------------------------------------------

/// Queues work on a stream of the current device (null: the default stream). It runs at once or later, at latest when something
/// synchronises, with device memory open. `run` returns false while it cannot go yet (a collective whose peers are missing): it is then
/// called again after something else has run; the stream waits behind it. It may throw Fault.
void enqueue(cudaStream_t stream, const char* name, std::function<bool()> run);
/// The device of a stream; for the default stream the current one.
int stream_device(cudaStream_t stream);
/// While set, a call by which this thread of the host waits for the device is a Fault with this text.
extern constinit thread_local const char* must_not_wait;

// ---- Counters (counters.cpp) ---------------------------------------------------------------------------------------------------

/// Counts one warp-wide matrix instruction. Once per warp, from `run` of its collective.
void count_mma();

}  // namespace simt
