#include "loader.h"

#include <utility>

#include "../kernels/error.h"

namespace clover {

Loader::Loader(std::function<void(int64_t, int32_t*)> read, std::function<int64_t(int64_t)> global_batch, const LoaderOptions& options)
    : read_(std::move(read)), global_batch_(std::move(global_batch)), options_(options), sample_(size_t(options.example.context + 1)) {
    CLOVER_CHECK(options.micro_batch >= 1 && options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks, "rank ", options.rank, " of ",
                 options.ranks, ", micro-batches of ", options.micro_batch);
    for (Batch* batch : {&current_, &prepared_}) {  // so that no step allocates
        const size_t most = size_t(global_batch_(options.total) / options.ranks * options.example.context);
        batch->ids.reserve(most);
        batch->targets.reserve(most);
    }
    thread_ = std::thread([this] { run(); });
}

Loader::~Loader() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Loader::seek(int64_t consumed) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !wanted_; });  // a batch in the making is finished, and forgotten
    consumed_ = consumed;
    ready_ = false;
    error_ = nullptr;
}

const Batch& Loader::next() {
    std::unique_lock lock(mutex_);
    if (!ready_) want(consumed_);
    changed_.wait(lock, [&] { return ready_; });
    if (error_) {
        ready_ = false;
        std::rethrow_exception(std::exchange(error_, nullptr));
    }
    std::swap(current_, prepared_);
    ready_ = false;
    consumed_ = current_.first + current_.global_batch;
    if (consumed_ < options_.total) want(consumed_);
    return current_;
}

/// Asks the thread for the batch at `consumed`, if it is not at one already. The mutex is held.
void Loader::want(int64_t consumed) {
    if (wanted_) return;
    consumed_ = consumed;
    wanted_ = true;
    changed_.notify_all();
}

void Loader::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return stop_ || wanted_; });
        if (stop_) return;
        const int64_t first = consumed_;
        lock.unlock();
        std::exception_ptr error;
        try {
            prepare(prepared_, first);
        } catch (...) {
            error = std::current_exception();
        }
        lock.lock();
        error_ = error;
        ready_ = true;
        wanted_ = false;
        changed_.notify_all();
    }
}

void Loader::prepare(Batch& batch, int64_t first) {
    const LoaderOptions& o = options_;
    const int64_t T = o.example.context, chunk = o.ranks * o.micro_batch;
    batch.first = first;
    batch.global_batch = global_batch_(first);
    CLOVER_CHECK(batch.global_batch % chunk == 0, "a global batch of ", batch.global_batch, " for ", o.ranks, " ranks with micro-batches of ", o.micro_batch);
    batch.sequences = batch.global_batch / o.ranks;
    batch.ids.resize(size_t(batch.sequences * T));
    batch.targets.resize(size_t(batch.sequences * T));
    for (int64_t i = 0; i < batch.sequences; i++) {
        const int64_t sample = first + i / o.micro_batch * chunk + o.rank * o.micro_batch + i % o.micro_batch;
        read_(sample, sample_.data());
        make_example(sample_.data(), o.example, batch.ids.data() + i * T, batch.targets.data() + i * T);
    }
}

}  // namespace clover
