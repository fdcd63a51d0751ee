// Work on a stream of items on all cores, results in the order in which the items came, a bounded number of them in memory.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace clover {

/// Runs `work(item, worker)` on `threads` threads, worker numbers 0 … threads − 1, and hands the items to `consume(item)` on the calling
/// thread in the order in which `produce(item)` made them, which says true for an item and false at the end. produce runs on one thread of its own. At most
/// 4·threads + 4 items exist at a time. An exception ends all threads; of several, the one of the earliest item is thrown, after what came before it
/// was consumed.
template <class Item>
void ordered_parallel(int threads, const std::function<bool(Item&)>& produce, const std::function<void(Item&, int)>& work,
                      const std::function<void(Item&)>& consume) {
    enum class State : uint8_t { waiting, taken, done };
    struct Slot {
        Item item{};
        State state = State::waiting;
        std::exception_ptr error;
    };
    const size_t most = size_t(threads) * 4 + 4;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Slot> slots;    // in order; the first is consumed next. References stay valid when others come and go
    int64_t begun = 0, first = 0;  // items handed to workers; number of slots.front()
    bool at_end = false, stop = false;

    const auto producer = [&] {
        while (true) {
            Slot slot;
            bool more = false;
            try {
                more = produce(slot.item);
            } catch (...) {
                slot.error = std::current_exception();
                slot.state = State::done;
            }
            std::unique_lock lock(mutex);
            changed.wait(lock, [&] { return stop || slots.size() < most; });
            if (stop) return;
            const bool failed = slot.error != nullptr;
            if (more || failed) slots.push_back(std::move(slot));
            if (!more) at_end = true;
            changed.notify_all();
            if (at_end) return;
        }
    };
    const auto worker = [&](int number) {
        std::unique_lock lock(mutex);
        while (true) {
            changed.wait(lock, [&] { return stop || begun < first + int64_t(slots.size()) || at_end; });
            if (stop || begun >= first + int64_t(slots.size())) return;
            Slot& slot = slots[size_t(begun++ - first)];
            if (slot.state == State::done) continue;  // the producer's error
            slot.state = State::taken;
            lock.unlock();
            std::exception_ptr error;
            try {
                work(slot.item, number);
            } catch (...) {
                error = std::current_exception();
            }
            lock.lock();
            slot.error = error;
            slot.state = State::done;
            changed.notify_all();
        }
    };

    std::vector<std::thread> running;
    running.emplace_back(producer);
    for (int i = 0; i < threads; i++) running.emplace_back(worker, i);
    std::exception_ptr error;
    while (!error) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return slots.empty() ? at_end : slots.front().state == State::done; });
        if (slots.empty()) break;
        Slot slot = std::move(slots.front());
        slots.pop_front();
        first++;
        if (begun < first) begun = first;  // the producer's error, which no worker has looked at
        changed.notify_all();
        lock.unlock();
        error = slot.error;
        try {
            if (!error) consume(slot.item);
        } catch (...) {
            error = std::current_exception();
        }
    }
    {
        const std::lock_guard lock(mutex);
        stop = true;
    }
    changed.notify_all();
    for (std::thread& thread : running) thread.join();
    if (error) std::rethrow_exception(error);
}

}  // namespace clover
