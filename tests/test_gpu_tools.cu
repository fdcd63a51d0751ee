// The programs that measure on a GPU (tests/gpu/), in the harness: what they ask has known answers there, and what they time can be counted.
#include <cuda_runtime.h>

#include "gpu/gpu.h"
#include "gpu/workloads.h"
#include "support.h"
#ifdef CLOVER_SIMT
#include "simt/simt.h"

using namespace clover;
using namespace clover::test;

TEST_SUITE("gpu tools") {
    TEST_CASE("the probes find the tensor core's models and the fragments of the tables") {
        for (int capability : {80, 90}) {
            CAPTURE(capability);
            simt::options().capability = capability;
            simt::options().mma = capability == 80 ? simt::MmaModel::sm80 : simt::MmaModel::sm90;
            Context ctx(*usable_cuda());
            for (const gpu::Probe& p : gpu::run_probes(ctx)) {
                INFO(p.name, ": ", p.said);
                // A host makes another NaN of a NaN than a GPU.
                if (p.name.find("NaN") == std::string::npos) CHECK(p.outcome != gpu::Probe::Outcome::fail);
            }
        }
        simt::options() = {};
        Context ctx(*usable_cuda());
        const std::vector<gpu::Probe> exact = gpu::run_probes(ctx);  // a core that adds exactly is neither
        CHECK(std::count_if(exact.begin(), exact.end(), [](const gpu::Probe& p) {
                  return p.name.find("mma adds") == 0 && p.outcome == gpu::Probe::Outcome::fail;
              }) == 3);
        CHECK(gpu::run_dangerous_probe(ctx).said.find("not in global memory") != std::string::npos);
        simt::options() = {};
    }
    TEST_CASE("kernels bound by memory move at most 1.1 times the least, by sectors, for what they read and write") {
        constexpr int64_t enough = 64 << 10;  // below that, the ends of rows and what all blocks read weigh more than the rest
        Context ctx(*usable_cuda());
        simt::options().counters = true;
        for (const gpu::NamedWorkload& named : gpu::workloads()) {
            if (named.name.find("attention") == 0 || named.name.find("product") == 0) continue;
            // At this size a warp reads weight and bias for eight rows, at full size for fifteen and more.
            const double allowed = named.name == "layernorm forward" ? 1.15 : 1.1;
            gpu::with_workload(ctx, named, gpu::small_size, [&](const gpu::Workload& w) {
                simt::counters().clear();
                w.run(ctx);
                gpu::wait(ctx);
                int64_t all = 0;
                for (const simt::LaunchCounters& c : simt::counters()) {
                    const int64_t least = c.distinct_read_bytes + c.distinct_written_bytes, moved = 32 * (c.read_sectors + c.written_sectors);
                    INFO(named.name, ", ", c.kernel, ": ", moved, " bytes moved, ", least, " at least");
                    if (least >= enough) CHECK(double(moved) <= allowed * double(least));
                    all += least;
                }
                INFO(named.name, ": ", all, " bytes touched, ", w.bytes, " at least");
                CHECK(double(all) >= w.bytes);  // no launch is left out
                CHECK(double(all) <= 1.5 * w.bytes);
            });
        }
        simt::options() = {};
        simt::counters().clear();
    }
}
#endif
