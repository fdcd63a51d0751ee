// Attention on CUDA, the readable rung: f32 arithmetic on the CUDA cores, f32, bf16 or f16 in memory, any D <= 256, any T. Training in f32 uses
// it, and so do the shapes that the tensor-core kernels leave out. Formulas: attention.h.
//
// Every kernel has the same form. A block owns 64 rows of one kind and streams tiles of 64 rows of another past them:
//   forward             owns queries,    streams keys:     O, lse (online softmax)
//   query gradients     owns queries,    streams keys:     dQ
//   key gradients       owns keys,       streams queries:  dK, dV
//   distance gradients  owns distances,  streams queries:  dr                      (relative)
// What a block owns no other block writes, and it adds in the order of the tiles: nothing is atomic, and the bits are always the same.
//
// Two products do all the work, both of 64 · 64 results by 16 · 16 threads, 4 · 4 results each:
//   add_dot_products    s[row][column] += own row · streamed row, over the D columns of both, 32 of them in shared memory at a time
//   add_weighted_rows   sum[row][c] += Σ_k weight[row][k] · (streamed row k)[c], with the weights (P or G) in shared memory
//
// Relative positions need the products of queries with distances at i − j. Distances base − 63 … base + 63 occur in a tile whose element
// (0, 0) has the distance base = i − j. With row a and column b of the tile, the products lie in one square, the band, at column (a − b) mod 64:
// those with a >= b belong to the distances from base on, the others to the 64 before. u and v are added to q where it is loaded.
#pragma once
#include "attention_checks.h"
#include "reduce.cuh"

namespace clover::plain {

constexpr int tile = 64;             // rows that a block owns, and that it streams at a time
constexpr int side = 16;             // threads are side × side; a warp is two rows of them
constexpr int per = tile / side;     // results of a thread per direction
constexpr int threads = side * side;
constexpr int chunk = 32;            // columns of the operands in shared memory
constexpr int greatest_head = 256;

// Pitches in floats. Operands: 8 neighbouring rows read as 16 bytes each fall into 32 different banks. Weights: the two half warps, one
// row apart, write 16 banks each. (Read from a slanted line of the band they share one bank, twice per tile.)
constexpr int operand_pitch = chunk + 4;
constexpr int weight_pitch = tile + 16;

/// With D > 128 a thread's sums take the registers of two.
template <int blocks>
constexpr int blocks_per_multiprocessor = blocks > 2 ? 1 : 2;

using Fragment = float[per][per];
using Square = float[tile][weight_pitch];

struct Shared {
    union {
        float operands[2][tile * operand_pitch];
        float values[tile * tile];
    };
    alignas(16) Square weights;
    float maxima[tile], sums[tile];
    // Relative positions only:
    float u[greatest_head], v[greatest_head];  // zero from D on
    Square band;
    Square slanted;
};

/// Rows of one head of one sequence; those outside 0 … count − 1 are zero.
template <class T>
struct Rows {
    const T* data;
    int stride, count;
    int columns;
    bool vectors;                 // four neighbouring elements may be loaded at once
    const float* bias = nullptr;  // (columns) in shared memory: added to each row
};

/// A tensor whose rows belong to sequences and heads.
template <class T>
struct HeadView {
    T* data;
    int64_t sequence, head;  // distances in elements
    int row;
    __device__ T* at(int64_t b, int64_t h, int64_t n = 0) const { return data + b * sequence + h * head + n * row; }
};

/// The grid is (sequences, heads, tiles that are owned). Positions within a sequence are ints: problem_of() checks that they fit.
template <class T>
struct Problem {
    int64_t B, H;
    int queries, D;
    float scale;
    bool vectors;
    HeadView<const T> q, k, v;
    const float* slopes;  // alibi, else null
    HeadView<const T> r;  // relative
    int distances;        // rows of r
    AnyFloats u, v_bias;
    const int32_t* past;  // (B) keys before the first query, or null: none
};

template <class T>
struct Head {
    Rows<T> content_q, position_q, k, v, r;  // q with u and with v
    float slope;
};

template <class T>
__device__ Rows<T> rows_of_r(const Problem<T>& p, int h) {
    return {p.r.at(0, h), p.r.row, p.distances, p.D, p.vectors};
}

template <bool relative, class T>
__device__ Head<T> head_of(const Problem<T>& p, int b, int h, const Shared& shared, int past = 0) {
    Head<T> head;
    const int keys = past + p.queries;
    head.content_q = {p.q.at(b, h), p.q.row, p.queries, p.D, p.vectors};
    head.k = {p.k.at(b, h), p.k.row, keys, p.D, p.vectors};
    head.v = {p.v.at(b, h), p.v.row, keys, p.D, p.vectors};
    head.slope = p.slopes ? p.slopes[h] : 0.0f;
    if constexpr (relative) {
        head.position_q = head.content_q;
        head.content_q.bias = shared.u;
        head.position_q.bias = shared.v;
        head.r = rows_of_r(p, h);
    }
    return head;
}

/// u and v of head h to shared memory. Visible after the barrier that every product begins with.
template <class T>
__device__ void load_biases(const Problem<T>& p, int h, Shared& shared) {
    for (int c = threadIdx.x; c < greatest_head; c += threads) {
        const int64_t at = int64_t(h) * p.D + c;
        shared.u[c] = c < p.D ? p.u[at] : 0.0f;
        shared.v[c] = c < p.D ? p.v_bias[at] : 0.0f;
    }
}

// ---- Fragments: element (m, n) of a thread is (row, column) of the tile --------------------------------------------------------

__device__ __forceinline__ int row_of(int m) { return int(threadIdx.x) / side + side * m; }
__device__ __forceinline__ int column_of(int n) { return int(threadIdx.x) % side + side * n; }

template <class F>
__device__ __forceinline__ void for_elements(F&& f) {
#pragma unroll
    for (int m = 0; m < per; m++)
#pragma unroll
        for (int n = 0; n < per; n++) f(m, n, row_of(m), column_of(n));
}

/// Over the 16 threads of a row; the same bits in each.
__device__ __forceinline__ float row_sum(float x) {
    for (int step = side / 2; step > 0; step /= 2) x += __shfl_xor_sync(all_lanes, x, step);
    return x;
}
__device__ __forceinline__ float row_max(float x) {
    for (int step = side / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(all_lanes, x, step));
    return x;
}

/// One number per row, in the hands of the row's first thread.
__device__ __forceinline__ void fill_rows(float (&rows)[tile], float x) {
    for (int m = 0; m < per; m++)
        if (column_of(0) == 0) rows[row_of(m)] = x;
}

/// Stores the elements for which where(row, column) holds.
template <class Where>
__device__ __forceinline__ void store_where(Square& to, const Fragment& x, Where&& where) {
    for_elements([&](int m, int n, int row, int column) {
        if (where(row, column)) to[row][column] = x[m][n];
    });
}

/// All elements, after everybody has read what was there.
__device__ __forceinline__ void store_weights(Square& to, const Fragment& x) {
    __syncthreads();
    store_where(to, x, [](int, int) { return true; });
}

// ---- Products ------------------------------------------------------------------------------------------------------------------

/// Elements column … column + 3 of a row, as floats.
template <class T>
__device__ __forceinline__ Vector<float, 4> load_four(const Rows<T>& from, int row, int column) {
    Vector<float, 4> x{};
    if (row < 0 || row >= from.count || column >= from.columns) return x;
    const T* p = from.data + int64_t(row) * from.stride + column;
    if (from.vectors) {
        const Vector<T, 4> four = load_vector<4>(p);
        for (int i = 0; i < 4; i++) x[i] = to_float(four[i]);
    } else {
        for (int i = 0; i < 4; i++) x[i] = column + i < from.columns ? to_float(p[i]) : 0.0f;
    }
    if (from.bias)
        for (int i = 0; i < 4; i++) x[i] += from.bias[column + i];
    return x;
}

/// Rows first … first + 63, columns column … column + width − 1. All loads are under way before the first is stored.
template <int width, int pitch, class T>
__device__ __forceinline__ void load_tile(float* to, const Rows<T>& from, int first, int column) {
    constexpr int fours = width / 4, rows_at_once = threads / fours, times = tile / rows_at_once;
    const int row = int(threadIdx.x) / fours, c = int(threadIdx.x) % fours * 4;
    Vector<float, 4> x[times];
#pragma unroll
    for (int t = 0; t < times; t++) x[t] = load_four(from, first + row + t * rows_at_once, column + c);
#pragma unroll
    for (int t = 0; t < times; t++) store_vector(to + (row + t * rows_at_once) * pitch + c, x[t]);
}

/// s[row][column] += own row own_first + row · streamed row streamed_first + column.
template <class T>
__device__ __forceinline__ void add_dot_products(Fragment& s, const Rows<T>& own, int own_first, const Rows<T>& streamed,
                                                 int streamed_first, Shared& shared) {
    for (int column = 0; column < own.columns; column += chunk) {
        __syncthreads();
        load_tile<chunk, operand_pitch>(shared.operands[0], own, own_first, column);
        load_tile<chunk, operand_pitch>(shared.operands[1], streamed, streamed_first, column);
        __syncthreads();
        const int columns = min(chunk, own.columns - column);  // zeros follow up to a multiple of four
#pragma unroll 1
        for (int c = 0; c < columns; c += 4) {
            Vector<float, 4> a[per], b[per];
            for (int m = 0; m < per; m++) a[m] = load_vector<4>(&shared.operands[0][row_of(m) * operand_pitch + c]);
            for (int n = 0; n < per; n++) b[n] = load_vector<4>(&shared.operands[1][column_of(n) * operand_pitch + c]);
#pragma unroll
            for (int m = 0; m < per; m++)
                for (int n = 0; n < per; n++)
                    for (int i = 0; i < 4; i++) s[m][n] += a[m][i] * b[n][i];
        }
    }
}

/// sum[block][m][n] += Σ_k weights[row m][k] · (row first + k)[64 block + 4 (thread of the row) + n]. Blocks of columns beyond D are left out.
template <int blocks, class T>
__device__ __forceinline__ void add_weighted_rows(float (&sum)[blocks][per][per], const Square& weights, const Rows<T>& rows, int first,
                                                  Shared& shared) {
#pragma unroll
    for (int block = 0; block < blocks; block++) {
        if (block * tile >= rows.columns) break;
        __syncthreads();
        load_tile<tile, tile>(shared.values, rows, first, block * tile);
        __syncthreads();
#pragma unroll 1
        for (int k = 0; k < tile; k += 4) {
            Vector<float, 4> w[per], value[4];
            for (int m = 0; m < per; m++) w[m] = load_vector<4>(&weights[row_of(m)][k]);
            for (int i = 0; i < 4; i++) value[i] = load_vector<4>(&shared.values[(k + i) * tile + int(threadIdx.x) % side * per]);
#pragma unroll
            for (int m = 0; m < per; m++)
                for (int n = 0; n < per; n++)
                    for (int i = 0; i < 4; i++) sum[block][m][n] += w[m][i] * value[i][n];
        }
    }
}

/// Rows first … of `to`, as many of them as there are.
template <class To, class T, int blocks>
__device__ void store_sums(To* to, int stride, int first, const Problem<T>& p, const float (&sum)[blocks][per][per]) {
#pragma unroll
    for (int block = 0; block < blocks; block++)
#pragma unroll
        for (int m = 0; m < per; m++) {
            const int row = first + row_of(m);
            const int column = block * tile + int(threadIdx.x) % side * per;
            if (row >= p.queries || column >= p.D) continue;
            Vector<To, 4> x;
            for (int n = 0; n < per; n++) x[n] = from_float<To>(sum[block][m][n]);
            To* at = to + int64_t(row) * stride + column;
            if (p.vectors) store_vector(at, x);
            else
                for (int n = 0; n < per; n++)
                    if (column + n < p.D) at[n] = x[n];
        }
}

// ---- The band of relative positions --------------------------------------------------------------------------------------------

/// The products of the own rows with x_base … x_{base + 63}, for the first carried_band.
template <class T>
__device__ __forceinline__ void begin_band(const Rows<T>& own, int own_first, const Rows<T>& x, int base, Shared& shared) {
    Fragment products{};
    add_dot_products(products, own, own_first, x, base, shared);
    store_where(shared.band, products, [](int row, int column) { return row >= column; });
}

/// s[row][column] = (own row) · x_{base + row − column}. The products with x_base … are in the band from before; those with the 64 x before
/// are computed, and stay for the next tile of columns, whose base is smaller by 64.
template <class T>
__device__ __forceinline__ void carried_band(Fragment& s, const Rows<T>& own, int own_first, const Rows<T>& x, int base, Shared& shared) {
    Fragment products{};
    if (base > 0) add_dot_products(products, own, own_first, x, base - tile, shared);
    store_where(shared.band, products, [](int row, int column) { return row < column; });
    __syncthreads();
    for_elements([&](int m, int n, int row, int column) { s[m][n] = shared.band[row][(row - column) & (tile - 1)]; });
    __syncthreads();
    store_where(shared.band, products, [](int row, int column) { return row >= column; });
}

/// s[row][column] = x_{base + column − row} · (streamed row streamed_first + column). Both squares of products are computed anew.
template <class T>
__device__ __forceinline__ void computed_band(Fragment& s, const Rows<T>& x, int base, const Rows<T>& streamed, int streamed_first,
                                              Shared& shared) {
    for_elements([&](int m, int n, int, int) { s[m][n] = 0; });
    add_dot_products(s, x, base, streamed, streamed_first, shared);
    store_where(shared.band, s, [](int row, int column) { return row <= column; });
    for_elements([&](int m, int n, int, int) { s[m][n] = 0; });
    if (base > 0) add_dot_products(s, x, base - tile, streamed, streamed_first, shared);
    store_where(shared.band, s, [](int row, int column) { return row > column; });
    __syncthreads();
    for_elements([&](int m, int n, int row, int column) { s[m][n] = shared.band[(column - row) & (tile - 1)][column]; });
}

// ---- Scores -------------------------------------------------------------------------------------------------------------------

/// s, which starts at zero: the scores of queries i0 … against keys j0 …, `base` positions before them; whether they are visible is not asked.
template <bool relative, class T>
__device__ __forceinline__ void score_keys(Fragment& s, const Head<T>& head, int i0, int j0, int base, float scale, Shared& shared) {
    if constexpr (relative) carried_band(s, head.position_q, i0, head.r, base, shared);
    add_dot_products(s, head.content_q, i0, head.k, j0, shared);
    for_elements([&](int m, int n, int row, int column) {
        s[m][n] *= scale;
        if constexpr (!relative) s[m][n] += head.slope * float(column - row - base);
    });
}

// ---- On the host ----------------------------------------------------------------------------------------------------------------

/// Part 0, 1 or 2 (q, k, v) of rows [head][q, k, v][D], T of them per sequence.
template <class T>
HeadView<T> part_of(const Tensor& qkv, int64_t rows, int64_t D, int part) {
    return {static_cast<T*>(qkv.data) + part * D, rows * qkv.columns(), 3 * D, int(qkv.columns())};
}
/// Rows [head][D], `rows` of them per sequence (0: the same ones for all).
template <class T>
HeadView<T> heads_of(const Tensor& t, int64_t rows, int64_t D) {
    return {static_cast<T*>(t.data), rows * t.columns(), D, int(t.columns())};
}

/// A cache (B, H, capacity, D).
template <class T>
HeadView<T> cache_of(const Tensor& t) {
    const int64_t head = t.shape[2] * t.shape[3];
    return {static_cast<T*>(t.data), t.shape[1] * head, head, int(t.shape[3])};
}

/// Whether rows of D elements can be moved `n` elements at a time.
inline bool vectors_possible(int n, int64_t D, std::initializer_list<Tensor> tensors) {
    if (D % n != 0) return false;
    for (const Tensor& t : tensors)
        if (t.present() && reinterpret_cast<uintptr_t>(t.data) % (n * bytes_of(t.dtype)) != 0) return false;
    return true;
}

inline int64_t tiles_of(int64_t rows) { return (rows + tile - 1) / tile; }
constexpr int64_t greatest_position = INT32_MAX - 2 * tile;

/// All but k and v of a problem.
template <class T>
Problem<T> problem_of(const Tensor& qkv, const PositionTerm& position, int64_t B, int64_t queries, int64_t H, int64_t D) {
    constexpr int64_t blocks = 65535;  // in the second and third dimension of a grid
    CLOVER_CHECK(H <= blocks && tiles_of(queries) <= blocks && qkv.columns() <= greatest_position, qkv.describe());
    Problem<T> p{};
    p.B = B, p.H = H, p.queries = int(queries), p.D = int(D);
    p.scale = float(1 / std::sqrt(double(D)));
    p.q = part_of<const T>(qkv, queries, D, 0);
    if (position.kind == AttentionPosition::alibi) p.slopes = static_cast<const float*>(position.slopes.data);
    if (position.kind != AttentionPosition::relative) return p;
    p.r = heads_of<const T>(position.r, 0, D);
    p.distances = int(std::min(position.r.shape[0], greatest_position));
    p.u = AnyFloats(position.content_bias), p.v_bias = AnyFloats(position.position_bias);
    return p;
}

template <class T>
dim3 grid_of(int64_t sequences, const Problem<T>& p) {
    return dim3(blocks_for(sequences, 1), unsigned(p.H), unsigned(tiles_of(p.queries)));
}
/// Shared memory of a kernel with or without relative positions.
inline size_t shared_bytes(bool relative) { return relative ? sizeof(Shared) : offsetof(Shared, u); }

/// Calls f with constants: whether the position is relative, how many blocks of 64 columns hold D.
template <class F>
void specialised(bool relative, int64_t D, F&& f) {
    const auto with_blocks = [&](auto r) {
        if (D <= tile) f(r, std::integral_constant<int, 1>{});
        else if (D <= 2 * tile) f(r, std::integral_constant<int, 2>{});
        else f(r, std::integral_constant<int, 4>{});
    };
    if (relative) with_blocks(std::true_type{});
    else with_blocks(std::false_type{});
}

}  // namespace clover::plain
