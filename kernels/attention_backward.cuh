// The fast backward of attention on tensor cores, for all three kinds of position: no (T, T) matrix in memory, no atomics, the same bits
// every time. Formulas: attention.h; fragments, tiles and their banks: attention_tile.cuh.
//
// Every gradient has one owner: a block owns 64 or 128 rows of it, a warp 16 or 32 of those. Their sums stay in the warp's registers, and so
// do the owned operands, while the other side streams through shared memory, 32 or 64 rows at a time, the next ones arriving by
// cp.async. With δ_i = dO_i·O_i and G = P ∘ (dP − δ), which is divided by √D at the end:
//
//   pass        owns     streams   S             dP                   sums                                     element (row, column)
//   keys        K, V     Q, dO     K·Qᵀ + …      V·dOᵀ                dV += P·dO    dK += G·Q (+ u Σ_i G)      (key j, query i)
//   queries     Q, dO    K, V      Q·Kᵀ + …      dO·Vᵀ                dQ += G·K (+ G·r)                        (query i, key j)
//   distances   r        Q, dO     r·Qᵀ + …      V·dOᵀ, shifted       dr += G·Q + v Σ_i G                      (distance d, query i)
//
// S and dP are computed anew in each pass: that is the price of a fixed order of summation. The pass of the distances, for relative
// positions alone, streams all sequences. A warp works on squares of 16 own by 16 streamed rows: P and G leave the first two products
// in the layout that the next ones want on their left (pack()), rounded to bf16. Causality is i >= j for a key and, since j = i − d >= 0,
// i >= d for a distance: squares above the diagonal are skipped, those on it masked.
//
// Relative positions. Because d = i − j, two of the three indices span the square and the third is constant along its diagonals:
//
//            16 queries a              The pass of the keys owns j and needs r_d for the diagonals, that of the distances owns d and needs
//           ┌─────────────┐            k_j and v_j. Both times that is a band of 31 rows: those of (i of the first column) − (first own
//      16   │╲   ╲   ╲    │            row) + a − b. The band times the queries, (32, 16), has row a − b + 16 for element (b, a) of the
//      own  │  ╲   ╲   ╲  │            square: column a is shifted by a. The elements of a column lie in eight lanes of the warp, so
//      rows │╲   ╲   ╲   ╲│            that the shift is one shuffle for each (add_shifted_rows). Each half of a band serves a neighbour too,
//      b    └─────────────┘            which computes it anew unless it is the second strip of the same warp.
//
// The pass of the queries shifts rows of Q·rᵀ instead. It walks the keys downwards: the upper half of a band is the lower half of the next,
// so that each product q_i·r_d is computed once, and so that G, shifted back to the coordinates of its distances, meets the other half of
// each 16 distances in the next square and is multiplied by r once.
//
// The rows of the bands arrive once per block, in a ring. All three passes begin on the diagonal; then tile n of the stream adds the rows
// `streamed` n … `streamed` (n + 1) − 1 of the band (r, or K and V) and still needs the `owned` rows before them.
#pragma once
#include "attention_cuda.h"
#include "attention_tile.cuh"
#include "reduce.cuh"

namespace clover::tiles {

using Kind = AttentionPosition;
enum class Owner { keys, queries, distances };

/// What the passes read and write. B·T and H·3·D are less than 2^31.
struct Backward {
    int B, T, H, D;
    const bf16 *qkv, *dout;           // (B·T, H·3·D), (B·T, H·D)
    bf16* dqkv;                       // (B·T, H·3·D)
    const float* query_terms;         // (B, H, pitch, 2): lse · log2 e and δ; ∞ and 0 from T on, which makes P = G = 0
    int64_t pitch;                    // T rounded up to a multiple of 64
    float scale, score_scale;         // 1 / √D and log2 e / √D
    const float* slopes;              // alibi: (H)
    const bf16* r;                    // relative, as all below: (T, H·D)
    float* dr;                        // (T, H·D)
    const float *c, *e;               // (B, H, pitch), (H, pitch): RelativeScalars
    AnyFloats u, v;                   // (H, D)
    float *key_sums, *distance_sums;  // (B, H, pitch), (H, pitch): Σ_i G_ij and Σ_i G_i,i−d, divided by √D

    __device__ int64_t unit(unsigned b, unsigned h) const { return int64_t{b} * H + h; }
    /// q (part 0), k (1) or v (2) of head h of sequence b.
    template <int D>
    __device__ GlobalRows operand(unsigned b, unsigned h, int part) const {
        return {qkv + (int64_t{b} * T * H + h) * (3 * D) + part * D, H * (3 * D), T};
    }
    template <int D>
    __device__ GlobalRows output_gradient(unsigned b, unsigned h) const {
        return {dout + (int64_t{b} * T * H + h) * D, H * D, T};
    }
    template <int D>
    __device__ GlobalRows distances(unsigned h) const {
        return {r + int64_t{h} * D, H * D, T};
    }
    /// Row t of the gradient of operand<D>(b, h, part).
    template <int D>
    __device__ bf16* gradient(unsigned b, unsigned h, int part, int t) const {
        return dqkv + ((int64_t{b} * T + t) * H + h) * (3 * D) + part * D;
    }
};

/// How a pass is cut up: what the registers hold without spills. A warp has one strip of 16 own rows, or two where its registers take the
/// sums and operands of both; then each fragment that it loads from shared memory serves two products.
template <int D, Kind kind, Owner owner>
struct Plan {
    static constexpr bool relative = kind == Kind::relative;
    static constexpr int widest_of_two = owner == Owner::distances ? 64 : owner == Owner::keys ? (relative ? 32 : 64) : relative ? 0 : 80;
    static constexpr int strips = D <= widest_of_two ? 2 : 1;
    static constexpr int warps = strips == 2 || D <= 64 ? 4 : 8, threads = warps * warp_size;
    static constexpr int blocks = strips == 2 ? 2 : D <= 64 ? 3 : 1;  // to a multiprocessor, at least
    static constexpr int owned = 16 * strips * warps, streamed = relative ? 32 : 64;
    static constexpr int ring = owned + 2 * streamed;  // rows of a band: those in use, and those that arrive for the next tile
    static constexpr int bands = !relative || owner == Owner::queries ? relative : owner == Owner::keys ? 1 : 2;
};

// ---- Squares of 16 by 16 -------------------------------------------------------------------------------------------------------

/// Columns 0 … 7 and 8 … 15.
struct Square {
    FragmentC x[2] = {};
};
__device__ inline void multiply(Square& s, const FragmentA& a, const FragmentB& b) { multiply(s.x[0], s.x[1], a, b); }

/// Rounded to bf16, as left operands.
template <int strips>
__device__ inline void pack(FragmentA (&to)[strips], const Square (&squares)[strips]) {
#pragma unroll
    for (int m = 0; m < strips; m++) to[m] = pack(squares[m].x[0], squares[m].x[1]);
}
/// sums (16 each, D) += left · (rows k … k + 15 of the tile)
template <int strips, int D, int count>
__device__ inline void add_product(FragmentC (&sums)[strips][D / 8], const FragmentA (&left)[strips], const Tile<D, count>& tile, int k) {
#pragma unroll
    for (int n = 0; n < D; n += 16) {
        const FragmentB b = load_b_transposed(tile, k, n);
#pragma unroll
        for (int m = 0; m < strips; m++) multiply(sums[m][n / 8], sums[m][n / 8 + 1], left[m], b);
    }
}

/// Products that start from scalars of the rows, or of the columns.
__device__ inline void start_rows(Square& s, const float* rows) {
    const float upper = rows[lane_row()], lower = rows[lane_row() + 8];
#pragma unroll
    for (FragmentC& c : s.x) c = {{upper, upper, lower, lower}};
}
__device__ inline void start_columns(Square& s, const float* columns) {
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const Vector<float, 2> v = load_vector<2>(columns + 8 * n + 2 * lane_column());
        s.x[n] = {{v[0], v[1], v[0], v[1]}};
    }
}

/// s_(b, a) += row a − b + 16, column a of a band of 32 rows. An eighth of a column comes from two neighbouring eighths of the band's, each row
/// of a lane once: the lane that gives a value knows which of its two is asked for.
__device__ inline void add_shifted_rows(Square& s, const Square& lower, const Square& upper) {
    const int g = lane_row(), t = lane_column();
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const int a = 2 * t + c, from = 4 * ((a - g) & 7) + t;
        const auto block = [&](int n, int m) { return (m < 2 ? lower : upper).x[n].x[2 * (m % 2) + c]; };
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float given = g <= a ? block(n, n - half + 2) : block(n, n - half + 1);
                s.x[n].x[2 * half + c] += __shfl_sync(all_lanes, given, from);
            }
    }
}

/// s_(a, b) += row a, column a − b + 16 of a band of 32 columns. Columns move by an odd number in every second row: then the two that
/// a lane holds change places.
__device__ inline void add_shifted_columns(Square& s, const Square& lower, const Square& upper) {
    const int g = lane_row(), t = lane_column();
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const bool odd = (g + c) % 2;
        const bool second = 2 * t + odd <= g - c;  // the given column is for the key that is 8 lower
        const int from = 4 * g + ((g - 2 * t - c) & 7) / 2;
        const auto block = [&](int m, int half) {
            const float(&x)[4] = (m < 2 ? lower : upper).x[m % 2].x;
            return odd ? x[2 * half + 1] : x[2 * half];
        };
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float given = second ? block(half - n + 2, half) : block(half - n + 1, half);
                s.x[n].x[2 * half + c] += __shfl_sync(all_lanes, given, from);
            }
    }
}

/// (16, 32) as two left operands.
struct Shifted {
    FragmentA lower, upper;
};
/// The inverse of add_shifted_columns: element (a, b) of G goes to column a − b + 16, zeros elsewhere. Rows g and g + 8 move by the
/// same number modulo 8 and travel together, as bf16.
__device__ inline Shifted shift_back(const Square& s) {
    const int g = lane_row(), t = lane_column();
    uint32_t lowest[2], middle[2], highest[2];  // of row g: columns 2 t + c of blocks 0, 1, 2; of row g + 8: of blocks 1, 2, 3
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const int from = 4 * g + ((g - (g + c) % 2 - 2 * t - c) & 7) / 2;
        uint32_t came[2];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float(&x)[4] = s.x[n].x;
            const uint32_t even = ptx::pack_bf16(x[0], x[2]), odd = ptx::pack_bf16(x[1], x[3]);
            came[n] = __shfl_sync(all_lanes, (g + c) % 2 ? odd : even, from);
        }
        const bool beyond = 2 * t + c > g;
        lowest[c] = beyond ? came[1] : 0;
        middle[c] = beyond ? came[0] : came[1];
        highest[c] = beyond ? 0 : came[0];
    }
    const auto row_g = [](const uint32_t(&x)[2]) { return (x[0] & 0xffffu) | x[1] << 16; };
    const auto row_g8 = [](const uint32_t(&x)[2]) { return x[0] >> 16 | (x[1] & 0xffff0000u); };
    return {{{row_g(lowest), 0, row_g(middle), row_g8(lowest)}}, {{row_g(highest), row_g8(middle), 0, row_g8(highest)}}};
}

/// Bands of r, or of K and V, with the scalar of each of the first's rows: e_d, or c_j.
template <int D, int rows, int bands>
struct Ring {
    Tile<D, rows> band[bands];
    alignas(16) float scalars[rows];
};
template <int D, int rows>
struct Ring<D, rows, 0> {};

// ---- P and G -------------------------------------------------------------------------------------------------------------------

constexpr float log2_e = 1.4426950408889634f;

/// P of the scores of a lane in a square: 2^(S log2 e − lse log2 e).
template <Kind kind>
struct Probability {
    const Backward& a;
    float slope;  // times log2 e

    __device__ Probability(const Backward& a_, unsigned h) : a(a_), slope(kind == Kind::alibi ? a.slopes[h] * log2_e : 0.0f) {}
    /// What alibi adds to the score of the lane's first element, whose key is `distance` before its query.
    __device__ float position(int distance) const { return kind == Kind::alibi ? -slope * float(distance) : 0.0f; }
    /// An element whose distance is greater by `further`.
    __device__ float operator()(float s, float lse, float position, int further) const {
        if constexpr (kind == Kind::alibi) return ptx::exp2_approximate(fmaf(s, a.score_scale, fmaf(slope, float(-further), position) - lse));
        return ptx::exp2_approximate(fmaf(s, a.score_scale, -lse));
    }
};

/// On the diagonal: S = −∞ and dP = 0, which makes P = G = 0, for the elements (row, column) that are hidden.
template <class Hidden>
__device__ inline void hide(Square& s, Square& dp, Hidden&& hidden) {
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (hidden(lane_row() + i / 2 * 8, 8 * n + 2 * lane_column() + i % 2)) {
                s.x[n].x[i] = -INFINITY;
                dp.x[n].x[i] = 0;
            }
}

// ---- The passes ----------------------------------------------------------------------------------------------------------------

template <Owner owner>
void run_pass(Context& ctx, Kind kind, const Backward& a);
template <>
void run_pass<Owner::keys>(Context& ctx, Kind kind, const Backward& a);
template <>
void run_pass<Owner::queries>(Context& ctx, Kind kind, const Backward& a);
template <>
void run_pass<Owner::distances>(Context& ctx, Kind kind, const Backward& a);

/// Calls f with the head size and the kind of position as integral constants.
template <class F>
void by_shape(int64_t D, Kind kind, F&& f) {
    by_head_size(D, [&](auto size) {
        switch (kind) {
            case Kind::none: return f(size, std::integral_constant<Kind, Kind::none>{});
            case Kind::alibi: return f(size, std::integral_constant<Kind, Kind::alibi>{});
            case Kind::relative: return f(size, std::integral_constant<Kind, Kind::relative>{});
        }
    });
}

}  // namespace clover::tiles
