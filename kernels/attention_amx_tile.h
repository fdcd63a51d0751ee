// The products of attention's tiles on bf16 operands by AMX (Intel 64 and IA-32 Architectures, volume 2, TDPBF16PS): sums in f32.
//   C (32 rows) = A·B or C += A·B. A is row-major. B lies in panels of 16 columns and within one in pairs of rows, as the
//   instruction wants it: element (k, n) at data[n / 16 · panel + k / 2 · 32 + n % 16 · 2 + k % 2]. C is row-major.
// Nothing has a tail: terms come in thirty-twos and columns in sixteens, in scratch memory that is padded with zeros.
// Only included where the compiler has AMX-BF16 and AVX512-BF16.
#pragma once
#include <immintrin.h>

#include "attention_head.h"

namespace clover::attention::amx {

constexpr int64_t strip_rows = 32;  // rows of C per product
constexpr int64_t tile = 16;        // rows and columns of C per tile
constexpr int64_t terms = 32;       // of a sum, per instruction

struct alignas(64) TileLayout {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Eight tiles of 16 rows of 64 bytes, for the life of the object. Each thread has its own.
struct Configuration {
    static constexpr TileLayout layout{};
    Configuration() { _tile_loadconfig(&layout); }
    ~Configuration() { _tile_release(); }
    Configuration(const Configuration&) = delete;
    Configuration& operator=(const Configuration&) = delete;
};

struct Left {
    const bf16* data;
    int64_t row;
};
struct Right {
    const bf16* data;
    int64_t panel;
};

/// 32 rows and 16·`panels` columns of C: tiles 0 … 3 hold it, 4 and 5 A, 6 and 7 B.
template <int panels, bool accumulate>
CLOVER_INLINE void block_product(Range inner, Left a, const bf16* b, int64_t panel, float* c, int64_t c_row) {
    const int64_t c_bytes = c_row * 4, a_bytes = a.row * 2;
    float* lower = c + tile * c_row;
    if constexpr (accumulate) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, lower, c_bytes);
        if constexpr (panels == 2) _tile_loadd(2, c + tile, c_bytes);
        if constexpr (panels == 2) _tile_loadd(3, lower + tile, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        if constexpr (panels == 2) _tile_zero(2);
        if constexpr (panels == 2) _tile_zero(3);
    }
    for (int64_t k = inner.begin; k < inner.end; k += terms) {
        _tile_loadd(4, a.data + k, a_bytes);
        _tile_loadd(5, a.data + tile * a.row + k, a_bytes);
        _tile_loadd(6, b + k * tile, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        if constexpr (panels == 2) {
            _tile_loadd(7, b + panel + k * tile, 64);
            _tile_dpbf16ps(2, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, lower, c_bytes);
    if constexpr (panels == 2) _tile_stored(2, c + tile, c_bytes);
    if constexpr (panels == 2) _tile_stored(3, lower + tile, c_bytes);
}

/// 32 rows of C: columns `columns` (rounded outwards to sixteens; c points at column 0) with the terms `inner` (rounded outwards to
/// thirty-twos) of the sums.
template <bool accumulate>
inline void strip_product(Range inner, Left a, Right b, Range columns, float* c, int64_t c_row) {
    // The tile instructions of GCC do not say that they read memory.
    asm volatile("" ::: "memory");
    inner = {round_down(inner.begin, terms), round_up(inner.end, terms)};
    int64_t n = round_down(columns.begin, tile);
    for (; n + tile < columns.end; n += 2 * tile)
        block_product<2, accumulate>(inner, a, b.data + n / tile * b.panel, b.panel, c + n, c_row);
    if (n < columns.end) block_product<1, accumulate>(inner, a, b.data + n / tile * b.panel, b.panel, c + n, c_row);
    asm volatile("" ::: "memory");
}

// ---- packing ----

/// The bits of elements (i, c) … (i, c + 31).
CLOVER_INLINE f32x16 pairs(const Rows<bf16>& from, int64_t i, int64_t c) {
    if (i < from.begin || i >= from.end || c >= from.columns) return f32x16{};
    const bf16* p = from.data + (i - from.begin) * from.stride + c;
    const int64_t n = std::min<int64_t>(32, from.columns - c);
    return (f32x16)_mm512_maskz_loadu_epi16(__mmask32((uint64_t{1} << n) - 1), p);
}
/// Elements (i, c) … (i, c + 15).
CLOVER_INLINE simd::u16x16 halves(const Rows<bf16>& from, int64_t i, int64_t c) {
    if (i < from.begin || i >= from.end || c >= from.columns) return simd::u16x16{};
    const bf16* p = from.data + (i - from.begin) * from.stride + c;
    const int64_t n = std::min<int64_t>(16, from.columns - c);
    return (simd::u16x16)_mm256_maskz_loadu_epi16(__mmask16((uint32_t{1} << n) - 1), p);
}
CLOVER_INLINE void store_bits(bf16* to, simd::u16x16 bits) { std::memcpy(to, &bits, sizeof bits); }
CLOVER_INLINE void store_pairs(bf16* to, simd::u16x16 even, simd::u16x16 odd) {
    const simd::u32x16 both = __builtin_convertvector(even, simd::u32x16) | __builtin_convertvector(odd, simd::u32x16) << 16;
    std::memcpy(to, &both, sizeof both);
}

/// A: rows 0 … count − 1, `width` elements each.
inline void pack_left(const Rows<bf16>& from, int64_t count, bf16* to, int64_t width) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < width; c += 32) {
            from.prefetch(i + prefetch_distance, c);
            const f32x16 bits = pairs(from, i, c);
            std::memcpy(to + i * width + c, &bits, sizeof bits);
        }
}

/// Calls body(i, c, m) with m[n] lane l = the pair (2n, 2n + 1) of columns c + 2n of row i + l: blocks of 16 rows, 32 columns.
template <class Body>
CLOVER_INLINE void for_transposed_blocks(const Rows<bf16>& from, int64_t count, int64_t width, Body&& body) {
    for (int64_t i = 0; i < count; i += tile)
        for (int64_t c = 0; c < width; c += 32) {
            f32x16 m[16];
#pragma GCC unroll 16
            for (int r = 0; r < 16; r++) {
                from.prefetch(i + r + prefetch_distance, c);
                m[r] = pairs(from, i + r, c);
            }
            transpose(m);
            body(i, c, m);
        }
}

/// B = the transpose: its column n is row n. Panels of width · 16 elements.
inline void pack_transposed_right(const Rows<bf16>& from, int64_t count, bf16* to, int64_t width) {
    for_transposed_blocks(from, count, width, [&](int64_t i, int64_t c, f32x16(&m)[16]) {
        std::memcpy(to + i * width + c * tile, m, sizeof m);
    });
}
/// A = the transpose: (width, count).
inline void pack_transposed_left(const Rows<bf16>& from, int64_t count, bf16* to, int64_t width) {
    for_transposed_blocks(from, count, width, [&](int64_t i, int64_t c, f32x16(&m)[16]) {
        for (int n = 0; n < 16; n++) {
            const simd::u32x16 both = (simd::u32x16)m[n];
            store_bits(to + (c + 2 * n) * count + i, __builtin_convertvector(both & 0xffffu, simd::u16x16));
            store_bits(to + (c + 2 * n + 1) * count + i, __builtin_convertvector(both >> 16, simd::u16x16));
        }
    });
}
/// B = rows 0 … count − 1. Panels of `panel` elements, of which these are the first count · 16.
inline void pack_right(const Rows<bf16>& from, int64_t count, bf16* to, int64_t panel, int64_t width) {
    for (int64_t i = 0; i < count; i += 2)
        for (int64_t c = 0; c < width; c += tile) {
            from.prefetch(i + prefetch_distance, c);
            from.prefetch(i + prefetch_distance + 1, c);
            store_pairs(to + c / tile * panel + i * tile, halves(from, i, c), halves(from, i + 1, c));
        }
}

// ---- what u and v need of B = a transpose, packed by pack_transposed_right ----

CLOVER_INLINE f32x16 even_elements(simd::u32x16 both) { return (f32x16)(both << 16); }
CLOVER_INLINE f32x16 odd_elements(simd::u32x16 both) { return (f32x16)(both & 0xffff0000u); }
CLOVER_INLINE simd::u32x16 load_pairs(const bf16* p) {
    simd::u32x16 both;
    std::memcpy(&both, p, sizeof both);
    return both;
}

/// to[n] = Σ_k weights[k] b(k, n).
inline void weighted_column_sums(const float* weights, const bf16* b, int64_t width, int64_t count, float* to) {
    for (int64_t n = 0; n < count; n += tile) {
        f32x16 total{};
        for (int64_t k = 0; k < width; k += 2) {
            const simd::u32x16 both = load_pairs(b + n * width + k * tile);
            total += weights[k] * even_elements(both) + weights[k + 1] * odd_elements(both);
        }
        store(to + n, total);
    }
}
/// to[k] = Σ_n weights[n] b(k, n) for k < columns.
inline void weighted_row_sums(const float* weights, const bf16* b, int64_t width, int64_t count, int64_t columns, float* to) {
    for (int64_t k = 0; k < columns; k += 2) {
        f32x16 even{}, odd{};
        for (int64_t n = 0; n < count; n += tile) {
            const simd::u32x16 both = load_pairs(b + n * width + k * tile);
            even += load(weights + n) * even_elements(both);
            odd += load(weights + n) * odd_elements(both);
        }
        to[k] = simd::sum(even);
        if (k + 1 < columns) to[k + 1] = simd::sum(odd);
    }
}

}  // namespace clover::attention::amx
