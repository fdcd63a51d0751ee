// Loops by all OpenMP threads whose results are the same bits for any number of threads: what is summed is cut by sizes alone, and the
// parts are added in order. Short loops stay on the caller's thread, for which waking the others would take longer.
#pragma once
#include <algorithm>

#include "context.h"
#include "simd.h"

namespace clover {

/// Elements from which on a loop is worth the other threads.
constexpr int64_t parallel_above = 1 << 16;

/// simd::for_vectors over n elements by all threads. The body is copied to each thread: capture by value.
template <class Body>
void parallel_vectors(int64_t n, Body body) {
    constexpr int64_t chunk = 4096;
#pragma omp parallel for schedule(static) firstprivate(body) if (n > parallel_above)
    for (int64_t first = 0; first < n; first += chunk)
        simd::for_vectors(std::min(chunk, n - first), [&](int64_t i, auto lanes) { body(first + i, lanes); });
}

/// N rows in blocks for sums over rows: each block has its row of partial sums, at most 256 of them.
struct RowBlocks {
    int64_t rows, size, count;
    explicit RowBlocks(int64_t N) : rows(N), size(std::max<int64_t>(16, ((N + 255) / 256 + 3) / 4 * 4)), count((N + size - 1) / size) {}
    int64_t first(int64_t block) const { return block * size; }
    int64_t end(int64_t block) const { return std::min(rows, (block + 1) * size); }
};

/// sums (C) += Σ_block partials (count, C), which is consumed.
inline void add_partials(float* sums, float* partials, int64_t count, int64_t C) {
    constexpr int64_t slice = 256;
#pragma omp parallel for schedule(static) if (count * C > parallel_above)
    for (int64_t c = 0; c < C; c += slice) {
        const int64_t n = std::min(slice, C - c);
        for (int64_t block = 1; block < count; block++)
            simd::for_vectors(n, [to = partials + c, from = partials + block * C + c](int64_t i, auto lanes) {
                simd::store(to + i, simd::load(to + i, lanes) + simd::load(from + i, lanes), lanes);
            });
        if (count > 0)
            simd::for_vectors(n, [to = sums + c, from = partials + c](int64_t i, auto lanes) {
                simd::store(to + i, simd::load(to + i, lanes) + simd::load(from + i, lanes), lanes);
            });
    }
}

}  // namespace clover
