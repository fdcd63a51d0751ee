// TOML by toml++, for files that anybody may have written: one message of one line for whatever is wrong with them.
#pragma once
#include <string>

#include "../kernels/error.h"

namespace clover {
// toml++ asserts where it meets some malformed files ("[`a]"); its parser must refuse those, not end the process.
[[noreturn]] inline void toml_assertion_failed(const char* what) { throw InputError(text("malformed (", what, ")")); }
}  // namespace clover

#define TOML_HEADER_ONLY 1
#define TOML_ASSERT(condition) ((condition) ? void() : ::clover::toml_assertion_failed(#condition))
#if __has_include(<toml++/toml.hpp>)
#include <toml++/toml.hpp>
#else
#include <toml++/toml.h>
#endif

namespace clover {

/// `origin` stands in messages where the file name would: "ORIGIN:LINE: …". Throws InputError for what is no TOML, for more than 1 MiB, and for nesting that only
/// hostile files have.
toml::table parse_toml(const std::string& toml, const std::string& origin);

/// Fit for the middle of a message: control characters become spaces, what is longer than `longest` bytes is cut.
std::string one_line(std::string s, size_t longest);

}  // namespace clover
