// What cp.async keeps per thread, and what it asks of the memory checks.
#pragma once
#include <cstddef>
#include <vector>

namespace simt {

struct AsyncCopy {
    void* to;          // 16 bytes of shared memory
    const void* from;  // of which `valid` bytes are read
    int valid;
    unsigned char data[16];  // what will arrive
};

/// A thread's copies under way, oldest first. A group is given by the number of copies up to its end.
struct AsyncCopies {
    std::vector<AsyncCopy> copies;
    std::vector<size_t> groups;
};

/// Of the running thread; empty when a thread starts. Defined by the scheduler.
AsyncCopies& async_copies();

/// From here to end_async_write, any access to these bytes of shared memory by any thread is a Fault that says a cp.async is under way.
/// Defined by the memory checks, as is end_async_write.
void begin_async_write(void* p, size_t bytes);
/// The bytes count as written by the running thread now, so that others need a barrier before they read them. Not counted as traffic.
void end_async_write(void* p, size_t bytes);

}  // namespace simt
