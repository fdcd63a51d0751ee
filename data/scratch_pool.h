// What a computation needs besides its input, lent to one call at a time, so that const functions can be called by any number of threads.
#pragma once
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace clover {

template <class T>
class ScratchPool {
public:
    /// Goes back to the pool at the end of its life.
    class Loan {
    public:
        Loan(ScratchPool& pool, std::unique_ptr<T> scratch) : pool_(&pool), scratch_(std::move(scratch)) {}
        Loan(Loan&&) noexcept = default;
        Loan& operator=(Loan&&) = delete;
        ~Loan() {
            if (!scratch_) return;
            const std::lock_guard lock(pool_->mutex_);
            pool_->free_.push_back(std::move(scratch_));
        }
        T& operator*() const { return *scratch_; }
        T* operator->() const { return scratch_.get(); }

    private:
        ScratchPool* pool_;
        std::unique_ptr<T> scratch_;
    };

    /// One that is free, else what make() makes, a std::unique_ptr<T>. The one given back last comes first.
    template <class Make>
    Loan borrow(Make&& make) {
        {
            const std::lock_guard lock(mutex_);
            if (!free_.empty()) {
                std::unique_ptr<T> scratch = std::move(free_.back());
                free_.pop_back();
                return {*this, std::move(scratch)};
            }
        }
        return {*this, make()};
    }

private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<T>> free_;
};

}  // namespace clover
