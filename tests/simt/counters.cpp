// What a launch moves: bytes, 32-byte sectors, passes of shared memory (facts: section 4).
//
// The accesses that lanes of a warp make by the same instruction are one access of the warp. Lanes run one after the other here, so each
// lane's accesses are kept until all lanes of the warp meet (barrier, warp-wide instruction, end); the n-th execution of an instruction since
// then is put together with the n-th of the other lanes.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>

#include <sys/mman.h>

#include "memory.h"
#include "symbols.h"

namespace simt {

bool counting = false;

namespace {

struct Entry {
    const void* place;
    uint32_t turn;  // the n-th execution of the instruction
    uint8_t lane, bytes;
    bool write, shared;
    uintptr_t address;
};
std::array<std::vector<Entry>, 32> logs;  // of the warps
std::array<std::array<std::map<const void*, uint32_t>, 32>, 32> turns;  // [warp][lane]
LaunchCounters now;
std::vector<Region*> touched;

uint8_t* make_bits(const Region& r) {
    void* p = mmap(nullptr, r.bytes / 8 + 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw Fault("No address space for the counters");
    return static_cast<uint8_t*>(p);
}

void mark_bytes(Region& r, uintptr_t p, unsigned bytes, bool write) {
    if (!r.read_bytes) r.read_bytes = make_bits(r), r.written_bytes = make_bits(r);
    if (std::find(touched.begin(), touched.end(), &r) == touched.end()) touched.push_back(&r);
    uint8_t* bits = write ? r.written_bytes : r.read_bytes;
    for (size_t i = p - r.base; i < p - r.base + bytes; i++) bits[i / 8] |= uint8_t(1 << i % 8);
}

int64_t count_and_clear(uint8_t* bits, size_t bytes) {
    int64_t n = 0;
    for (size_t i = 0; i < bytes / 8 + 1; i += 8) {
        uint64_t word;
        std::memcpy(&word, bits + i, 8);
        n += std::popcount(word);
    }
    madvise(bits, bytes / 8 + 64, MADV_DONTNEED);
    return n;
}

/// Distinct values among the first n.
int64_t distinct(std::array<uintptr_t, 64>& values, int n) {
    std::sort(values.begin(), values.begin() + n);
    return std::unique(values.begin(), values.begin() + n) - values.begin();
}

void count_sectors(const Entry* e, size_t n) {
    std::array<uintptr_t, 64> sectors;
    int count = 0;
    for (size_t i = 0; i < n; i++) sectors[size_t(count++)] = e[i].address / 32;
    (e->write ? now.written_sectors : now.read_sectors) += distinct(sectors, count);
}

/// Passes of one phase: the most distinct words of any bank.
int64_t phase_passes(const Entry* e, size_t n, unsigned first_lane, unsigned lanes) {
    std::array<std::vector<uintptr_t>, 32> banks;
    size_t most = 0;
    for (size_t i = 0; i < n; i++) {
        if (e[i].lane < first_lane || e[i].lane >= first_lane + lanes) continue;
        for (uintptr_t word = e[i].address / 4; word <= (e[i].address + e[i].bytes - 1u) / 4; word++) {
            auto& bank = banks[word % 32];
            if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
            most = std::max(most, bank.size());
        }
    }
    return int64_t(most);
}

void count_passes(const Entry* e, size_t n) {
    unsigned widest = 0;
    for (size_t i = 0; i < n; i++) widest = std::max<unsigned>(widest, e[i].bytes);
    const unsigned lanes = widest == 16 ? 8 : widest == 8 ? 16 : 32;
    for (unsigned first = 0; first < 32; first += lanes) {
        const int64_t passes = phase_passes(e, n, first, lanes);
        now.shared_passes += passes;
        now.least_shared_passes += passes > 0;
    }
}

}  // namespace

std::vector<LaunchCounters>& counters() {
    static std::vector<LaunchCounters> all;
    return all;
}

void begin_counting(const LaunchRequest& r) {
    counting = r.options.counters;
    if (!counting) return;
    for (Region* r : touched)  // of a launch that a fault ended
        if (r->read_bytes) count_and_clear(r->read_bytes, r->bytes), count_and_clear(r->written_bytes, r->bytes);
    touched.clear();
    now = {};
    now.kernel = kernel_name(r.kernel);
    now.grid[0] = r.grid.x, now.grid[1] = r.grid.y, now.grid[2] = r.grid.z;
    now.block[0] = r.block.x, now.block[1] = r.block.y, now.block[2] = r.block.z;
    now.shared_bytes = r.shared_bytes;
    for (auto& log : logs) log.clear();
    for (auto& warp : turns)
        for (auto& lane : warp) lane.clear();
}

void end_counting() {
    if (!counting) return;
    for (Region* r : touched) {
        now.distinct_read_bytes += count_and_clear(r->read_bytes, r->bytes);
        now.distinct_written_bytes += count_and_clear(r->written_bytes, r->bytes);
    }
    touched.clear();
    counters().push_back(now);
    counting = false;
}

void count_access(Thread& t, Region& region, uintptr_t p, unsigned bytes, bool write, const void* place) {
    const bool shared = &region == &shared_region;
    if (!shared) {
        (write ? now.written_bytes : now.read_bytes) += bytes;
        mark_bytes(region, p, bytes, write);
    }
    const size_t warp = t.index / 32;
    // An atomic operation reads and writes at one place: the two are told apart.
    const void* instruction = static_cast<const char*>(place) - (write ? 1 : 0);
    logs[warp].push_back({instruction, turns[warp][size_t(t.lane)][instruction]++, uint8_t(t.lane), uint8_t(bytes), write, shared, p});
}

void put_together(int warp) {
    std::vector<Entry>& log = logs[size_t(warp)];
    if (log.empty()) return;
    const auto key = [](const Entry& e) { return std::tuple(e.place, e.turn, e.shared); };
    std::sort(log.begin(), log.end(), [&](const Entry& a, const Entry& b) { return key(a) < key(b); });
    for (size_t i = 0, end; i < log.size(); i = end) {
        for (end = i + 1; end < log.size() && key(log[end]) == key(log[i]) && end - i < 64; end++) {}
        log[i].shared ? count_passes(&log[i], end - i) : count_sectors(&log[i], end - i);
    }
    log.clear();
    for (auto& lane : turns[size_t(warp)]) lane.clear();
}

void count_mma() {
    if (counting) now.mma++;
}

void print_counters(std::FILE* to) {
    std::map<std::string, LaunchCounters> sums;
    for (const LaunchCounters& c : counters()) {
        const auto [at, fresh] = sums.try_emplace(c.kernel, c);
        if (fresh) continue;
        LaunchCounters& s = at->second;
        s.launches += c.launches;
        s.read_bytes += c.read_bytes, s.written_bytes += c.written_bytes;
        s.read_sectors += c.read_sectors, s.written_sectors += c.written_sectors;
        s.distinct_read_bytes += c.distinct_read_bytes, s.distinct_written_bytes += c.distinct_written_bytes;
        s.shared_passes += c.shared_passes, s.least_shared_passes += c.least_shared_passes;
        s.mma += c.mma;
    }
    const auto ratio = [](int64_t a, int64_t b) { return b ? double(a) / double(b) : 0.0; };
    std::fprintf(to, "%-44s %8s %10s %10s %9s %9s %9s %10s\n", "kernel", "launches", "MB read", "MB written", "asked", "sectors", "passes", "mma");
    std::fprintf(to, "%-44s %8s %10s %10s %9s %9s %9s %10s\n", "", "", "(asked)", "(asked)", "/ least", "/ least", "/ least", "");
    for (const auto& [name, c] : sums) {
        const int64_t least = c.distinct_read_bytes + c.distinct_written_bytes;
        std::fprintf(to, "%-44s %8ld %10.3f %10.3f %9.3f %9.3f %9.3f %10ld\n", name.c_str(), long(c.launches), double(c.read_bytes) * 1e-6,
                     double(c.written_bytes) * 1e-6, ratio(c.read_bytes + c.written_bytes, least), ratio(32 * (c.read_sectors + c.written_sectors), least),
                     ratio(c.shared_passes, c.least_shared_passes), long(c.mma));
    }
}

}  // namespace simt
