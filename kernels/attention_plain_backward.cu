// The plain backward on CUDA; see attention_plain.cuh. Every pass computes the scores anew, so that no (T, T) matrix is kept:
//   P_ij = exp(S_ij − lse_i)      G_ij = P_ij (dO_i·v_j − D_i) / √D      D_i = dO_i·O_i
// u and v get their gradients from sums of G: du = Σ_j (Σ_i G_ij) k_j, summed over 64 keys by the block that owns them, and
// dv_bias = Σ_d (Σ_i G_i,i−d) r_d, over 64 distances by theirs; a last kernel adds the parts up in order.
#include "attention_cuda.h"
#include "attention_plain.cuh"

namespace clover {
namespace plain {
namespace {

template <class T>
struct Gradients {
    HeadView<const T> dout;
    HeadView<T> dq, dk, dv;
    const float *lse, *row_dots;  // (B, H, T): lse and D_i
    HeadView<float> dr;           // relative: (T, H·D)
    float *du_parts, *dv_parts;   // relative: (B, H, tiles, D) and (H, tiles, D)
};

/// D_i = dO_i·O_i, one warp per row of a head.
template <class T>
__global__ void plain_row_dots(HeadView<const T> dout, HeadView<const T> out, int64_t H, int64_t rows, int D, int64_t count, float* to) {
    const int64_t n = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / warp_size, unit = n / rows, i = n % rows;
    if (n >= count) return;
    const T* d = dout.at(unit / H, unit % H) + i * dout.row;
    const T* o = out.at(unit / H, unit % H) + i * out.row;
    float sum = 0;
    for (int c = threadIdx.x % warp_size; c < D; c += warp_size) sum += to_float(d[c]) * to_float(o[c]);
    sum = warp_sum(sum);
    if (threadIdx.x % warp_size == 0) to[n] = sum;
}

/// What P and G of a query need beside the scores. A query that does not exist has an infinite lse, so that its P and G are zero.
struct QueryState {
    float lse, row_dot;
};
template <class T>
__device__ __forceinline__ QueryState query_state(const Gradients<T>& g, const Problem<T>& p, int b, int h, int i) {
    if (i >= p.queries) return {INFINITY, 0};
    const int64_t at = (b * p.H + h) * p.queries + i;
    return {g.lse[at], g.row_dots[at]};
}
__device__ __forceinline__ float probability(float score, const QueryState& q, bool visible) {
    return visible ? expf(score - q.lse) : 0.0f;
}
__device__ __forceinline__ float gradient(float probability, float dp, const QueryState& q, float scale) {
    return probability * ((dp - q.row_dot) * scale);
}

template <class T>
__device__ Rows<T> dout_of(const Gradients<T>& g, const Problem<T>& p, int b, int h) {
    return {g.dout.at(b, h), g.dout.row, p.queries, p.D, p.vectors};
}

/// sums[row] += Σ_column g[row][column], by one thread of each row.
__device__ __forceinline__ void add_row_sums(float (&sums)[tile], const Fragment& g) {
    for (int m = 0; m < per; m++) {
        const float sum = row_sum((g[m][0] + g[m][1]) + (g[m][2] + g[m][3]));
        if (column_of(0) == 0) sums[row_of(m)] += sum;
    }
}

/// parts[c] = Σ_row sums[row] · (row first + row)[c].
template <class T>
__device__ void store_weighted_sum(float* parts, const float (&sums)[tile], const Rows<T>& rows, int first) {
    __syncthreads();
    for (int c = threadIdx.x; c < rows.columns; c += threads) {
        float total = 0;
        for (int row = 0; row < tile && first + row < rows.count; row++)
            total += sums[row] * to_float(rows.data[int64_t(first + row) * rows.stride + c]);
        parts[c] = total;
    }
}

/// Copies this thread's weights for which where(row, column) holds to the column of their distance.
template <class Where>
__device__ __forceinline__ void slant(Shared& shared, Where&& where) {
    for_elements([&](int, int, int row, int column) {
        if (where(row, column)) shared.slanted[row][(row - column) & (tile - 1)] = shared.weights[row][column];
    });
}

/// dQ_i = Σ_j G_ij (k_j + r_{i−j}). G against distances is G against keys along slanted lines: of a tile, the elements with row >= column go
/// to the distances from base on, which are complete with them, and the others begin the 64 distances before.
template <class T, bool relative, int blocks>
__global__ void __launch_bounds__(threads, blocks_per_multiprocessor<blocks>) plain_query_gradients(Problem<T> p, Gradients<T> grad) {
    Shared& shared = *shared_memory<Shared>();
    const int b = blockIdx.x, h = blockIdx.y, i0 = int(gridDim.z - 1 - blockIdx.z) * tile;  // those with most keys first
    if constexpr (relative) load_biases(p, h, shared);
    const Head<T> head = head_of<relative>(p, b, h, shared);
    const Rows<T> dout = dout_of(grad, p, b, h);

    float sum[blocks][per][per]{};
    if constexpr (relative) {
        store_where(shared.slanted, Fragment{}, [](int row, int column) { return row < column; });
        begin_band(head.position_q, i0, head.r, i0, shared);
    }
    for (int j0 = 0; j0 <= i0; j0 += tile) {
        Fragment g{}, dp{};
        score_keys<relative>(g, head, i0, j0, i0 - j0, p.scale, shared);
        add_dot_products(dp, dout, i0, head.v, j0, shared);
        QueryState query[per];
        for (int m = 0; m < per; m++) query[m] = query_state(grad, p, b, h, i0 + row_of(m));
        for_elements([&](int m, int n, int row, int column) {
            g[m][n] = gradient(probability(g[m][n], query[m], j0 + column <= i0 + row), dp[m][n], query[m], p.scale);
        });
        store_weights(shared.weights, g);
        add_weighted_rows(sum, shared.weights, head.k, j0, shared);
        if constexpr (relative) {
            slant(shared, [](int row, int column) { return row >= column; });
            add_weighted_rows(sum, shared.slanted, head.r, i0 - j0, shared);
            __syncthreads();
            slant(shared, [](int row, int column) { return row < column; });
        }
    }
    store_sums(grad.dq.at(b, h), grad.dq.row, i0, p, sum);
}

/// dV_j = Σ_i P_ij dO_i,  dK_j = Σ_i G_ij (q_i + u). Rows are keys, columns queries.
template <class T, bool relative, int blocks>
__global__ void __launch_bounds__(threads, blocks_per_multiprocessor<2 * blocks>) plain_key_gradients(Problem<T> p, Gradients<T> grad) {
    Shared& shared = *shared_memory<Shared>();
    const int b = blockIdx.x, h = blockIdx.y, j0 = int(blockIdx.z) * tile;
    if constexpr (relative) load_biases(p, h, shared);
    const Head<T> head = head_of<relative>(p, b, h, shared);
    const Rows<T> dout = dout_of(grad, p, b, h);

    float dk[blocks][per][per]{}, dv[blocks][per][per]{};
    if constexpr (relative) fill_rows(shared.sums, 0);
    for (int i0 = j0; i0 < p.queries; i0 += tile) {
        Fragment s{}, dp{};
        if constexpr (relative) computed_band(s, head.r, i0 - j0, head.position_q, i0, shared);
        add_dot_products(s, head.k, j0, head.content_q, i0, shared);
        add_dot_products(dp, head.v, j0, dout, i0, shared);
        QueryState query[per];
        for (int n = 0; n < per; n++) query[n] = query_state(grad, p, b, h, i0 + column_of(n));
        for_elements([&](int m, int n, int row, int column) {
            const int offset = j0 + row - (i0 + column);
            const float bias = relative ? 0.0f : head.slope * float(offset);
            s[m][n] = probability(s[m][n] * p.scale + bias, query[n], offset <= 0);
        });
        store_weights(shared.weights, s);
        add_weighted_rows(dv, shared.weights, dout, i0, shared);
        for_elements([&](int m, int n, int, int) { s[m][n] = gradient(s[m][n], dp[m][n], query[n], p.scale); });
        if constexpr (relative) add_row_sums(shared.sums, s);
        store_weights(shared.weights, s);
        add_weighted_rows(dk, shared.weights, head.content_q, i0, shared);
    }
    store_sums(grad.dk.at(b, h), grad.dk.row, j0, p, dk);
    store_sums(grad.dv.at(b, h), grad.dv.row, j0, p, dv);
    if constexpr (relative)
        store_weighted_sum(grad.du_parts + ((b * p.H + h) * gridDim.z + blockIdx.z) * p.D, shared.sums, head.k, j0);
}

/// dr_d = Σ_i G_i,i−d (q_i + v), summed over the batch. Rows are distances, columns queries; the key of an element is i − d, so that here
/// k and v are banded and r is not.
template <class T, int blocks>
__global__ void __launch_bounds__(threads, blocks_per_multiprocessor<blocks>) plain_distance_gradients(Problem<T> p, Gradients<T> grad) {
    Shared& shared = *shared_memory<Shared>();
    const int h = blockIdx.y, d0 = int(blockIdx.z) * tile;
    load_biases(p, h, shared);
    float dr[blocks][per][per]{};
    fill_rows(shared.sums, 0);
    for (int b = 0; b < p.B; b++) {
        const Head<T> head = head_of<true>(p, b, h, shared);
        const Rows<T> dout = dout_of(grad, p, b, h);
        for (int i0 = d0; i0 < p.queries; i0 += tile) {
            Fragment g{}, dp{};
            computed_band(g, head.k, i0 - d0, head.content_q, i0, shared);
            add_dot_products(g, head.r, d0, head.position_q, i0, shared);
            computed_band(dp, head.v, i0 - d0, dout, i0, shared);
            QueryState query[per];
            for (int n = 0; n < per; n++) query[n] = query_state(grad, p, b, h, i0 + column_of(n));
            for_elements([&](int m, int n, int row, int column) {
                const float weight = probability(g[m][n] * p.scale, query[n], d0 + row <= i0 + column);
                g[m][n] = gradient(weight, dp[m][n], query[n], p.scale);
            });
            add_row_sums(shared.sums, g);
            store_weights(shared.weights, g);
            add_weighted_rows(dr, shared.weights, head.position_q, i0, shared);
        }
    }
    store_sums(grad.dr.at(0, h), grad.dr.row, d0, p, dr);
    store_weighted_sum(grad.dv_parts + (int64_t(h) * gridDim.z + blockIdx.z) * p.D, shared.sums, rows_of_r(p, h), d0);
}

/// to (H, D) += Σ parts (B, H, tiles, D) over sequences and tiles.
__global__ void plain_add_parts(const float* parts, int64_t B, int64_t H, int64_t tiles, int64_t D, float* to) {
    const int64_t x = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, h = x / D, c = x % D;
    if (x >= H * D) return;
    float sum = 0;
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < tiles; t++) sum += parts[((b * H + h) * tiles + t) * D + c];
    to[x] += sum;
}

/// What the backward borrows from the workspace.
struct Scratch {
    int64_t row_dots, du_parts, dv_parts;  // floats
    Scratch(const attention::Sizes& n, bool relative)
        : row_dots(n.B * n.H * n.T), du_parts(relative ? n.B * n.H * tiles_of(n.T) * n.D : 0), dv_parts(relative ? n.H * tiles_of(n.T) * n.D : 0) {}
};

bool is_relative(const AttentionBackward& a) { return a.position.kind == AttentionPosition::relative; }

template <class T>
Problem<T> backward_problem(const AttentionBackward& a, const attention::Sizes& n) {
    Problem<T> p = problem_of<T>(a.qkv, a.position, n.B, n.T, n.H, n.D);
    p.k = part_of<const T>(a.qkv, n.T, n.D, 1);
    p.v = part_of<const T>(a.qkv, n.T, n.D, 2);
    p.vectors = vectors_possible(4, n.D, {a.qkv, a.dqkv, a.dout, a.position.r, a.dr});
    return p;
}

template <class T>
Gradients<T> gradients_of(const AttentionBackward& a, const attention::Sizes& n, const float* row_dots, float* du_parts, float* dv_parts) {
    Gradients<T> g{heads_of<const T>(a.dout, n.T, n.D), part_of<T>(a.dqkv, n.T, n.D, 0), part_of<T>(a.dqkv, n.T, n.D, 1),
                   part_of<T>(a.dqkv, n.T, n.D, 2),     static_cast<const float*>(a.lse.data), row_dots, {}, du_parts, dv_parts};
    if (is_relative(a)) g.dr = heads_of<float>(a.dr, 0, n.D);
    return g;
}

void add_parts(Context& ctx, const float* parts, int64_t B, const attention::Sizes& n, const Tensor& to) {
    launch(ctx, {blocks_for(n.H * n.D, threads), threads}, plain_add_parts, parts, B, n.H, tiles_of(n.T), n.D, static_cast<float*>(to.data));
}

template <class T>
void run_backward(Context& ctx, const AttentionBackward& a, const attention::Sizes& n) {
    WorkspaceScope scope(ctx.workspace);
    const Scratch s(n, is_relative(a));
    float* const row_dots = ctx.workspace.take<float>(s.row_dots);
    float* const du_parts = ctx.workspace.take<float>(s.du_parts);
    float* const dv_parts = ctx.workspace.take<float>(s.dv_parts);
    const Problem<T> p = backward_problem<T>(a, n);
    const Gradients<T> g = gradients_of<T>(a, n, row_dots, du_parts, dv_parts);
    launch(ctx, {blocks_for(s.row_dots * warp_size, threads), threads}, plain_row_dots<T>, g.dout, heads_of<const T>(a.out, n.T, n.D), n.H, n.T,
           p.D, s.row_dots, row_dots);
    specialised(is_relative(a), n.D, [&](auto relative, auto blocks) {
        const Launch l{grid_of(n.B, p), threads, shared_bytes(relative)};
        launch(ctx, l, plain_query_gradients<T, relative, blocks>, p, g);
        launch(ctx, l, plain_key_gradients<T, relative, blocks>, p, g);
        if constexpr (relative) {
            launch(ctx, {grid_of(1, p), threads, shared_bytes(true)}, plain_distance_gradients<T, blocks>, p, g);
            add_parts(ctx, du_parts, n.B, n, a.dcontent_bias);
            add_parts(ctx, dv_parts, 1, n, a.dposition_bias);
        }
    });
}

}  // namespace
}  // namespace plain

using namespace plain;

size_t attention_backward_plain_workspace_bytes(const AttentionBackward& a) {
    const Scratch s(attention::check(a), is_relative(a));
    size_t bytes = 0;
    for (int64_t floats : {s.row_dots, s.du_parts, s.dv_parts}) bytes += Workspace::padded(size_t(floats) * sizeof(float));
    return bytes;
}

void attention_backward_plain(Context& ctx, const AttentionBackward& a) {
    const attention::Sizes n = attention::check(a);
    by_dtype(a.qkv.dtype, [&](auto element) { run_backward<decltype(element)>(ctx, a, n); });
}

}  // namespace clover
