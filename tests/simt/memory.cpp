// Allocations of the pretended devices.
//
// Device memory and managed memory come from two ranges of addresses of their own, with a red zone before and behind each allocation. Device
// memory is closed to the whole process (mprotect) from every synchronisation to the next kernel or copy: host code that touches it dies
// with a message.
#include "memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace simt {

uintptr_t arena_base = 0;
size_t arena_bytes = 0;
Region** arena_regions = nullptr;
Region shared_region;

namespace {

constexpr size_t red_zone = 256, page = 4096;
constexpr size_t most_shared = 228 << 10;
constexpr int not_a_number = 0xff;  // the bytes of unwritten memory: NaN as f32 and as bf16

struct Range {
    uintptr_t low = 0, high = 0, next = 0;
};
Range device_range, managed_range;  // the two halves of the arena
bool is_open = false;
std::map<int, size_t> allocated;
std::vector<Region*> regions;       // live ones
std::vector<std::unique_ptr<Region>> all_regions;  // freed ones too: faults name them

void* reserve(size_t bytes, int protection) {
    void* p = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

void make_arena() {
    for (size_t bytes = size_t{1} << 41; bytes >= size_t{1} << 33 && !arena_base; bytes >>= 2) {
        arena_base = reinterpret_cast<uintptr_t>(reserve(bytes, PROT_NONE));
        arena_bytes = bytes;
    }
    if (!arena_base) throw Fault("No address space for the memory of the pretended GPUs");
    const uintptr_t first = (arena_base + region_page - 1) / region_page * region_page, middle = arena_base + arena_bytes / 2;
    arena_bytes -= first - arena_base;
    arena_base = first;
    device_range = {first, middle / region_page * region_page, first};
    managed_range = {device_range.high, arena_base + arena_bytes / region_page * region_page - region_page, device_range.high};
    arena_regions = static_cast<Region**>(reserve(arena_bytes / region_page * sizeof(Region*) + page, PROT_READ | PROT_WRITE));
    if (!arena_regions) throw Fault("No address space for the memory of the pretended GPUs");
}

size_t span_of(size_t bytes) { return (red_zone + bytes + region_page) / region_page * region_page; }

/// Addresses for a span; those of freed allocations are used again only when all others were.
uintptr_t take_addresses(Range& range, size_t span) {
    for (int round = 0; round < 2; round++) {
        for (uintptr_t at = range.next; at + span <= range.high;) {
            uintptr_t blocked = 0;
            for (uintptr_t p = at; p < at + span; p += region_page) {
                const Region* r = find_region(p);
                if (r && r->live) blocked = r->base - red_zone + span_of(r->bytes);
            }
            if (!blocked) {
                range.next = at + span;
                return at;
            }
            at = blocked;
        }
        range.next = range.low;
    }
    throw Fault("The addresses for memory of the pretended GPUs are used up");
}

// ---- Host code in device memory ------------------------------------------------------------------------------------------------

struct sigaction previous_action;

void on_segmentation_fault(int, siginfo_t* info, void*) {
    const uintptr_t p = reinterpret_cast<uintptr_t>(info->si_addr);
    if (p - arena_base < arena_bytes) {
        char text[300];
        const Region* r = find_region(p);
        const int n = r ? std::snprintf(text, sizeof text, "SIMT: host code touches device memory at %p: byte %zd of %s allocation of %zu bytes\n",
                                        info->si_addr, ssize_t(p - r->base), r->live ? "an" : "a freed", r->bytes)
                        : std::snprintf(text, sizeof text, "SIMT: host code touches device memory at %p, where nothing is allocated\n", info->si_addr);
        if (write(2, text, size_t(n)) < 0) return;
    }
    sigaction(SIGSEGV, &previous_action, nullptr);  // the access is repeated, and reported by whoever was there before
}

/// Test frameworks put their own handlers in for each test, so this is repeated.
void catch_segmentation_faults() {
    struct sigaction now;
    sigaction(SIGSEGV, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_segmentation_fault) return;
    previous_action = now;
    struct sigaction mine = {};
    mine.sa_sigaction = on_segmentation_fault;
    mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &mine, nullptr);
}

void protect_device_memory(int protection) {
    if (!arena_base || device_range.next == device_range.low) return;
    mprotect(reinterpret_cast<void*>(device_range.low), device_range.next - device_range.low, protection);
}

}  // namespace

void open_memory() {
    if (!is_open) protect_device_memory(PROT_READ | PROT_WRITE);
    is_open = true;
}
void close_memory() {
    if (is_open) protect_device_memory(PROT_NONE), catch_segmentation_faults();
    is_open = false;
}

// ---- Allocations ---------------------------------------------------------------------------------------------------------------

void make_shadow(Region& r, size_t bytes, bool parts) {
    r.written = static_cast<uint8_t*>(reserve(bytes / 8 + 64, PROT_READ | PROT_WRITE));
    r.cells = static_cast<Cell*>(reserve((bytes / 4 + 8) * sizeof(Cell), PROT_READ | PROT_WRITE));
    r.parts = parts ? static_cast<Cell*>(reserve((bytes + 32) * sizeof(Cell), PROT_READ | PROT_WRITE)) : nullptr;
    if (!r.written || !r.cells || (parts && !r.parts)) throw Fault("No address space for the shadow of an allocation");
}

void free_shadow(Region& r) {
    munmap(r.written, r.bytes / 8 + 64);
    munmap(r.cells, (r.bytes / 4 + 8) * sizeof(Cell));
    if (r.parts) munmap(r.parts, (r.bytes + 32) * sizeof(Cell));
    for (uint8_t* bits : {r.read_bytes, r.written_bytes})
        if (bits) munmap(bits, r.bytes / 8 + 64);
    r.written = r.read_bytes = r.written_bytes = nullptr;
    r.cells = r.parts = nullptr;
}

Region* allocate_region(size_t bytes, MemoryKind kind, int device) {
    if (!arena_base) make_arena();
    Region* r = all_regions.emplace_back(std::make_unique<Region>()).get();
    r->bytes = bytes;
    r->kind = kind;
    r->device = device;
    r->live = true;
    if (kind == MemoryKind::pinned) {
        r->base = reinterpret_cast<uintptr_t>(std::aligned_alloc(page, (bytes + page - 1) / page * page));
    } else {
        const uintptr_t at = take_addresses(kind == MemoryKind::device ? device_range : managed_range, span_of(bytes));
        r->base = at + red_zone;
        make_shadow(*r, bytes, true);
        for (uintptr_t p = at; p < at + span_of(bytes); p += region_page) arena_regions[(p - arena_base) / region_page] = r;
        // What lies there from a freed allocation is dropped.
        madvise(reinterpret_cast<void*>(at), span_of(bytes), MADV_DONTNEED);
        if (kind == MemoryKind::managed) {
            mprotect(reinterpret_cast<void*>(at), span_of(bytes), PROT_READ | PROT_WRITE);
            std::memset(reinterpret_cast<void*>(r->base), not_a_number, bytes);
            set_written(*r, 0, bytes, true);
        } else if (is_open)
            mprotect(reinterpret_cast<void*>(at), span_of(bytes), PROT_READ | PROT_WRITE);
        allocated[device] += bytes;
        catch_segmentation_faults();
    }
    regions.push_back(r);
    return r;
}

void free_region(Region* r) {
    std::erase(regions, r);
    r->live = false;
    if (r->kind == MemoryKind::pinned) return std::free(reinterpret_cast<void*>(r->base));
    allocated[r->device] -= r->bytes;
    free_shadow(*r);
    madvise(reinterpret_cast<void*>(r->base - red_zone), span_of(r->bytes), MADV_DONTNEED);
    mprotect(reinterpret_cast<void*>(r->base - red_zone), span_of(r->bytes), PROT_NONE);
}

size_t allocated_bytes(int device) { return allocated[device]; }

void clear_cells() {
    for (Region* r : regions) {
        if (r->kind == MemoryKind::pinned) continue;
        madvise(r->cells, (r->bytes / 4 + 8) * sizeof(Cell), MADV_DONTNEED);
        madvise(r->parts, (r->bytes + 32) * sizeof(Cell), MADV_DONTNEED);
    }
    if (!shared_region.base) return;
    madvise(shared_region.cells, (most_shared / 4 + 8) * sizeof(Cell), MADV_DONTNEED);
    madvise(shared_region.parts, (most_shared + 32) * sizeof(Cell), MADV_DONTNEED);
}

// ---- What was written ----------------------------------------------------------------------------------------------------------

bool all_written(const Region& r, size_t offset, size_t bytes) {
    size_t i = offset;
    const size_t end = offset + bytes;
    for (; i < end && i % 64; i++)
        if (!(r.written[i / 8] >> i % 8 & 1)) return false;
    for (; i + 64 <= end; i += 64) {
        uint64_t word;
        std::memcpy(&word, r.written + i / 8, 8);
        if (word != ~uint64_t{0}) return false;
    }
    for (; i < end; i++)
        if (!(r.written[i / 8] >> i % 8 & 1)) return false;
    return true;
}

void set_written(Region& r, size_t offset, size_t bytes, bool value) {
    size_t i = offset;
    const size_t end = offset + bytes;
    const auto set = [&] { value ? r.written[i / 8] |= uint8_t(1 << i % 8) : r.written[i / 8] &= uint8_t(~(1 << i % 8)); };
    for (; i < end && i % 8; i++) set();
    if (end > i) std::memset(r.written + i / 8, value ? 255 : 0, (end - i) / 8), i += (end - i) / 8 * 8;
    for (; i < end; i++) set();
}

std::string describe_address(uintptr_t p) {
    const Region* r = find_region(p);
    char hex[32];
    std::snprintf(hex, sizeof hex, "0x%lx", static_cast<unsigned long>(p));
    const std::string at = std::string(hex) + ", ";
    const char* kind = r && r->kind == MemoryKind::managed ? "managed" : "device";
    if (r) {
        const std::string what = std::string(r->live ? "an" : "a freed") + " allocation of " + std::to_string(r->bytes) + " bytes of " + kind + " memory";
        if (p < r->base) return at + std::to_string(r->base - p) + " bytes before " + what;
        if (p < r->base + r->bytes) return at + "byte " + std::to_string(p - r->base) + " of " + what;
        return at + std::to_string(p - r->base - r->bytes) + " bytes behind the end of " + what;
    }
    if (p - shared_region.base < most_shared)
        return at + "byte " + std::to_string(p - shared_region.base) + " of shared memory, of which the launch has " + std::to_string(shared_region.bytes);
    if (p < page) return at + "a null pointer";
    return at + "which is no memory of the device (host memory, or another thread's local variable)";
}

void library_access(const char* who, const void* pointer, size_t bytes, bool write) {
    const uintptr_t p = reinterpret_cast<uintptr_t>(pointer);
    Region* r = find_region(p);
    if (bytes == 0) return;
    if (!r || !r->live || p < r->base || p + bytes > r->base + r->bytes) {
        const bool begins_inside = r && r->live && p >= r->base && p < r->base + r->bytes;
        throw Fault(std::string(who) + (write ? " writes " : " reads ") + std::to_string(bytes) + " bytes at " + describe_address(p) +
                    (begins_inside ? ": more than is left of it" : ""));
    }
    if (write) return set_written(*r, p - r->base, bytes, true);
    if (!all_written(*r, p - r->base, bytes)) throw Fault(std::string(who) + " reads memory that nobody wrote, within " + std::to_string(bytes) + " bytes at " + describe_address(p));
}

void forget(void* pointer, size_t bytes) {
    const uintptr_t p = reinterpret_cast<uintptr_t>(pointer);
    Region* r = find_region(p);
    if (!r || !r->live || p < r->base || p + bytes > r->base + r->bytes) throw Fault("simt::forget: not within an allocation: " + describe_address(p));
    set_written(*r, p - r->base, bytes, false);
    if (r->kind == MemoryKind::managed) std::memset(pointer, not_a_number, bytes);
}

bool written(const void* pointer, size_t bytes) {
    const uintptr_t p = reinterpret_cast<uintptr_t>(pointer);
    const Region* r = find_region(p);
    return r && r->live && p >= r->base && p + bytes <= r->base + r->bytes && all_written(*r, p - r->base, bytes);
}

// ---- Shared memory -------------------------------------------------------------------------------------------------------------

void start_shared_memory(size_t bytes) {
    if (!shared_region.base) {
        char* memory = static_cast<char*>(reserve(most_shared + 2 * page, PROT_READ | PROT_WRITE));
        if (!memory) throw Fault("No memory for shared memory");
        shared_region.base = reinterpret_cast<uintptr_t>(memory) + page;
        make_shadow(shared_region, most_shared, true);
    }
    shared_region.bytes = bytes;
    shared_region.live = true;
    std::memset(shared_region.written, 0, bytes / 8 + 8);
    std::memset(shared_memory(), not_a_number, bytes);
}

void finish_shared_memory() {
    shared_region.live = false;
    shared_region.bytes = 0;
}

void* shared_memory() { return reinterpret_cast<void*>(shared_region.base); }

uint32_t shared_address(const void* p) {
    SIMT_PLACE();
    const uintptr_t offset = reinterpret_cast<uintptr_t>(p) - shared_region.base;
    if (offset >= most_shared) fault("not an address of shared memory: " + describe_address(reinterpret_cast<uintptr_t>(p)));
    return uint32_t(offset) + 1024;
}

}  // namespace simt
