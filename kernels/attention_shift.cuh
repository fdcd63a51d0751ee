// The shift of Transformer-XL (Dai et al. 2019, appendix B) on tiles: from products of queries with distances to scores of keys.
//
// For a tile of 64 queries i = i0 + a and one of 64 keys j = j0 + b, i0 and j0 multiples of 64, the products with the distances of one
// tile of r, d = i0 − j0 + t, t = 0 … 63, are E_at = q_i·r_d + e_d. Because d = i − j,
//   t <= a belongs to key b = a − t       of this key tile (KeyTile::current)
//   t >  a belongs to key b = a − t + 64  of the one before it, j0 − 64 … j0 − 1 (KeyTile::previous)
// In both cases b = (a − t) mod 64: the 64 products of a row go to 64 different keys, a triangle to this tile and the other triangle to
// the previous one. ShiftRows keeps one float per key and row; a kernel that walks the keys downwards stores the current triangle,
// reads all 64 columns (the rest came from the tile of r before), and stores the other triangle for its next key tile. So each product
// is computed once and used once, and no more than one tile of r is needed at a time.
//
// Banks. A row of ShiftRows has 72 floats. Were the columns of E in their natural order, the four lanes of a quad would store to words
// 2 apart, and rows g and g + 4 would meet in one bank. So tiles of r have their rows in another order, such that lane t of a quad holds
// the distances 32 q + 8 t + x, x = 0 … 7, in its columns of the four C fragments 4 q … 4 q + 3. Then lane (g, t) stores to word
// 72 g + (g − 8 t) of its rows, but for a constant: the banks (9 g − 8 t) mod 32 are 32 different ones. The loads, two floats at word
// 72 g + 2 t, meet no conflicts either.
#pragma once
#include <type_traits>

#include "attention_tile.cuh"

namespace clover::tiles {

/// Row p of a tile of r holds distance of(p), and the other way round: bits 4, 3 and bits 2, 1 change places.
struct DistanceOrder {
    __device__ static constexpr int of(int row) { return (row & 33) | (row & 24) >> 2 | (row & 6) << 2; }
};

/// The accumulators of Q·rᵀ for 16 queries and a tile of 64 distances before the first product: e_d in every row. `e` is in natural order.
__device__ inline void start_band(FragmentC (&band)[rows / 8], const float* e) {
#pragma unroll
    for (int q = 0; q < 2; q++)
#pragma unroll
        for (int x = 0; x < 8; x += 4) {
            const Vector<float, 4> v = load_vector<4>(e + 32 * q + 8 * lane_column() + x);
#pragma unroll
            for (int y = 0; y < 4; y++) {
                float(&c)[4] = band[4 * q + (x + y) / 2].x;
                c[y % 2] = c[2 + y % 2] = v[y];
            }
        }
}

/// f(0), …, f(n − 1) with the number as a type. Unlike a loop, each call is code of its own for every compiler.
template <int n, class F>
__device__ inline void unrolled(F&& f) {
    if constexpr (n > 0) {
        unrolled<n - 1>(f);
        f(std::integral_constant<int, n - 1>{});
    }
}

enum class KeyTile { current, previous };

/// One float for each key of a tile, for the 16 query rows of one warp, which alone uses it. See the head of the file.
struct ShiftRows {
    static constexpr int pitch = rows + 8;
    alignas(16) float x[16 * pitch];

    __device__ void clear() {
#pragma unroll
        for (int n = 4 * lane_of_warp(); n < 16 * pitch; n += 4 * warp_size) store_vector(x + n, Vector<float, 4>{});
    }

    /// Stores the triangle that belongs to `keys`. `band` is E for the 16 queries from row a0 of their tile on. A __syncwarp() must stand
    /// between it and the loads.
    template <KeyTile keys>
    __device__ void store(const FragmentC (&band)[rows / 8], int a0) {
        constexpr bool current = keys == KeyTile::current;
        unrolled<32>([&](auto index) {
            constexpr int half = index / 16, column = index % 16, d = column / 8 * 32 + column % 8;
            const int r = lane_row() + 8 * half, a = a0 + r, t = d + 8 * lane_column();
            if ((t <= a) == current) x[r * pitch + a - t + (current ? 0 : rows)] = band[column / 2].x[2 * half + column % 2];
        });
    }

    /// The values of keys 8 n … 8 n + 7 as a C fragment.
    __device__ FragmentC load(int n) const {
        const float* pair = x + lane_row() * pitch + 8 * n + 2 * lane_column();
        const Vector<float, 2> upper = load_vector<2>(pair), lower = load_vector<2>(pair + 8 * pitch);
        return {{upper[0], upper[1], lower[0], lower[1]}};
    }
};

}  // namespace clover::tiles
