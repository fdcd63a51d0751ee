// Counts calls of operator new while asked to, except those that oneDNN makes for itself.
#pragma once
#include <cstdint>

namespace clover::test {

/// Whether this build counts: under AddressSanitizer, which needs operator new for itself, nothing is.
#ifdef __SANITIZE_ADDRESS__
constexpr bool counts_allocations = false;
#else
constexpr bool counts_allocations = true;
#endif

/// Starts counting from 0.
void start_counting_allocations();
/// Stops, and returns the number of allocations since, by any thread.
int64_t stop_counting_allocations();

}  // namespace clover::test
