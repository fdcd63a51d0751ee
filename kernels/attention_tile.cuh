// What the fast attention kernels are made of: tiles of 64 rows in shared memory, and the fragments of mma.m16n8k16 (ptx.cuh).
//
// Tiles. A (64, D) bf16 tile of queries, keys, values, gradients or distances has rows of D + 8 elements. That is an odd number of
// 16-byte chunks for every D here, so that eight consecutive rows start in eight different groups of four banks: ldmatrix, which
// reads eight rows at a time, has no bank conflicts, and neither have the stores of C fragments. load_rows_async() fills a tile from
// strided rows of global memory by cp.async and puts zeros where there are no rows.
//
// Fragments, and where they come from (a row and a column of the tile is the fragment's corner):
//   load_a             A (16 m, 16 k) of a tile that has rows m, columns k      Q of Q·Kᵀ
//   load_b             B (16 k, 16 n) of a tile that has rows n, columns k      K of Q·Kᵀ
//   load_b_transposed  B (16 k, 16 n) of a tile that has rows k, columns n      V of P·V
// A B fragment here is two of the instruction's, for columns 0 … 7 and 8 … 15. In a C fragment (16, 8) lane 4 g + t holds of rows g and
// g + 8 the columns 2 t and 2 t + 1; pack() makes an A fragment of two neighbouring ones.
#pragma once
#include <type_traits>

#include "bf16.h"
#include "cuda.cuh"

namespace clover::tiles {

constexpr int rows = 64;  // of a tile

template <int D>
inline constexpr int pitch = D + 8;

/// (count, D) in shared memory.
template <int D, int count = rows>
struct Tile {
    static_assert(D % 16 == 0 && pitch<D> / 8 % 2 == 1);
    alignas(16) bf16 x[count * pitch<D>];

    __device__ bf16* at(int row, int column) { return x + row * pitch<D> + column; }
    __device__ const bf16* at(int row, int column) const { return x + row * pitch<D> + column; }
};

/// The rows of a matrix in global memory: row n is at data + n · stride, 16-byte aligned.
struct GlobalRows {
    const bf16* data;
    int64_t stride, count;
};

// ---- Global to shared ----------------------------------------------------------------------------------------------------------

struct NaturalOrder {
    __device__ static constexpr int of(int row) { return row; }
};

/// Starts copying rows first … first + n − 1 (0 <= first, count > 0) to rows at … at + n − 1 of a tile; rows from `count` on become zero.
/// All `threads` of the block take part. Eight lanes take 128 bytes of a row or, where rows have no multiple of that, 16 bytes of eight
/// rows: either way they write to all banks. Row p of the tile gets row Order::of(p) of those, with Order::of(p + q) = Order::of(p) +
/// Order::of(q) where p and q have no bit in common.
template <int threads, int n, class Order = NaturalOrder, int D, int tile_rows>
__device__ inline void load_rows_async(Tile<D, tile_rows>& to, int at, const GlobalRows& from, int64_t first) {
    constexpr bool along = D % 64 == 0;
    constexpr int columns = along ? 64 : 32, rows_at_once = threads * 8 / columns;
    const int eight = int(threadIdx.x / 8), one = int(threadIdx.x % 8);
    const int row = along ? eight : eight / 4 * 8 + one, column = 8 * (along ? one : eight % 4);
    const int stride = int(from.stride), source_row = int(first) + Order::of(row);
#pragma unroll
    for (int r = 0; r < n; r += rows_at_once) {
        if (n % rows_at_once != 0 && r + row >= n) return;
        const int further = Order::of(r);
        const bool there = source_row < int(from.count) - further;
        const bf16* source = from.data + int64_t{there ? source_row + further : 0} * stride + column;
#pragma unroll
        for (int c = 0; c < D; c += columns)
            if (c + columns <= D || c + column < D) ptx::cp_async_16(to.at(at + r + row, c + column), source + c, there ? 16 : 0);
    }
}

/// Starts copying `count` floats, 16-byte aligned; by the block's first threads.
template <int count = rows>
__device__ inline void load_floats_async(float* to, const float* from) {
    if (threadIdx.x < count / 4) ptx::cp_async_16(to + 4 * threadIdx.x, from + 4 * threadIdx.x);
}

// ---- Fragments -----------------------------------------------------------------------------------------------------------------

__device__ inline int lane_of_warp() { return int(threadIdx.x % warp_size); }
/// g and t of lane 4 g + t.
__device__ inline int lane_row() { return int(threadIdx.x % warp_size / 4); }
__device__ inline int lane_column() { return int(threadIdx.x % 4); }

struct FragmentA {
    uint32_t r[4];
};
struct FragmentB {
    uint32_t r[4];  // columns 0 … 7: r[0], r[1]; columns 8 … 15: r[2], r[3]
};
struct FragmentC {
    float x[4];  // (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1)
};

template <int D, int count>
__device__ inline FragmentA load_a(const Tile<D, count>& tile, int m, int k) {
    const int lane = lane_of_warp();
    FragmentA a;
    ptx::ldmatrix_x4(a.r, tile.at(m + lane % 16, k + lane / 16 * 8));
    return a;
}
template <int D, int count>
__device__ inline FragmentB load_b(const Tile<D, count>& tile, int n, int k) {
    const int lane = lane_of_warp();
    FragmentB b;
    ptx::ldmatrix_x4(b.r, tile.at(n + lane % 8 + lane / 16 * 8, k + lane / 8 % 2 * 8));
    return b;
}
template <int D, int count>
__device__ inline FragmentB load_b_transposed(const Tile<D, count>& tile, int k, int n) {
    const int lane = lane_of_warp();
    FragmentB b;
    ptx::ldmatrix_x4_transposed(b.r, tile.at(k + lane % 16, n + lane / 16 * 8));
    return b;
}

/// The A fragments of rows first … first + 15, straight from global memory (count > 0); rows from `count` on are zero.
template <int D>
__device__ inline void load_a(FragmentA (&a)[D / 16], const GlobalRows& from, int64_t first) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t row = first + lane_row() + 8 * half;
        const bool valid = row < from.count;
        const bf16* p = from.data + (valid ? row : 0) * from.stride + 2 * lane_column();
#pragma unroll
        for (int k = 0; k < D; k += 8) {
            uint32_t pair = 0;
            if (valid) ptx::load<4>(&pair, p + k);
            a[k / 16].r[half + k % 16 / 4] = pair;
        }
    }
}

/// (c, d) += a b, where c has the first 8 columns and d the others.
__device__ inline void multiply(FragmentC& c, FragmentC& d, const FragmentA& a, const FragmentB& b) {
    ptx::mma_m16n8k16(c.x, a.r, {b.r[0], b.r[1]});
    ptx::mma_m16n8k16(d.x, a.r, {b.r[2], b.r[3]});
}

/// c (16 M, 64) += a (16 M, D) · tileᵀ: queries by keys or distances. a.at(m, k) is the fragment of rows 16 m …, columns k ….
template <int M, class Queries, int D>
__device__ inline void multiply_transposed(FragmentC (&c)[M][rows / 8], const Queries& a, const Tile<D>& tile) {
    // Unrolled completely, the loads of the widest case would move so far ahead that they run out of registers.
    [[maybe_unused]] constexpr int steps = M * D == 256 ? 2 : D / 16;
#pragma unroll steps
    for (int k = 0; k < D; k += 16) {
        FragmentA row[M];
#pragma unroll
        for (int m = 0; m < M; m++) row[m] = a.at(m, k);
#pragma unroll
        for (int n = 0; n < rows; n += 16) {
            const FragmentB b = load_b(tile, n, k);
#pragma unroll
            for (int m = 0; m < M; m++) multiply(c[m][n / 8], c[m][n / 8 + 1], row[m], b);
        }
    }
}

/// (16, 16) rounded to bf16 as the left operand.
__device__ inline FragmentA pack(const FragmentC& c, const FragmentC& d) {
    return {{ptx::pack_bf16(c.x[0], c.x[1]), ptx::pack_bf16(c.x[2], c.x[3]), ptx::pack_bf16(d.x[0], d.x[1]), ptx::pack_bf16(d.x[2], d.x[3])}};
}

/// Over the four lanes that share a row of C; the same bits in all four.
__device__ inline float quad_sum(float x) {
    x += __shfl_xor_sync(all_lanes, x, 1);
    return x + __shfl_xor_sync(all_lanes, x, 2);
}
__device__ inline float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(all_lanes, x, 1));
    return fmaxf(x, __shfl_xor_sync(all_lanes, x, 2));
}

/// 16 rows of C fragments, times a factor, as bf16 to rows 0 … count − 1 of `to`. They pass through `staging`, 16 rows of a tile for this warp
/// alone, so that they leave in pieces of 16 bytes.
template <int D>
__device__ inline void store_rows(const FragmentC (&sums)[D / 8], float factor, bf16* staging, bf16* to, int64_t stride, int count) {
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t pair = ptx::pack_bf16(sums[n].x[2 * half] * factor, sums[n].x[2 * half + 1] * factor);
            ptx::store<4>(staging + (lane_row() + 8 * half) * pitch<D> + 8 * n + 2 * lane_column(), &pair);
        }
    __syncwarp();
#pragma unroll
    for (int row = lane_of_warp() % 8; row < 16; row += 8)
#pragma unroll
        for (int column = lane_of_warp() / 8 * 8; column < D; column += 32)
            if (row < count) store_vector(to + row * stride + column, load_vector<8>(staging + row * pitch<D> + column));
    __syncwarp();
}

// ---- For the host --------------------------------------------------------------------------------------------------------------

/// Calls f(std::integral_constant<int, D>) for a head size that has fast kernels; else returns false.
template <class F>
bool by_head_size(int64_t D, F&& f) {
    switch (D) {
        case 32: f(std::integral_constant<int, 32>{}); return true;
        case 64: f(std::integral_constant<int, 64>{}); return true;
        case 80: f(std::integral_constant<int, 80>{}); return true;
        case 96: f(std::integral_constant<int, 96>{}); return true;
        case 128: f(std::integral_constant<int, 128>{}); return true;
    }
    return false;
}

}  // namespace clover::tiles
