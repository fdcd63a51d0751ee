// Memory that kernels may touch: allocations of the device and the block's shared memory, each with its shadow: which bytes were written,
// and who touched them last.
#pragma once
#include "internal.h"

namespace simt {

/// Who touched a word (or a byte) in the launch that runs; a segment from before the launch means nobody. The last write stands for all
/// earlier ones, for those were ordered. Reads need no order among themselves: what is kept of them shows one that conflicts, if there is one.
struct Cell {
    uint32_t write_segment = 0, write_who = 0, write_place = 0;
    // The reads of the latest segment with any: the latest thread, the lanes of its warp that read at the same clock, all warps.
    uint32_t read_segment = 0, read_who = 0, read_place = 0, read_lanes = 0, read_warps = 0;
    uint32_t other_read_place = 0;     // the latest read by another thread than that
    uint32_t other_block_segment = 0;  // a read by another block than that
    uint32_t atomic_segment = 0;       // the latest atomic operation; who did them stands in a table
    uint32_t split_segment = 0;        // when the four bytes of the word got cells of their own, which stand for this one in this launch
};
constexpr uint32_t in_flight = ~uint32_t{0};  // write_segment of the destination of an asynchronous copy

/// One allocation.
struct Region {
    uintptr_t base = 0;
    size_t bytes = 0;
    uint8_t* written = nullptr;  // a bit for each byte
    Cell* cells = nullptr;       // one for each 4 bytes
    Cell* parts = nullptr;       // one for each byte
    uint8_t *read_bytes = nullptr, *written_bytes = nullptr;  // a bit for each byte: of this launch, for the counters
    MemoryKind kind = MemoryKind::device;
    int device = 0;
    bool live = false;
};

/// The shadow of `bytes`: address space whose pages are zero until used.
void make_shadow(Region& region, size_t bytes, bool parts);
void free_shadow(Region& region);

// Addresses of allocations come from one range; a table of its pages says whose they are. Freed ones are not used again soon.
constexpr size_t region_page = 64 << 10;
extern uintptr_t arena_base;
extern size_t arena_bytes;
extern Region** arena_regions;

/// The allocation, live or freed, on whose pages p lies; null: none.
inline Region* find_region(uintptr_t p) { return p - arena_base < arena_bytes ? arena_regions[(p - arena_base) / region_page] : nullptr; }

extern Region shared_region;  // of the block that runs; live = there is one
/// Fresh, unwritten shared memory of `bytes` for a block.
void start_shared_memory(size_t bytes);
void finish_shared_memory();

/// "4 bytes at 0x…, 8 bytes behind the end of an allocation of 400 bytes": what is wrong with an access outside of memory.
std::string describe_address(uintptr_t p);

/// Whether all bytes of [offset, offset + bytes) were written.
bool all_written(const Region& region, size_t offset, size_t bytes);
void set_written(Region& region, size_t offset, size_t bytes, bool value);

// ---- Accesses (accesses.cpp) ---------------------------------------------------------------------------------------------------

/// Places are kept as distances from the program's start.
uint32_t short_place(const void* place);
const void* long_place(uint32_t place);
/// Checks and records an access of `bytes` = 1, 2, 4, 8, 16 by the running thread.
void access(uintptr_t p, unsigned bytes, bool write, const void* place);
[[gnu::noinline]] void endless(Thread& t, const void* place);
/// Each step of a thread that has not waited for others.
inline void count_step(Thread& t) {
    if (--t.accesses < 0) [[unlikely]] endless(t, t.place);
}
/// Forgets the atomic operations of the last launch.
void clear_atomics();

// ---- cp.async (async.cpp) ------------------------------------------------------------------------------------------------------

/// Forgets copies that a thread never waited for; the block has ended.
void abandon_async(Thread& t);

// ---- Counters (counters.cpp) ---------------------------------------------------------------------------------------------------

extern bool counting;  // in this launch
void begin_counting(const LaunchRequest& request);
void end_counting();
void count_access(Thread& t, Region& region, uintptr_t p, unsigned bytes, bool write, const void* place);
/// The lanes of a warp have met (or ended): their accesses since the last time are put together.
void put_together(int warp);

// ---- The host's side (memory.cpp) ----------------------------------------------------------------------------------------------

Region* allocate_region(size_t bytes, MemoryKind kind, int device);
void free_region(Region* region);
/// Device memory is open to this process only between these.
void open_memory();
void close_memory();
/// Bytes allocated on a device.
size_t allocated_bytes(int device);
/// For segment numbers to start again.
void clear_cells();

}  // namespace simt
