// What the GPU programs need of CUDA, for files without CUDA headers. Defined in gpu.cu and probes.cu.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "../../kernels/context.h"

namespace clover::gpu {

struct Facts {
    std::string name;
    int driver, runtime;  // 13000: CUDA 13.0
    int capability, multiprocessors;
    size_t memory;
};
Facts facts(Context& ctx);

/// Waits for all that the context was asked for.
void wait(Context& ctx);

/// Seconds of each of `runs` calls of work(), by events on the context's stream, after one call that does not count.
std::vector<double> time_calls(Context& ctx, const std::function<void()>& work, int runs);

/// Bytes read and written per second when the runtime copies `bytes` from the device's memory to the device's memory.
double copy_bandwidth(Context& ctx, size_t bytes, int runs);

/// One question to the hardware or to cuBLASLt that no document settles.
struct Probe {
    std::string name;
    enum class Outcome : uint8_t { pass, fail, value } outcome;
    std::string said;  // bits, a status, a ratio; what was expected where it failed
};
/// All but the ones that may ruin the context, which take a process of their own (run_dangerous_probe).
std::vector<Probe> run_probes(Context& ctx);

/// cp.async that reads 0 bytes of an address that is not mapped. A fault would end all work of this process on the GPU.
Probe run_dangerous_probe(Context& ctx);

}  // namespace clover::gpu
