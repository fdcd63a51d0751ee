// The scheduler: blocks one after the other, the threads of a block as fibers that run until they wait. Barriers, warp-wide instructions
// and who may still reach them.
#include <boost/context/detail/fcontext.hpp>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>

#include "memory.h"
#include "symbols.h"

// AddressSanitizer wants to know which stack runs; without it these are null.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, size_t* size);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, size_t);
__attribute__((weak)) void __lsan_disable();
__attribute__((weak)) void __lsan_enable();
// Operations of NCCL whose peers never came, in tests of that fault, refer to one another.
const char* __lsan_default_suppressions() { return "leak:tests/simt/nccl.cpp\n"; }
}

namespace simt {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constinit thread_local Thread* running = nullptr;
constinit thread_local Thread* watched = nullptr;
Machine machine;

namespace {

constexpr int most_threads = 1024, most_warps = 32;
constexpr size_t stack_bytes = 128 << 10, page = 4096;

/// Lanes that have arrived at a warp-wide instruction.
struct Group {
    uint32_t mask = 0, arrived = 0;
    bool is_syncwarp = false;  // orders memory; lanes that have left the kernel need not come
    const char* instruction = nullptr;
    const void* place = nullptr;
    void* mine[32];
};

}  // namespace

struct Warp {
    uint32_t exists = 0, alive = 0, runnable = 0;
    uint32_t clock = 0;       // syncwarps so far in this segment
    uint32_t all_synced = 0;  // the clock after the last one of all its lanes
    bool part_synced = false;
    std::array<std::array<uint32_t, 32>, 32> seen{};  // [lane][other]: what lane did before this clock is visible to other
    int groups = 0;
    std::array<Group, 32> group;
    int first = 0;            // index of lane 0 in the block
};

namespace {

// ---- The state of the machine --------------------------------------------------------------------------------------------------

struct Block {
    int threads = 0, warps = 0, alive = 0;
    uint32_t runnable_warps = 0;
    int arrived = 0;  // at the barrier
    int predicates = 0;
    int result_count = 0, result_arrived = 0;
    const void* barrier_place = nullptr;
    int barrier_kind = 0;
};

std::array<Thread, most_threads> threads;
std::array<Warp, most_warps> warps;
Block block;
void* scheduler_context = nullptr;
const void* host_stack = nullptr;
size_t host_stack_bytes = 0;
bool faulted = false;
std::string fault_text;
std::string suspicion;  // the fault of this block unless a race explains it
std::vector<uint32_t> block_order;
std::vector<uint32_t> segments_of_blocks;  // first segment of the blocks that have started, ascending

struct Random {
    uint64_t state;
    uint64_t next() {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
    }
} rng{0};

/// One of the set bits, each as likely.
int pick_bit(uint32_t bits) {
    uint64_t random = rng.next();
    for (int tries = 0; tries < 6; tries++, random >>= 5)
        if (bits >> (random & 31) & 1) return int(random & 31);
    for (uint64_t skip = (random & 0xffffffffu) * uint64_t(std::popcount(bits)) >> 32; skip > 0; skip--) bits &= bits - 1;
    return std::countr_zero(bits);
}

// ---- Fibers --------------------------------------------------------------------------------------------------------------------

void make_stacks() {
    const size_t each = stack_bytes + page;
    char* memory = static_cast<char*>(mmap(nullptr, each * most_threads, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory == MAP_FAILED) throw Fault("No memory for the stacks of the threads");
    for (int i = 0; i < most_threads; i++) {
        char* low = memory + size_t(i) * each + page;
        mprotect(low, stack_bytes, PROT_READ | PROT_WRITE);
        threads[size_t(i)].stack_low = reinterpret_cast<uintptr_t>(low);
        // Stacks that start at the same place of a page would share the same few lines of the caches.
        threads[size_t(i)].stack_bytes = stack_bytes - size_t(i % 56) * 64;
        threads[size_t(i)].index = uint32_t(i);
    }
}

// A fiber that ends leaves these two frames behind, and the next one on the stack must not find guards in them.
#define NO_GUARDS __attribute__((no_sanitize_address))

/// Leaves the running fiber for the scheduler.
NO_GUARDS void leave(bool for_ever) {
    Thread* self = running;
    void* fake = nullptr;
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake, host_stack, host_stack_bytes);
    const transfer_t back = jump_fcontext(scheduler_context, self);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake, &host_stack, &host_stack_bytes);
    scheduler_context = back.fctx;
}

void thread_exits(Thread& t);

NO_GUARDS void fiber(transfer_t from) {
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(nullptr, &host_stack, &host_stack_bytes);
    scheduler_context = from.fctx;
    bool thrown = false;
    watched = running;
    try {
        machine.request->call(machine.request->parameters.get());
    } catch (...) {
        thrown = true;
    }
    watched = nullptr;
    if (thrown) fault("an exception was thrown in the kernel");
    thread_exits(*running);
    leave(true);
}

/// Runs t until it waits, ends or faults.
void resume(Thread& t) {
    running = &t;
    t.accesses = machine.request->options.most_accesses;
    void* fake = nullptr;
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&fake, reinterpret_cast<void*>(t.stack_low), t.stack_bytes);
    if (__lsan_disable) __lsan_disable();  // what a fiber owns when a fault ends it is lost
    const transfer_t back = jump_fcontext(t.context, &t);
    if (__lsan_enable) __lsan_enable();
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
    t.context = back.fctx;
    running = nullptr;
}

void make_runnable(Warp& w, uint32_t lanes) {
    w.runnable |= lanes;
    if (w.runnable) block.runnable_warps |= 1u << (&w - warps.data());
}

void wait(Thread& t, Wait why, const char* what) {
    t.wait = why;
    t.waits_for = what;
    leave(false);
    t.wait = Wait::none;
}

// ---- Faults --------------------------------------------------------------------------------------------------------------------

std::string lanes_text(uint32_t mask) {
    char hex[16];
    std::snprintf(hex, sizeof hex, "0x%08x", mask);
    return hex;
}

/// Where each thread that has started is, in groups of the same state.
std::string who_waits() {
    struct Kind { Wait wait; const void* place; const char* what; int count; const Thread* first; };
    std::vector<Kind> kinds;
    for (int i = 0; i < block.threads; i++) {
        const Thread& t = threads[size_t(i)];
        const void* place = t.wait == Wait::exited ? nullptr : t.place;
        Kind* found = nullptr;
        for (Kind& k : kinds)
            if (k.wait == t.wait && k.place == place) found = &k;
        if (found) found->count++;
        else kinds.push_back({t.wait, place, t.waits_for, 1, &t});
    }
    std::string s;
    for (const Kind& k : kinds) {
        s += s.empty() ? "" : "; ";
        s += std::to_string(k.count) + (k.count == 1 ? " thread" : " threads") + " (first: " + text_of(k.first->id) + ") ";
        if (k.wait == Wait::exited) s += "left the kernel";
        else if (k.wait == Wait::none) s += "not waiting";
        else s += std::string("in ") + k.what + " at " + source_line(k.place);
    }
    return s;
}

std::string located(const Thread& t, const void* place, const std::string& what) {
    return kernel_name(machine.request->kernel) + ": " + what + " at " + source_line(place) + ", block " + text_of(machine.block) + ", thread " + text_of(t.id);
}

}  // namespace

void suspect(const Thread& t, const void* place, const std::string& what) {
    if (suspicion.empty()) suspicion = located(t, place, what);
}

void fault_at(const Thread& t, const void* place, const std::string& what) {
    watched = nullptr;
    if (!suspicion.empty() && !what.starts_with("a race")) fault_text = suspicion;  // what followed from it does not matter
    else fault_text = located(t, place, what);
    faulted = true;
    leave(true);
    std::abort();
}

void fault(const std::string& what) {
    if (!running) throw Fault(what);
    fault_at(*running, running->place, what);
}

void trap() {
    SIMT_PLACE();
    fault("the kernel stopped itself (trap)");
}

bool in_kernel() { return running != nullptr; }
int lane() { return running->lane; }
const Options& launch_options() { return machine.request->options; }
uint3 thread_index() noexcept { return running->id; }
uint3 block_index() noexcept { return machine.block; }

}  // namespace simt

uint3 simt_block_size() noexcept { return {simt::machine.request->block.x, simt::machine.request->block.y, simt::machine.request->block.z}; }
uint3 simt_grid_size() noexcept { return {simt::machine.request->grid.x, simt::machine.request->grid.y, simt::machine.request->grid.z}; }

namespace simt {

// ---- Order ---------------------------------------------------------------------------------------------------------------------

namespace {

void set_clock(Warp& w, uint32_t clock) {
    w.clock = clock;
    for (uint32_t lanes = w.exists; lanes; lanes &= lanes - 1) {
        Thread& t = threads[size_t(w.first + std::countr_zero(lanes))];
        t.who = t.index << clock_bits | clock;
    }
}

void next_segment() {
    machine.segment++;
    for (int i = 0; i < block.warps; i++) {
        Warp& w = warps[size_t(i)];
        w.all_synced = 0;
        if (w.part_synced) w.seen = {}, w.part_synced = false;
        if (w.clock != 0) set_clock(w, 0);
    }
}

/// The lanes of `mask` have met: what each did, or has seen, is now visible to all of them.
void order_lanes(Warp& w, uint32_t mask) {
    if (block.warps == 1 && mask == w.alive) return next_segment();
    const uint32_t clock = w.clock + 1;
    if (clock >> clock_bits) fault("too many __syncwarp without a barrier of the block");
    if (mask == w.alive) w.all_synced = clock;
    else {
        w.part_synced = true;
        for (int lane = 0; lane < 32; lane++) {
            uint32_t most = mask >> lane & 1 ? clock : 0;
            for (uint32_t m = mask; m; m &= m - 1) most = std::max(most, w.seen[size_t(lane)][size_t(std::countr_zero(m))]);
            for (uint32_t m = mask; m; m &= m - 1) w.seen[size_t(lane)][size_t(std::countr_zero(m))] = most;
        }
    }
    set_clock(w, clock);
}

}  // namespace

bool ordered_in_warp(const Thread& later, uint32_t earlier_lane, uint32_t clock) {
    const Warp& w = *later.warp;
    return clock < w.all_synced || (w.part_synced && clock < w.seen[earlier_lane][size_t(later.lane)]);
}

uint3 block_of_segment(uint32_t segment) {
    const auto after = std::upper_bound(segments_of_blocks.begin(), segments_of_blocks.end(), segment);
    const uint32_t n = block_order[size_t(after - segments_of_blocks.begin()) - 1];
    const dim3 g = machine.request->grid;
    return {n % g.x, n / g.x % g.y, n / g.x / g.y};
}

// ---- Barriers of the block -----------------------------------------------------------------------------------------------------

namespace {

void release_barrier() {
    block.result_count = block.predicates;
    block.result_arrived = block.arrived;
    block.arrived = block.predicates = 0;
    next_segment();
    for (int i = 0; counting && i < block.warps; i++) put_together(i);
    for (int i = 0; i < block.warps; i++) make_runnable(warps[size_t(i)], warps[size_t(i)].alive);
}

}  // namespace

int barrier(int predicate, int kind) {
    SIMT_PLACE();
    static const char* const names[] = {"__syncthreads", "__syncthreads_or", "__syncthreads_and", "__syncthreads_count"};
    Thread& t = *running;
    count_step(t);
    if (block.arrived == 0) block.barrier_place = t.place, block.barrier_kind = kind;
    else if (block.barrier_kind != kind || !same_source(block.barrier_place, t.place))
        fault(std::string(names[kind]) + " in divergent code (other threads of the block wait in " + names[block.barrier_kind] + " at " +
              source_line(block.barrier_place) + ")");
    block.arrived++;
    block.predicates += predicate != 0;
    if (block.arrived == block.alive) {
        release_barrier();
        t.warp->runnable &= ~t.bit;  // it goes on at once
    } else
        wait(t, Wait::barrier, names[kind]);
    switch (kind) {
        case 1: return block.result_count != 0;
        case 2: return block.result_count == block.result_arrived;
        default: return block.result_count;
    }
}

// ---- Warp-wide instructions ----------------------------------------------------------------------------------------------------

namespace {

/// The group that t joins; a new one if it is the first.
Group& join(Thread& t, const char* instruction, uint32_t mask) {
    Warp& w = *t.warp;
    if (!(mask & t.bit)) fault(std::string(instruction) + ": lane " + std::to_string(t.lane) + " is not in its own mask " + lanes_text(mask));
    for (int i = 0; i < w.groups; i++) {
        Group& g = w.group[size_t(i)];
        if (g.mask == mask && (g.instruction == instruction || !std::strcmp(g.instruction, instruction)) && same_source(g.place, t.place)) return g;
        // A lane that t is going to wait for waits for t elsewhere.
        if ((g.mask & t.bit) && (g.arrived & mask))
            fault(std::string(instruction) + " with mask " + lanes_text(mask) + " (lane " + std::to_string(std::countr_zero(g.arrived & mask)) + " waits in " +
                  g.instruction + " with mask " + lanes_text(g.mask) + " at " + source_line(g.place) + ")");
    }
    Group& g = w.group[size_t(w.groups++)];
    g.mask = mask;
    g.arrived = 0;
    g.instruction = instruction;
    g.place = t.place;
    return g;
}

void require_alive(const Thread& t, const char* instruction, uint32_t mask) {
    const uint32_t missing = mask & ~t.warp->alive;
    if (missing)
        fault(std::string(instruction) + " names lanes that have left the kernel or do not exist: " + lanes_text(missing) + " of mask " + lanes_text(mask));
}

/// All have come: run(lanes), and all but the one that runs become runnable.
void complete(Warp& w, Group& g, void (*run)(void* const*)) {
    const uint32_t arrived = g.arrived;
    if (run) {
        for (uint32_t absent = ~arrived; absent; absent &= absent - 1) g.mine[std::countr_zero(absent)] = nullptr;
        run(g.mine);
    }
    if (g.is_syncwarp) order_lanes(w, arrived);
    if (counting && arrived == w.alive) put_together(int(&w - warps.data()));
    if (&g != &w.group[size_t(w.groups - 1)]) g = w.group[size_t(w.groups - 1)];
    w.groups--;
    make_runnable(w, arrived & ~running->bit);
}

void collective(const char* instruction, uint32_t mask, void* mine, void (*run)(void* const*), bool is_syncwarp) {
    Thread& t = *running;
    count_step(t);
    if (!is_syncwarp && (mask & ~t.warp->alive)) require_alive(t, instruction, mask);
    Group& g = join(t, instruction, mask);
    g.is_syncwarp = is_syncwarp;
    g.mine[t.lane] = mine;
    g.arrived |= t.bit;
    if (g.arrived == (is_syncwarp ? mask & t.warp->alive : mask)) complete(*t.warp, g, run);
    else wait(t, Wait::collective, instruction);
}

struct Operand {
    uint64_t value, result;
    WarpOperation operation;
    int argument, width;
    int absent_source;  // ≥ 0: reads from this lane, which is not there
};

/// The lane that a shuffle reads; −1: its own value (PTX: shfl.sync).
int shuffle_source(WarpOperation operation, int lane, int argument, int width) {
    const int segment_mask = ~(width - 1) & 31, first = lane & segment_mask, last = first | (~segment_mask & 31);
    switch (operation) {
        case WarpOperation::shuffle: return first | (argument & ~segment_mask & 31);
        case WarpOperation::shuffle_up: { const int j = lane - (argument & 31); return j >= first ? j : -1; }
        case WarpOperation::shuffle_down: { const int j = lane + (argument & 31); return j <= last ? j : -1; }
        default: { const int j = lane ^ (argument & 31); return j <= last ? j : -1; }
    }
}

void shuffle_lanes(void* const* lanes) {
    for (int lane = 0; lane < 32; lane++) {
        Operand* o = static_cast<Operand*>(lanes[lane]);
        if (!o) continue;
        const int source = shuffle_source(o->operation, lane, o->argument, o->width);
        o->absent_source = source >= 0 && !lanes[source] ? source : -1;
        o->result = source < 0 || !lanes[source] ? o->value : static_cast<Operand*>(lanes[source])->value;
    }
}

uint64_t combine(WarpOperation operation, uint64_t a, uint64_t b) {
    const uint32_t x = uint32_t(a), y = uint32_t(b);
    switch (operation) {
        case WarpOperation::add: return x + y;
        case WarpOperation::min_signed: return uint32_t(std::min(int32_t(x), int32_t(y)));
        case WarpOperation::max_signed: return uint32_t(std::max(int32_t(x), int32_t(y)));
        case WarpOperation::min_unsigned: return std::min(x, y);
        case WarpOperation::max_unsigned: return std::max(x, y);
        case WarpOperation::bit_and: case WarpOperation::all: return x & y;
        case WarpOperation::bit_xor: return x ^ y;
        default: return x | y;
    }
}

void reduce_lanes(void* const* lanes) {
    uint64_t total = 0;
    bool first = true;
    for (int lane = 0; lane < 32; lane++) {
        if (!lanes[lane]) continue;
        const Operand& o = *static_cast<Operand*>(lanes[lane]);
        const uint64_t x = o.operation == WarpOperation::ballot ? o.value << lane : o.value;
        total = first ? x : combine(o.operation, total, x);
        first = false;
    }
    for (int lane = 0; lane < 32; lane++)
        if (lanes[lane]) static_cast<Operand*>(lanes[lane])->result = total;
}

constexpr const char* operation_names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync",
                                           "__any_sync", "__all_sync", "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
                                           "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync", "__reduce_xor_sync"};

}  // namespace

namespace {

void thread_exits(Thread& t) {
    Warp& w = *t.warp;
    t.wait = Wait::exited;
    w.alive &= ~t.bit;
    block.alive--;
    for (int i = w.groups - 1; i >= 0; i--) {
        Group& g = w.group[size_t(i)];
        if (g.is_syncwarp && g.arrived == (g.mask & w.alive)) complete(w, g, nullptr);
        else if (!g.is_syncwarp && (g.mask & t.bit))
            fault_at(t, g.place, "lane " + std::to_string(t.lane) + " left the kernel while others wait for it in " + g.instruction + " with mask " + lanes_text(g.mask));
    }
    if (block.arrived > 0 && block.arrived == block.alive) release_barrier();
}

}  // namespace

uint64_t warp_operation(WarpOperation operation, uint32_t mask, uint64_t value, int argument, int width) {
    SIMT_PLACE();
    const char* name = operation_names[int(operation)];
    if (width < 1 || width > 32 || (width & (width - 1))) fault(std::string(name) + ": the width " + std::to_string(width) + " is not a power of two up to 32");
    Operand o{value, 0, operation, argument, width, -1};
    const bool shuffle = operation <= WarpOperation::shuffle_xor;
    collective(name, mask, &o, shuffle ? shuffle_lanes : reduce_lanes, false);
    if (o.absent_source >= 0) fault(std::string(name) + " reads lane " + std::to_string(o.absent_source) + ", which is not in the mask " + lanes_text(mask));
    return o.result;
}

void sync_warp(uint32_t mask) {
    SIMT_PLACE();
    collective("__syncwarp", mask, nullptr, nullptr, true);
}

void warp_collective(const char* instruction, uint32_t mask, void* mine, void (*run)(void* const* lanes)) {
    collective(instruction, mask, mine, run, false);
}

// ---- Running -------------------------------------------------------------------------------------------------------------------

namespace {

void start_block(uint32_t number) {
    const LaunchRequest& r = *machine.request;
    machine.block = {number % r.grid.x, number / r.grid.x % r.grid.y, number / r.grid.x / r.grid.y};
    machine.block_segment = ++machine.segment;
    segments_of_blocks.push_back(machine.segment);
    start_shared_memory(r.shared_bytes);

    block = Block{};
    block.threads = block.alive = int(r.block.x * r.block.y * r.block.z);
    block.warps = (block.threads + 31) / 32;
    for (int i = 0; i < block.warps; i++) {
        Warp& w = warps[size_t(i)];
        w.first = i * 32;
        w.exists = w.alive = block.threads - w.first >= 32 ? ~0u : (1u << (block.threads - w.first)) - 1;
        w.all_synced = 0;
        if (w.part_synced) w.seen = {}, w.part_synced = false;
        w.groups = 0;
        w.runnable = 0;
        make_runnable(w, w.alive);
        set_clock(w, 0);
    }
    for (int i = 0; i < block.threads; i++) {
        Thread& t = threads[size_t(i)];
        t.lane = i % 32;
        t.bit = 1u << t.lane;
        t.warp_bit = 1u << (i / 32);
        t.warp = &warps[size_t(i / 32)];
        t.wait = Wait::none;
        t.place = r.kernel;
        t.groups = 0;
        t.async.clear();
        t.id = {unsigned(i) % r.block.x, unsigned(i) / r.block.x % r.block.y, unsigned(i) / r.block.x / r.block.y};
        t.context = make_fcontext(reinterpret_cast<void*>(t.stack_low + t.stack_bytes), t.stack_bytes, fiber);
    }
}

/// Who runs next: any thread, or one of the warp that ran last, so that it gets ahead of the others.
enum class Schedule : uint8_t { any_thread, one_warp_ahead };

void check_time(std::chrono::steady_clock::time_point start) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (seconds > machine.request->options.most_seconds)
        throw Fault(kernel_name(machine.request->kernel) + ": still running after " + std::to_string(int(seconds)) + " s, block " + text_of(machine.block) +
                    ": " + who_waits());
}

void run_block(Schedule schedule, std::chrono::steady_clock::time_point start) {
    int warp = pick_bit(block.runnable_warps);
    for (int64_t turn = 0; block.runnable_warps; turn++) {
        if (schedule == Schedule::any_thread || !(block.runnable_warps >> warp & 1)) warp = pick_bit(block.runnable_warps);
        Warp& w = warps[size_t(warp)];
        const int lane = pick_bit(w.runnable);
        w.runnable &= ~(1u << lane);
        if (!w.runnable) block.runnable_warps &= ~(1u << warp);
        resume(threads[size_t(w.first + lane)]);
        if (faulted) throw Fault(fault_text);
        if (!w.runnable) block.runnable_warps &= ~(1u << warp);
        if ((turn & 0xffff) == 0xffff) check_time(start);
    }
    if (!suspicion.empty()) throw Fault(suspicion);
    if (block.alive == 0) return;
    const Thread* first = nullptr;
    for (int i = 0; i < block.threads && !first; i++)
        if (threads[size_t(i)].wait != Wait::exited) first = &threads[size_t(i)];
    throw Fault(kernel_name(machine.request->kernel) + ": threads wait for ever in " + first->waits_for + " at " + source_line(first->place) + ", block " +
                text_of(machine.block) + ", thread " + text_of(first->id) + ": " + who_waits());
}

void finish_block() {
    for (int i = 0; counting && i < block.warps; i++) put_together(i);
    for (int i = 0; i < block.threads; i++)
        if (!threads[size_t(i)].async.empty()) abandon_async(threads[size_t(i)]);
}

void order_blocks(uint32_t count, uint64_t way) {
    block_order.resize(count);
    std::iota(block_order.begin(), block_order.end(), 0u);
    if (way == 1) std::reverse(block_order.begin(), block_order.end());
    if (way >= 2)
        for (uint32_t i = count; i > 1; i--) std::swap(block_order[i - 1], block_order[size_t(rng.next() % i)]);
}

/// Leaves the machine fit for the next launch, however this one ended.
struct Cleanup {
    ~Cleanup() {
        for (int i = 0; i < block.threads; i++) abandon_async(threads[size_t(i)]);
        finish_shared_memory();
        counting = false;
        if (std::uncaught_exceptions() > 0 && __asan_unpoison_memory_region)
            for (const Thread& t : threads) __asan_unpoison_memory_region(reinterpret_cast<void*>(t.stack_low), t.stack_bytes);
        machine.request = nullptr;
        machine.parameters_bytes = 0;
        running = watched = nullptr;
        faulted = false;
        suspicion.clear();
    }
};

}  // namespace

void run_launch(const LaunchRequest& request) {
    if (threads[0].stack_low == 0) make_stacks();
    machine.request = &request;
    Cleanup cleanup;
    machine.parameters_low = reinterpret_cast<uintptr_t>(request.parameters.get());
    machine.parameters_bytes = request.parameter_bytes;
    if (machine.segment > uint32_t{1} << 31) clear_cells(), machine.segment = 1;
    machine.launch_segment = machine.segment + 1;
    clear_atomics();
    segments_of_blocks.clear();
    rng.state = request.options.seed * 0x2545f4914f6cdd1du + 1;
    const Schedule schedule = rng.next() % 2 ? Schedule::any_thread : Schedule::one_warp_ahead;
    order_blocks(request.grid.x * request.grid.y * request.grid.z, rng.next() % 4);
    const auto start = std::chrono::steady_clock::now();
    begin_counting(request);
    for (uint32_t number : block_order) {
        start_block(number);
        run_block(schedule, start);
        finish_block();
    }
    end_counting();
}

}  // namespace simt
