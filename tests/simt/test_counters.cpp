// What the kernels move, counted by the harness at the widths of published models: every operation that memory bounds against the least that
// its tensors' shapes allow, each read and written once; and the shared memory of the fast attention kernels, whose inner loops must not
// wait for a bank.
#include <algorithm>

#include "../gpu/workloads.h"
#include "../support.h"
#include "simt.h"

using namespace clover;
using namespace clover::test;

namespace {

/// Bytes.
struct Moved {
    double asked = 0, sectors = 0;
};
Moved moved(const std::vector<simt::LaunchCounters>& launches) {
    Moved m;
    for (const simt::LaunchCounters& c : launches) {
        m.asked += double(c.read_bytes + c.written_bytes);
        m.sectors += 32 * double(c.read_sectors + c.written_sectors);
    }
    return m;
}

/// The launches of one call of an operation, and the least bytes that it must move.
struct Counted {
    std::vector<simt::LaunchCounters> launches;
    double least = 0;
};
Counted count(const gpu::NamedWorkload& named, const gpu::Sizes& sizes) {
    Counted counted;
    Context ctx(*usable_cuda());
    gpu::with_workload(ctx, named, sizes, [&](const gpu::Workload& w) {
        synchronize();
        simt::options().counters = true;
        simt::counters().clear();
        w.run(ctx);
        synchronize();
        counted = {std::move(simt::counters()), w.bytes};
        simt::options().counters = false;
        simt::counters().clear();
    });
    return counted;
}

/// An operation whose name begins so, and the most that it may move of the least.
struct Allowed {
    const char* operation;
    double asked, sectors;
};
constexpr Allowed memory_bound[] = {
    {"gelu", 1.0, 1.0},
    {"add", 1.0, 1.0},
    {"cast", 1.0, 1.0},
    {"fill", 1.0, 1.0},
    {"adamw", 1.01, 1.01},
    {"sum of squares", 1.01, 1.01},
    {"cross-entropy", 1.01, 1.03},
    {"embedding forward", 1.01, 1.02},
    {"embedding backward", 1.03, 1.06},  // the ids are sorted, in several passes
};
const Allowed* find_allowed(const std::string& operation) {
    const auto found = std::find_if(std::begin(memory_bound), std::end(memory_bound), [&](const Allowed& a) { return operation.starts_with(a.operation); });
    return found == std::end(memory_bound) ? nullptr : found;
}

gpu::Sizes sizes_of(int64_t rows, int64_t columns) {
    gpu::Sizes sizes = gpu::small_size;
    sizes.rows = rows, sizes.columns = columns, sizes.vocab = 50304, sizes.logit_rows = 3, sizes.parameters = 300 << 10;
    return sizes;
}

void check_moved(const gpu::NamedWorkload& named, int64_t rows, int64_t columns, Moved m, double least, double asked, double sectors) {
    INFO(named.name, ", ", rows, " rows, ", columns, " columns: least ", least, " bytes, asked for ", m.asked / least, " of it, moved ", m.sectors / least);
    CHECK(m.asked <= asked * least);
    CHECK(m.sectors <= sectors * least);
    CHECK(m.asked >= least);  // nothing is left out
}

/// What an operation moves with as many rows as the benchmark on a GPU takes (65536), from counts of two smaller numbers: a fixed part (each
/// block of a full machine reads the weights once and leaves a row of partial sums) and one that grows with the rows.
void check_at_full_size(const gpu::NamedWorkload& named, int64_t rows, int64_t columns) {
    const int64_t further = rows / 8;
    const Counted few = count(named, sizes_of(rows, columns)), more = count(named, sizes_of(rows + further, columns));
    const Moved a = moved(few.launches), b = moved(more.launches);
    const auto extrapolated = [&](double one, double two) { return one + (two - one) * double(gpu::full_size.rows - rows) / double(further); };
    check_moved(named, gpu::full_size.rows, columns, {extrapolated(a.asked, b.asked), extrapolated(a.sectors, b.sectors)},
                extrapolated(few.least, more.least), 1.1, 1.1);
}

TEST_SUITE("counters") {
    TEST_CASE("operations that memory bounds move what their tensors hold, and little more") {
        if (!usable_cuda()) return;
        int64_t checked = 0;
        for (const gpu::NamedWorkload& named : gpu::workloads())
            if (const Allowed* allowed = find_allowed(named.name)) {
                const Counted c = count(named, sizes_of(512, 2048));
                check_moved(named, 512, 2048, moved(c.launches), c.least, allowed->asked, allowed->sectors);
                checked++;
            }
        CHECK(checked == 11);
    }
    TEST_CASE("norms and column sums move at most 1.1 times the least at full size") {
        if (!usable_cuda()) return;
        // Rows that occupy 132 multiprocessors, by warps or by blocks; rmsnorm's backward is layernorm's with less to do.
        constexpr struct {
            const char* operation;
            int64_t rows, columns;
        } cases[] = {{"layernorm forward", 4224, 768},       {"layernorm forward, after a sum", 1056, 2560}, {"rmsnorm forward, after a sum", 1056, 2560},
                     {"layernorm backward", 4224, 768},      {"column sum", 5632, 768}};
        for (const auto& c : cases) {
            const auto& all = gpu::workloads();
            const auto named = std::find_if(all.begin(), all.end(), [&](const gpu::NamedWorkload& w) { return w.name == c.operation; });
            REQUIRE(named != all.end());
            check_at_full_size(*named, c.rows, c.columns);
        }
    }
    TEST_CASE("the fast attention kernels wait for no bank of shared memory") {
        if (!usable_cuda()) return;
        int64_t checked = 0;
        for (const gpu::NamedWorkload& named : gpu::workloads()) {
            if (!named.name.starts_with("attention forward") && !named.name.starts_with("attention backward")) continue;
            gpu::Sizes sizes = gpu::small_size;
            sizes.sequence = 200, sizes.heads = 1;  // the last tile is not full
            for (const simt::LaunchCounters& c : count(named, sizes).launches) {
                if (c.mma == 0) continue;
                INFO(named.name, ", ", c.kernel, ": ", c.shared_passes, " passes, ", c.least_shared_passes, " at least");
                CHECK(c.shared_passes == c.least_shared_passes);
                CHECK(c.least_shared_passes > 0);
                checked++;
            }
        }
        // Forward once, backward twice or, with relative positions, three times; each for two head sizes.
        CHECK(checked == 2 * (3 * 1 + 2 + 2 + 3));
    }
}

}  // namespace
