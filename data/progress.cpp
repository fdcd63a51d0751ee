#include "progress.h"

#include <unistd.h>

#include <cstdio>

namespace clover {

Progress::~Progress() {
    if (line_open_) std::fprintf(stderr, "\r\033[K");
}

double Progress::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void Progress::show(int64_t done, int64_t total, const std::string& detail) {
    const Clock::time_point now = Clock::now();
    if (now < next_) return;
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    next_ = now + (terminal ? Clock::duration(std::chrono::milliseconds(100)) : std::chrono::seconds(10));
    const double rate = double(done) / seconds();
    char share[80] = "";
    if (total > 0 && done > 0) {
        const int64_t left = int64_t(double(total - done) / rate);
        std::snprintf(share, sizeof share, "%5.1f %%, %lld:%02lld left, ", 100.0 * double(done) / double(total), static_cast<long long>(left / 60),
                      static_cast<long long>(left % 60));
    }
    std::fprintf(stderr, "%s%s: %s%.1f MB read, %.1f MB/s, %s%s", terminal ? "\r\033[K" : "", what_.c_str(), share, double(done) / 1e6, rate / 1e6, detail.c_str(),
                 terminal ? "" : "\n");
    line_open_ = terminal;
}

}  // namespace clover
