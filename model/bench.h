// Speed of training steps against the matrix-product peak of the same machine in the same run.
#pragma once
#include "trainer.h"

namespace clover {

struct TrainBench {
    std::string device, recipe;
    int64_t parameters, micro_batch, global_batch, context, steps;
    double seconds;        // per step, median
    double tokens_per_s;
    double gflops;         // model FLOPs of a step (flops.h) per second
    double peak_gflops;    // a square product in the recipe's dtype, measured around every step; median
    int64_t peak_size;     // of that product
    double utilisation;    // a step's FLOP/s over the mean of the peaks before and after it; median over the steps, so that a
                           // machine whose speed drifts during the run is compared with itself
    size_t peak_rss_bytes, planned_bytes;
};

/// One step to warm up, then `steps` measured ones, on random tokens.
TrainBench bench_train(Config config, const Device& device, int64_t steps);

/// The optimizer's step alone, against a copy of the same machine's memory in the same run.
struct OptimizerBench {
    std::string device, recipe, optimizer;
    int64_t parameters, steps;
    double seconds;                  // per step, median
    size_t bytes;                    // that a step reads and writes
    // Of 256 MiB, medians; all count what is read and what is written. y += x is the faster one: y = x also reads what it is about to write.
    double gb_per_s, copy_gb_per_s, add_gb_per_s;
    double copy_ratio, add_ratio;    // a step's time over what its bytes take at the speeds measured before and after it; medians over the steps
};
OptimizerBench bench_optimizer(Config config, const Device& device, int64_t steps);

std::string to_json(const OptimizerBench& b);
std::string to_table(const OptimizerBench& b);
std::string to_json(const TrainBench& b);
std::string to_table(const TrainBench& b);

}  // namespace clover
