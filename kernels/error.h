// Errors. InputError is the user's to mend (exit code 2), Error is a run that failed (exit code 3).
// A message is one line: what, where, what was expected, what to do.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace clover {

/// Line feeds and other control characters, which a name or a value may have brought along, become spaces.
inline std::string in_one_line(std::string message) {
    for (char& c : message)
        if ((c >= 0 && c < 0x20) || c == 0x7f) c = ' ';
    return message;
}

struct Error : std::runtime_error {
    explicit Error(std::string message) : std::runtime_error(in_one_line(std::move(message))) {}
};
struct InputError : Error {
    using Error::Error;
};

/// The arguments written one after the other: text("line ", 3).
template <class... Parts>
std::string text(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

/// Throws InputError(text(parts...)) unless `ok`.
template <class... Parts>
void require(bool ok, const Parts&... parts) {
    if (!ok) throw InputError(text(parts...));
}

}  // namespace clover

/// A contract between our own parts; stays on in release builds.
#define CLOVER_CHECK(condition, ...)                                                                         \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            throw ::clover::Error(::clover::text(__FILE__, ":", __LINE__, ": ", #condition, " does not hold. ", \
                                                 ##__VA_ARGS__));                                            \
    } while (0)
