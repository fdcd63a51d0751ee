// A line on stderr that says how far a long command is: written over ten times a second on a terminal, every ten seconds elsewhere; nothing within the first second.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace clover {

class Progress {
public:
    explicit Progress(std::string what) : what_(std::move(what)) {}
    ~Progress();
    Progress(const Progress&) = delete;
    /// `done` of `total` bytes (0: not known); `detail` follows, such as a number of documents.
    void show(int64_t done, int64_t total, const std::string& detail);
    double seconds() const;

private:
    using Clock = std::chrono::steady_clock;
    std::string what_;
    Clock::time_point start_ = Clock::now(), next_ = start_ + std::chrono::seconds(1);
    bool line_open_ = false;
};

}  // namespace clover
