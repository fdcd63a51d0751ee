// Counts calls of operator new while asked to, except those that oneDNN makes for itself.
#pragma once
#include <cstdint>

namespace clover::test {

/// Starts counting from 0.
void start_counting_allocations();
/// Stops, and returns the number of allocations since, by any thread.
int64_t stop_counting_allocations();

}  // namespace clover::test
