// Memory that kernels may touch: allocations of the device and the block's shared memory, each with its shadow: which bytes were written,
// and who touched them last.
#pragma once
#include "internal.h"

namespace simt {

/// Who touched a word (or a byte) in the launch that runs. A segment from before the launch means nobody.
struct Cell {
    uint32_t write_segment = 0, write_who = 0, write_place = 0;
    // The reads of the latest segment: the lanes of the latest warp, and all warps.
    uint32_t read_segment = 0, read_key = 0, read_lanes = 0, read_warps = 0, read_place = 0;
    uint32_t other_block_segment = 0;  // a read by another block than that of read_segment
    uint32_t other_read_place = 0;     // the latest read by another thread than the latest reader
    uint32_t read_index = 0;           // of the latest reader
    uint32_t split_segment = 0;        // in this segment the four bytes got cells of their own, which replace this one in this launch
};

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

/// "4 bytes at 0x…, 8 bytes behind the end of an allocation of 400 bytes": what is wrong with an access outside of memory.
std::string describe_address(uintptr_t p);

/// Whether all bytes of [offset, offset + bytes) were written.
bool all_written(const Region& region, size_t offset, size_t bytes);
void set_written(Region& region, size_t offset, size_t bytes, bool value);

// Of the host's runtime.
Region* allocate_region(size_t bytes, MemoryKind kind, int device);
void free_region(Region* region);
/// Opens device memory to this process while it lives; nests.
struct OpenMemory {
    OpenMemory();
    ~OpenMemory();
};
/// Bytes allocated on a device.
size_t allocated_bytes(int device);
/// For segment numbers to start again.
void clear_cells();

}  // namespace simt
