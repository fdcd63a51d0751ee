// The products of attention's tiles on the CPU, in f32: eight rows of C = A·B, or C += A·B, at a time.
//   A has free strides, so that a transpose costs nothing.
//   B lies in panels of 32 columns: element (i, n) at data[n / 32 · panel + i · row + n % 32]. A row-major matrix is the case
//   row = its columns, panel = 32; a transposed one is packed by `transpose_into_panels`.
//   C is row-major.
// Nothing has a tail: the rows of C come in eights and the columns of B and C in sixteens, in scratch memory that is padded so.
#pragma once
#include "simd.h"

namespace clover::attention {

using simd::f32x16;
using simd::load;
using simd::store;

constexpr int64_t strip = 8;          // rows of C per product
constexpr int64_t panel_columns = 32;  // columns of B per panel

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr int64_t round_down(int64_t n, int64_t unit) { return n / unit * unit; }

/// Indices begin … end - 1; empty where begin >= end.
struct Range {
    int64_t begin, end;
};

/// A: element (r, i) at data[r · row + i · step].
struct Left {
    const float* data;
    int64_t row, step;
};

/// B: see the head of this file.
struct Right {
    const float* data;
    int64_t row, panel;
};

/// The sums of a `rows` × 16·`vectors` piece of C in registers: 16 of the 32 that AVX-512 has, 8 of the 16 halves of AVX2.
template <int rows, int vectors, bool accumulate>
CLOVER_INLINE void register_block(Range inner, Left a, const float* b, int64_t b_row, float* c, int64_t c_row) {
    f32x16 sum[rows][vectors];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) sum[r][v] = accumulate ? load(c + r * c_row + v * simd::width) : f32x16{};
    for (int64_t i = inner.begin; i < inner.end; i++) {
        f32x16 x[vectors];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) x[v] = load(b + i * b_row + v * simd::width);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[r][v] += a.data[r * a.row + i * a.step] * x[v];
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) store(c + r * c_row + v * simd::width, sum[r][v]);
}

/// Eight rows and 16·`vectors` columns of C.
template <int vectors, bool accumulate>
CLOVER_INLINE void block_product(Range inner, Left a, const float* b, int64_t b_row, float* c, int64_t c_row) {
#if defined(__AVX512F__)
    register_block<strip, vectors, accumulate>(inner, a, b, b_row, c, c_row);
#else
    for (int r = 0; r < strip; r += 4)
        for (int v = 0; v < vectors; v++)
            register_block<4, 1, accumulate>(inner, {a.data + r * a.row, a.row, a.step}, b + v * simd::width, b_row,
                                             c + r * c_row + v * simd::width, c_row);
#endif
}

/// Eight rows of C: columns `columns` (rounded outwards to sixteens; c points at column 0) with the terms `inner` of the sums.
template <bool accumulate>
inline void strip_product(Range inner, Left a, Right b, Range columns, float* c, int64_t c_row) {
    const auto at = [&](int64_t n) { return b.data + n / panel_columns * b.panel + n % panel_columns; };
    int64_t n = round_down(columns.begin, simd::width);
    if (n % panel_columns != 0 && n < columns.end) {
        block_product<1, accumulate>(inner, a, at(n), b.row, c + n, c_row);
        n += simd::width;
    }
    for (; n + simd::width < columns.end; n += panel_columns) block_product<2, accumulate>(inner, a, at(n), b.row, c + n, c_row);
    if (n < columns.end) block_product<1, accumulate>(inner, a, at(n), b.row, c + n, c_row);
}

/// sums[n] += Σ_r m[r · row + n] over r in `rows`, for the sixteen columns n … n + 15.
template <class T>
inline void add_column_sums(const T* m, int64_t row, Range rows, float* sums) {
    f32x16 total = load(sums);
    for (int64_t r = rows.begin; r < rows.end; r++) total += load(m + r * row);
    store(sums, total);
}

/// Rows of a tensor as a matrix: row i is at data + (i − begin) · stride for begin <= i < end and zero elsewhere.
template <class T>
struct Rows {
    const T* data;
    int64_t stride, begin, end, columns;

    /// Elements (i, c) … (i, c + 15), zero beyond the columns.
    CLOVER_INLINE f32x16 piece(int64_t i, int64_t c) const {
        if (i < begin || i >= end) return f32x16{};
        const T* p = data + (i - begin) * stride + c;
        return c + simd::width <= columns ? load(p) : load(p, columns - c);
    }
    /// Rows lie far apart, which the processor's own prefetcher does not see through.
    CLOVER_INLINE void prefetch(int64_t i, int64_t c) const {
        if (i >= begin && i < end) __builtin_prefetch(data + (i - begin) * stride + c);
    }
};

/// How many rows ahead of their use memory is asked for.
constexpr int64_t prefetch_distance = 16;

/// to (count, `width`): rows 0 … count - 1 times `factor`; `width` is the columns rounded up to sixteens.
template <class T>
void copy_rows(const Rows<T>& from, int64_t count, float factor, float* to, int64_t width) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < width; c += simd::width) {
            from.prefetch(i + prefetch_distance, c);
            store(to + i * width + c, from.piece(i, c) * factor);
        }
}

/// row[j] of a becomes row[j ^ s] of b and the other way round, where the blocks of s lanes lie off the diagonal.
template <int s, int... lane>
CLOVER_INLINE void exchange_blocks(f32x16& a, f32x16& b, std::integer_sequence<int, lane...>) {
    const f32x16 upper = __builtin_shufflevector(a, b, ((lane & s) ? lane - s + 16 : lane)...);
    const f32x16 lower = __builtin_shufflevector(a, b, ((lane & s) ? lane + 16 : lane + s)...);
    a = upper;
    b = lower;
}
template <int s>
CLOVER_INLINE void exchange_all_blocks(f32x16 (&m)[16]) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        if ((i & s) == 0) exchange_blocks<s>(m[i], m[i + s], std::make_integer_sequence<int, 16>{});
}
/// The transpose of a 16 × 16 matrix, by blocks of 8, 4, 2, 1.
CLOVER_INLINE void transpose(f32x16 (&m)[16]) {
    exchange_all_blocks<8>(m);
    exchange_all_blocks<4>(m);
    exchange_all_blocks<2>(m);
    exchange_all_blocks<1>(m);
}

/// The transpose of rows 0 … count - 1 as panels of (width, 32); count is a multiple of 32, `width` as in copy_rows.
template <class T>
void transpose_into_panels(const Rows<T>& from, int64_t count, float* to, int64_t width) {
    for (int64_t i = 0; i < count; i += simd::width)
        for (int64_t c = 0; c < width; c += simd::width) {
            f32x16 m[16];
#pragma GCC unroll 16
            for (int r = 0; r < 16; r++) {
                from.prefetch(i + r + prefetch_distance, c);
                m[r] = from.piece(i + r, c);
            }
            transpose(m);
            float* corner = to + i / panel_columns * (width * panel_columns) + c * panel_columns + i % panel_columns;
#pragma GCC unroll 16
            for (int r = 0; r < 16; r++) store(corner + r * panel_columns, m[r]);
        }
}

/// to[n] = Σ_i weights[i] b(i, n) for the columns 0 … count - 1, a multiple of 32, of a matrix packed in panels of (width, 32).
inline void weighted_panel_sums(const float* weights, const float* panels, int64_t width, int64_t count, float* to) {
    for (int64_t n = 0; n < count; n += simd::width) {
        const float* b = panels + n / panel_columns * (width * panel_columns) + n % panel_columns;
        f32x16 total{};
        for (int64_t i = 0; i < width; i++) total += weights[i] * load(b + i * panel_columns);
        store(to + n, total);
    }
}

}  // namespace clover::attention
