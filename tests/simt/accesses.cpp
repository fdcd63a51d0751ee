// Every access of a kernel to memory is checked here: it lies in memory that the thread may touch, is aligned, reads only what was written,
// and is ordered with what other threads did there.
//
// Order (CUDA programming guide, memory model): blocks are not ordered with each other at all; threads of a block by a barrier of the
// block; lanes of a warp also by __syncwarp with both in the mask. Shuffles, votes, mma and ldmatrix order nothing. Two accesses of
// different threads that are not ordered are a race if one of them writes; atomic operations do not race with each other.
#include <link.h>

#include <bit>
#include <cstring>
#include <unordered_map>

#include "memory.h"
#include "symbols.h"

extern "C" const char __executable_start[];

namespace simt {

uint32_t short_place(const void* place) { return uint32_t(static_cast<const char*>(place) - __executable_start); }
const void* long_place(uint32_t place) { return __executable_start + place; }

namespace {

constexpr uint32_t lane_bits = uint32_t{31} << clock_bits, clock_mask = (uint32_t{1} << clock_bits) - 1;

struct AtomicUse {
    uint32_t segment, who, place;
};
std::unordered_map<const Cell*, std::vector<AtomicUse>> atomic_uses;  // of this launch

// ---- Reports -------------------------------------------------------------------------------------------------------------------

struct Access {
    Thread& thread;
    Region& region;
    uintptr_t address;
    unsigned bytes;
    bool write;
    const void* place;
};

std::string memory_text(const Region& r, uintptr_t p, unsigned bytes) {
    const std::string offset = std::to_string(p - r.base);
    if (&r == &shared_region) return std::to_string(bytes) + " bytes of shared memory at byte " + offset;
    return std::to_string(bytes) + " bytes at byte " + offset + " of an allocation of " + std::to_string(r.bytes);
}

std::string thread_text(uint32_t index) {
    const dim3 b = machine.request->block;
    return "thread " + text_of({index % b.x, index / b.x % b.y, index / b.x / b.y});
}

[[noreturn]] void race(const Access& a, const char* what, uint32_t segment, int64_t index, uint32_t place) {
    const std::string start = std::string(a.write ? "writes " : "reads ") + memory_text(a.region, a.address, a.bytes);
    const std::string other = index < 0 ? "another thread" : thread_text(uint32_t(index));
    if (segment == in_flight)
        fault_at(a.thread, a.place, start + " while an asynchronous copy into it is under way, which " + other + " started at " + source_line(long_place(place)));
    const std::string where = segment >= machine.block_segment ? "" : " of block " + text_of(block_of_segment(segment));
    fault_at(a.thread, a.place, "a race: " + start + ", which " + other + where + " " + what + " at " + source_line(long_place(place)) + " with nothing between that orders them;");
}

[[noreturn]] void write_race(const Access& a, const Cell& c) { race(a, "wrote", c.write_segment, c.write_who >> clock_bits, c.write_place); }

[[noreturn]] void read_race(const Access& a, const Cell& c) {
    const bool latest_is_other = c.read_segment < machine.block_segment || c.read_who >> clock_bits != a.thread.index;
    if (latest_is_other) race(a, "read", c.read_segment, c.read_who >> clock_bits, c.read_place);
    race(a, "read", c.other_block_segment >= machine.launch_segment && &a.region != &shared_region ? c.other_block_segment : machine.segment, -1, c.other_read_place);
}

// ---- Races ---------------------------------------------------------------------------------------------------------------------

/// Whether what thread `who` did in `segment` (of this launch) comes before what t does now.
inline bool ordered(const Thread& t, uint32_t segment, uint32_t who) {
    if (segment != machine.segment) return segment >= machine.block_segment && segment < machine.segment;
    const uint32_t index = who >> clock_bits;
    return index == t.index || (index / 32 == t.index / 32 && ordered_in_warp(t, index % 32, who & clock_mask));
}

/// Whether t comes after all reads that the cell knows of; `first` is the first segment that counts.
inline bool after_reads(const Thread& t, const Cell& c, uint32_t first) {
    if (c.read_segment < first) return true;
    if (c.read_segment < machine.block_segment || c.other_block_segment >= first) return false;
    if (c.read_segment != machine.segment) return true;
    if (c.read_warps & ~t.warp_bit) return false;
    for (uint32_t lanes = c.read_lanes & ~t.bit; lanes; lanes &= lanes - 1)
        if (!ordered_in_warp(t, uint32_t(std::countr_zero(lanes)), c.read_who & clock_mask)) return false;
    return true;
}

void record_read(const Thread& t, Cell& c, uint32_t first, uint32_t place) {
    if (c.read_segment != machine.segment) {
        if (c.read_segment >= first && c.read_segment < machine.block_segment) c.other_block_segment = c.read_segment, c.other_read_place = c.read_place;
        c.read_segment = machine.segment;
        c.read_lanes = c.read_warps = 0;
    } else if (c.read_who >> clock_bits != t.index) c.other_read_place = c.read_place;
    const bool same_clock = ((c.read_who ^ t.who) & ~lane_bits) == 0;
    if (!same_clock && c.read_lanes) {
        // Reads of the same warp before a __syncwarp that this thread took part in come before this read: it stands for them.
        bool earlier = true;
        if (c.read_who >> (clock_bits + 5) == t.index / 32)
            for (uint32_t lanes = c.read_lanes & ~t.bit; lanes; lanes &= lanes - 1)
                earlier = earlier && ordered_in_warp(t, uint32_t(std::countr_zero(lanes)), c.read_who & clock_mask);
        if (earlier) c.read_lanes = 0;
    }
    c.read_who = t.who;
    c.read_place = place;
    c.read_lanes |= t.bit;
    c.read_warps |= t.warp_bit;
}

inline void touch(const Access& a, Cell& c, uint32_t first, uint32_t place) {
    const Thread& t = a.thread;
    if (!a.write && c.read_segment == machine.segment && c.read_who == t.who) return;
    if (c.write_segment >= first && !ordered(t, c.write_segment, c.write_who)) [[unlikely]] write_race(a, c);
    if (!a.write) return record_read(t, c, first, place);
    if (!after_reads(t, c, first)) [[unlikely]] read_race(a, c);
    c.write_segment = machine.segment;
    c.write_who = t.who;
    c.write_place = place;
}

void check_atomics(const Access& a, const Cell& c, uint32_t first) {
    for (const AtomicUse& use : atomic_uses[&c])
        if (use.segment >= first && !ordered(a.thread, use.segment, use.who)) race(a, "changed atomically", use.segment, use.who >> clock_bits, use.place);
}

/// Gives the bytes of a word cells of their own.
void split(Region& r, size_t word, uint32_t first) {
    Cell& c = r.cells[word];
    if (c.split_segment >= first) return;
    for (size_t i = 0; i < 4; i++) r.parts[4 * word + i] = c;
    c.split_segment = machine.segment;
}

/// Part of a word, or a word whose bytes have their own cells.
void touch_bytes(const Access& a, size_t offset, unsigned bytes, uint32_t first, uint32_t place) {
    split(a.region, offset / 4, first);
    for (size_t i = offset; i < offset + bytes; i++) touch(a, a.region.parts[i], first, place);
}

inline uint32_t first_segment(const Region& r) { return &r == &shared_region ? machine.block_segment : machine.launch_segment; }

inline void touch_all(const Access& a) {
    const uint32_t first = first_segment(a.region), place = short_place(a.place);
    const size_t offset = a.address - a.region.base;
    for (size_t at = offset; at < offset + a.bytes; at += 4) {
        Cell& c = a.region.cells[at / 4];
        if (c.atomic_segment >= first) [[unlikely]] check_atomics(a, c, first);
        if (a.bytes < 4 || c.split_segment >= first) touch_bytes(a, at, std::min(a.bytes, 4u), first, place);
        else touch(a, c, first, place);
    }
}

// ---- Bounds --------------------------------------------------------------------------------------------------------------------

struct Range {
    uintptr_t low, high;
};

/// Memory of the program that never changes: constants, tables.
const std::vector<Range>& constant_ranges() {
    static std::vector<Range> ranges;
    if (!ranges.empty()) return ranges;
    dl_iterate_phdr([](dl_phdr_info* info, size_t, void*) {
        for (int i = 0; i < info->dlpi_phnum; i++) {
            const auto& h = info->dlpi_phdr[i];
            if ((h.p_type == PT_LOAD && !(h.p_flags & PF_W)) || h.p_type == PT_GNU_RELRO)
                ranges.push_back({info->dlpi_addr + h.p_vaddr, info->dlpi_addr + h.p_vaddr + h.p_memsz});
        }
        return 0;
    }, nullptr);
    return ranges;
}

[[gnu::noinline]] void outside(Thread& t, uintptr_t p, size_t bytes, bool write, const void* place) {
    if (!write) {
        if (p - machine.parameters_low < machine.parameters_bytes) return;
        for (const Range& r : constant_ranges())
            if (p >= r.low && p + bytes <= r.high) return;
    }
    const Region* r = find_region(p);
    std::string what = std::string(write ? "writes " : "reads ") + std::to_string(bytes) + " bytes out of bounds: " + describe_address(p);
    if (r && r->live && r->device != machine.request->device && r->kind == MemoryKind::device) what += ", which is on another device";
    fault_at(t, place, what);
}

inline bool usable(const Region& r) { return r.live && (r.kind == MemoryKind::managed || r.device == machine.request->device); }

/// The region of an access; null: it needs no more checks.
inline Region* locate(Thread& t, uintptr_t p, size_t bytes, bool write, const void* place) {
    if (p - shared_region.base < shared_region.bytes) {
        if (p + bytes <= shared_region.base + shared_region.bytes) return &shared_region;
    } else {
        Region* r = find_region(p);
        if (r && p - r->base < r->bytes && p - r->base + bytes <= r->bytes && usable(*r)) return r;
    }
    outside(t, p, bytes, write, place);
    return nullptr;
}

inline bool is_written(const Region& r, size_t offset, unsigned bytes) {
    const uint8_t* bits = r.written + offset / 8;
    if (bytes == 16) return bits[0] == 255 && bits[1] == 255;
    const unsigned mask = (1u << bytes) - 1;
    return (unsigned(*bits) >> offset % 8 & mask) == mask;
}
inline void mark_written(Region& r, size_t offset, unsigned bytes) {
    uint8_t* bits = r.written + offset / 8;
    if (bytes == 16) bits[0] = bits[1] = 255;
    else *bits |= uint8_t(((1u << bytes) - 1) << offset % 8);
}

[[gnu::noinline]] void unwritten(const Access& a) {
    suspect(a.thread, a.place, "reads memory that nobody wrote: " + memory_text(a.region, a.address, a.bytes));
}
[[gnu::noinline]] void misaligned(Thread& t, uintptr_t p, unsigned bytes, bool write, const void* place) {
    watched = nullptr;
    fault_at(t, place, std::string(write ? "writes " : "reads ") + std::to_string(bytes) + " bytes misaligned: the address is " + std::to_string(p % bytes) +
             " behind a multiple of " + std::to_string(bytes));
}

inline void check_memory(Thread& t, uintptr_t p, unsigned bytes, bool write, const void* place) {
    Region* r = locate(t, p, bytes, write, place);
    if (!r) return;
    const Access a{t, *r, p, bytes, write, place};
    touch_all(a);
    if (write) mark_written(*r, p - r->base, bytes);
    else if (!is_written(*r, p - r->base, bytes)) [[unlikely]] unwritten(a);
    if (counting) [[unlikely]] count_access(t, *r, p, bytes, write, place);
}

inline void check(Thread& t, uintptr_t p, unsigned bytes, bool write, const void* place) {
    if (--t.accesses < 0) [[unlikely]] endless(t, place);
    if (p % bytes != 0) [[unlikely]] misaligned(t, p, bytes, write, place);
    if (p - t.stack_low < t.stack_bytes) return;
    Thread* const before = watched;
    watched = nullptr;
    check_memory(t, p, bytes, write, place);
    watched = before;
}

/// Any number of bytes at any address, as single aligned accesses of at most 4.
[[gnu::noinline]] void check_range(Thread& t, uintptr_t p, size_t bytes, bool write, const void* place) {
    if (p - t.stack_low < t.stack_bytes) return;
    for (const uintptr_t end = p + bytes; p < end;) {
        const unsigned piece = p % 4 == 0 && end - p >= 4 ? 4 : p % 2 == 0 && end - p >= 2 ? 2 : 1;
        check(t, p, piece, write, place);
        p += piece;
    }
}

}  // namespace

void endless(Thread& t, const void* place) {
    watched = nullptr;
    fault_at(t, place, "an endless loop? " + std::to_string(machine.request->options.most_accesses) + " accesses without waiting for others");
}

void access(uintptr_t p, unsigned bytes, bool write, const void* place) { check(*running, p, bytes, write, place); }

void check_access(const void* p, size_t bytes, bool write) { check(*running, reinterpret_cast<uintptr_t>(p), unsigned(bytes), write, running->place); }

void load(void* to, const void* p, int bytes) {
    SIMT_PLACE();
    check_access(p, size_t(bytes), false);
    std::memcpy(to, p, size_t(bytes));
}
void store(void* p, const void* from, int bytes) {
    SIMT_PLACE();
    check_access(p, size_t(bytes), true);
    std::memcpy(p, from, size_t(bytes));
}

// ---- Atomic operations ---------------------------------------------------------------------------------------------------------

void clear_atomics() { atomic_uses.clear(); }

namespace {

void touch_atomically(Thread& t, Region& r, uintptr_t p, unsigned bytes) {
    const uint32_t first = first_segment(r);
    const Access a{t, r, p, bytes, true, t.place};
    for (size_t at = p - r.base; at < p - r.base + bytes; at += 4) {
        Cell& c = r.cells[at / 4];
        for (size_t i = 0; i < (c.split_segment >= first ? 4u : 1u); i++) {
            const Cell& part = c.split_segment >= first ? r.parts[at + i] : c;
            if (part.write_segment >= first && !ordered(t, part.write_segment, part.write_who)) write_race(a, part);
            if (!after_reads(t, part, first)) read_race(a, part);
        }
        c.atomic_segment = machine.segment;
        atomic_uses[&c].push_back({machine.segment, t.who, short_place(t.place)});
    }
}

uint64_t apply(AtomicOperation operation, bool is_signed, uint64_t old, uint64_t x, uint64_t compare) {
    const bool less = is_signed ? int64_t(x) < int64_t(old) : x < old;
    switch (operation) {
        case AtomicOperation::add: return old + x;
        case AtomicOperation::min: return less ? x : old;
        case AtomicOperation::max: return less ? old : x;
        case AtomicOperation::bit_and: return old & x;
        case AtomicOperation::bit_or: return old | x;
        case AtomicOperation::bit_xor: return old ^ x;
        case AtomicOperation::exchange: return x;
        default: return old == compare ? x : old;
    }
}

}  // namespace

uint64_t atomic(AtomicOperation operation, void* pointer, int bytes, bool is_signed, uint64_t value, uint64_t compare) {
    SIMT_PLACE();
    Thread& t = *running;
    const uintptr_t p = reinterpret_cast<uintptr_t>(pointer);
    count_step(t);
    if (p % unsigned(bytes)) misaligned(t, p, unsigned(bytes), true, t.place);
    Region* r = locate(t, p, size_t(bytes), true, t.place);
    if (!is_written(*r, p - r->base, unsigned(bytes))) unwritten({t, *r, p, unsigned(bytes), false, t.place});
    touch_atomically(t, *r, p, unsigned(bytes));
    if (counting) count_access(t, *r, p, unsigned(bytes), false, t.place), count_access(t, *r, p, unsigned(bytes), true, t.place);
    uint64_t old = 0;
    std::memcpy(&old, pointer, size_t(bytes));
    if (is_signed) old = uint64_t(int64_t(int32_t(old)));
    const uint64_t now = apply(operation, is_signed, old, value, compare);
    std::memcpy(pointer, &now, size_t(bytes));
    return old;
}

}  // namespace simt

// ---- What the compiler calls ---------------------------------------------------------------------------------------------------

using simt::watched;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define SIMT_HOOK(name, n, write)                                                                                         \
    void __tsan_##name##n(void* p) {                                                                                      \
        if (watched) simt::check(*watched, reinterpret_cast<uintptr_t>(p), n, write, __builtin_return_address(0));        \
    }                                                                                                                     \
    void __tsan_unaligned_##name##n(void* p) {                                                                            \
        if (watched) simt::check_range(*watched, reinterpret_cast<uintptr_t>(p), n, write, __builtin_return_address(0));  \
    }
SIMT_HOOK(read, 1, false) SIMT_HOOK(read, 2, false) SIMT_HOOK(read, 4, false) SIMT_HOOK(read, 8, false) SIMT_HOOK(read, 16, false)
SIMT_HOOK(write, 1, true) SIMT_HOOK(write, 2, true) SIMT_HOOK(write, 4, true) SIMT_HOOK(write, 8, true) SIMT_HOOK(write, 16, true)
#undef SIMT_HOOK
void __tsan_read_range(void* p, size_t n) {
    if (watched) simt::check_range(*watched, reinterpret_cast<uintptr_t>(p), n, false, __builtin_return_address(0));
}
void __tsan_write_range(void* p, size_t n) {
    if (watched) simt::check_range(*watched, reinterpret_cast<uintptr_t>(p), n, true, __builtin_return_address(0));
}

// What cuda_runtime.h makes of memcpy and its kind.
void* simt_memcpy(void* to, const void* from, size_t n) {
    if (watched) simt::check_range(*watched, reinterpret_cast<uintptr_t>(from), n, false, __builtin_return_address(0));
    if (watched) simt::check_range(*watched, reinterpret_cast<uintptr_t>(to), n, true, __builtin_return_address(0));
    return std::memcpy(to, from, n);
}
void* simt_memmove(void* to, const void* from, size_t n) {
    if (watched) simt::check_range(*watched, reinterpret_cast<uintptr_t>(from), n, false, __builtin_return_address(0));
    if (watched) simt::check_range(*watched, reinterpret_cast<uintptr_t>(to), n, true, __builtin_return_address(0));
    return std::memmove(to, from, n);
}
void* simt_memset(void* p, int value, size_t n) {
    if (watched) simt::check_range(*watched, reinterpret_cast<uintptr_t>(p), n, true, __builtin_return_address(0));
    return std::memset(p, value, n);
}

// std::atomic and the counts of shared_ptr: host code.
#define SIMT_ATOMICS(bits, T)                                                                                                       \
    T __tsan_atomic##bits##_load(const volatile T* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }                         \
    void __tsan_atomic##bits##_store(volatile T* p, T x, int) { __atomic_store_n(p, x, __ATOMIC_SEQ_CST); }                         \
    T __tsan_atomic##bits##_exchange(volatile T* p, T x, int) { return __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST); }               \
    T __tsan_atomic##bits##_fetch_add(volatile T* p, T x, int) { return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST); }               \
    T __tsan_atomic##bits##_fetch_sub(volatile T* p, T x, int) { return __atomic_fetch_sub(p, x, __ATOMIC_SEQ_CST); }               \
    T __tsan_atomic##bits##_fetch_and(volatile T* p, T x, int) { return __atomic_fetch_and(p, x, __ATOMIC_SEQ_CST); }               \
    T __tsan_atomic##bits##_fetch_or(volatile T* p, T x, int) { return __atomic_fetch_or(p, x, __ATOMIC_SEQ_CST); }                 \
    T __tsan_atomic##bits##_fetch_xor(volatile T* p, T x, int) { return __atomic_fetch_xor(p, x, __ATOMIC_SEQ_CST); }               \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T x, int, int) {                                  \
        return __atomic_compare_exchange_n(p, expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                              \
    }                                                                                                                               \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T x, int, int) {                                    \
        return __atomic_compare_exchange_n(p, expected, x, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                               \
    }
SIMT_ATOMICS(8, uint8_t) SIMT_ATOMICS(16, uint16_t) SIMT_ATOMICS(32, uint32_t) SIMT_ATOMICS(64, uint64_t)
#undef SIMT_ATOMICS
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
