// The batches of a run, prepared in the background while the step before computes. The global batch of a step is the samples [consumed, consumed + size)
// of one sequence; Megatron's sampler deals them out micro-batch by micro-batch: of each ranks · micro_batch samples in a row, rank r takes
// [r · micro_batch, (r + 1) · micro_batch). So the loader's whole state is the number of samples consumed, and the global sequence of samples
// does not depend on the number of ranks.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "examples.h"

namespace clover {

struct LoaderOptions {
    ExampleOptions example;
    int64_t micro_batch = 1;
    int64_t rank = 0, ranks = 1;  // data-parallel
    int64_t total = 0;            // samples of the run
};

/// One rank's part of a step.
struct Batch {
    int64_t first = 0;         // samples consumed before it
    int64_t global_batch = 0;  // samples of the step, over all ranks
    int64_t sequences = 0;     // samples here: global_batch / ranks
    std::vector<int32_t> ids, targets;  // (sequences · T); a target of -1 is not trained
};

class Loader {
public:
    /// `read(i, tokens)` writes the T + 1 tokens of sample i, on a thread of the loader's own. `global_batch(consumed)` is the size of the step that begins
    /// there, a multiple of ranks · micro_batch.
    Loader(std::function<void(int64_t, int32_t*)> read, std::function<int64_t(int64_t)> global_batch, const LoaderOptions& options);
    ~Loader();
    Loader(const Loader&) = delete;
    /// The next batch is the one that begins after `consumed` samples.
    void seek(int64_t consumed);
    /// The next batch, valid until the next call. Rethrows what `read` threw.
    const Batch& next();

private:
    std::function<void(int64_t, int32_t*)> read_;
    std::function<int64_t(int64_t)> global_batch_;
    LoaderOptions options_;
    Batch current_, prepared_;
    int64_t consumed_ = 0;  // where the batch to be prepared begins
    std::vector<int32_t> sample_;
    bool ready_ = false, wanted_ = false, stop_ = false;
    std::exception_ptr error_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::thread thread_;

    void run();
    void prepare(Batch& batch, int64_t first);
    void want(int64_t consumed);
};

}  // namespace clover
