// `make bench-simt`: what every kernel moves, counted by the harness (tests/simt/simt.h) over the small workloads, and how it was launched.
//   count-traffic [--launches FILE]   FILE receives one line per kernel and shape of launch: kernel, threads of a block, bytes of shared memory
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <tuple>

#include "../simt/simt.h"
#include "gpu.h"
#include "workloads.h"

using namespace clover;
using namespace clover::gpu;

namespace {

// Sectors count as a whole: what is read beside the bytes that are wanted is moved as well.
double moved_bytes(const std::vector<simt::LaunchCounters>& launches) {
    int64_t sectors = 0;
    for (const simt::LaunchCounters& c : launches) sectors += c.read_sectors + c.written_sectors;
    return 32 * double(sectors);
}

void write_launches(const char* path, const std::vector<simt::LaunchCounters>& all) {
    std::set<std::tuple<std::string, uint32_t, size_t>> launches;
    for (const simt::LaunchCounters& c : all) launches.insert({c.kernel, c.block[0] * c.block[1] * c.block[2], c.shared_bytes});
    std::ofstream out(path);
    for (const auto& [kernel, threads, shared] : launches) out << kernel << '\t' << threads << '\t' << shared << '\n';
}

}  // namespace

int main(int argc, char** argv) {
    Context ctx(find_device("cuda"));
    simt::options().counters = true;
    std::vector<simt::LaunchCounters> all;
    std::printf("Each operation once, at the small sizes of tests/gpu/workloads.h. Its launches together, against the least that the operation must move\n"
                "(partial sums, and weights that every block reads, weigh less when there are more rows):\n\n"
                "%-48s %12s %14s\n", "operation", "least MB", "moved / least");
    for (const NamedWorkload& named : workloads())
        with_workload(ctx, named, small_size, [&](const Workload& w) {
            simt::counters().clear();
            w.run(ctx);
            wait(ctx);
            if (w.bytes > 0) std::printf("%-48s %12.3f %14.3f\n", named.name.c_str(), w.bytes * 1e-6, moved_bytes(simt::counters()) / w.bytes);
            all.insert(all.end(), simt::counters().begin(), simt::counters().end());
        });
    simt::counters() = all;
    std::printf("\nEach kernel, against the least for what its threads asked for; passes are turns of the 32 banks of shared memory:\n\n");
    simt::print_counters(stdout);
    if (argc == 3 && std::strcmp(argv[1], "--launches") == 0) write_launches(argv[2], all);
    return 0;
}
