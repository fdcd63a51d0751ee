// cp.async: copies whose data arrives no earlier than the thread's wait (PTX: 9.7.9.25).
//
// From the issue to the wait the destination is in flight: any access to it is a fault. The wait delivers as a write of the issuing thread:
// other threads see it after a barrier. A source that changes before the wait is a fault, found at the wait.
#include <cstring>

#include "memory.h"
#include "symbols.h"

namespace simt {

namespace {

Cell* destination_cells(const AsyncCopy& copy) { return shared_region.cells + (reinterpret_cast<uintptr_t>(copy.shared) - shared_region.base) / 4; }

/// Every cell of the destination: of the words, and of their bytes where those have their own.
template <class F>
void for_each_cell(const AsyncCopy& copy, F f) {
    Cell* words = destination_cells(copy);
    for (int i = 0; i < copy.bytes / 4; i++) {
        f(words[i]);
        for (int j = 0; j < 4 && words[i].split_segment >= machine.block_segment; j++) f(shared_region.parts[4 * (words + i - shared_region.cells) + j]);
    }
}

void note_source(AsyncCopy& copy, const Region& r) {
    const Cell* cells = r.cells + (reinterpret_cast<uintptr_t>(copy.source) - r.base) / 4;
    for (int i = 0; 4 * i < copy.valid; i++) copy.source_write[i][0] = cells[i].write_segment, copy.source_write[i][1] = cells[i].write_who;
}

void require_same_source(const AsyncCopy& copy) {
    const Region& r = *find_region(reinterpret_cast<uintptr_t>(copy.source));
    const Cell* cells = r.cells + (reinterpret_cast<uintptr_t>(copy.source) - r.base) / 4;
    bool same = std::memcmp(copy.data, copy.source, size_t(copy.valid)) == 0;
    uint32_t writer = 0;
    for (int i = 0; 4 * i < copy.valid; i++)
        if (copy.source_write[i][0] != cells[i].write_segment || copy.source_write[i][1] != cells[i].write_who) same = false, writer = cells[i].write_place;
    if (!same)
        fault("the source of the asynchronous copy started at " + source_line(copy.place) + " was overwritten before the copy was waited for" +
              (writer ? " (at " + source_line(long_place(writer)) + ")" : ""));
}

void deliver(Thread& t, const AsyncCopy& copy) {
    require_same_source(copy);
    std::memcpy(copy.shared, copy.data, size_t(copy.bytes));
    for_each_cell(copy, [&](Cell& c) {
        c.write_segment = machine.segment;
        c.write_who = t.who;
        c.write_place = short_place(copy.place);
    });
}

}  // namespace

void async_issue(void* shared, const void* source, int bytes, int valid) {
    Thread& t = *running;
    const uintptr_t to = reinterpret_cast<uintptr_t>(shared), from = reinterpret_cast<uintptr_t>(source);
    if (to - shared_region.base >= shared_region.bytes) fault("cp.async: the destination is not in shared memory: " + describe_address(to));
    if (from % unsigned(bytes)) fault("cp.async: the source is not aligned to " + std::to_string(bytes));
    const Region* r = find_region(from);
    if (!r || !r->live || from - r->base >= r->bytes) fault("cp.async: the source is not in global memory: " + describe_address(from));
    for (int i = 0; i < valid;) {
        const int piece = valid - i >= 16 && i == 0 ? 16 : valid - i >= 4 ? 4 : valid - i >= 2 ? 2 : 1;
        access(from + unsigned(i), unsigned(piece), false, t.place);
        i += piece;
    }
    access(to, unsigned(bytes), true, t.place);
    AsyncCopy copy{shared, source, bytes, valid, t.groups, t.place, {}, {}};
    std::memcpy(copy.data, source, size_t(valid));
    note_source(copy, *r);
    for_each_cell(copy, [&](Cell& c) {
        c.read_segment = 0;  // the issue came after those reads; no later read passes for one of them
        c.write_segment = in_flight;
        c.write_who = t.who;
        c.write_place = short_place(t.place);
    });
    t.async.push_back(copy);
}

void async_commit() { running->groups++; }

void async_wait(int pending) {
    Thread& t = *running;
    size_t kept = 0;
    for (const AsyncCopy& copy : t.async) {
        if (copy.group < t.groups - pending) deliver(t, copy);
        else t.async[kept++] = copy;
    }
    t.async.resize(kept);
}

void abandon_async(Thread& t) {
    for (const AsyncCopy& copy : t.async) for_each_cell(copy, [](Cell& c) { c.write_segment = 0; });
    t.async.clear();
}

}  // namespace simt
