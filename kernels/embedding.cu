// Embedding lookup on CUDA, fused with the norm that follows (norm_rows.cuh), and its backward by sorted rows.
//
// Backward sorts the pairs (id, n) by id, those of equal ids in the order of n (radix sort, sort_*), and cuts the sorted row into pieces of
// fixed size. A run of equal ids inside a piece is summed and added to its row of dtable; the part of a run that goes on before or
// behind the piece becomes a partial sum in the workspace, and whoever holds the run's beginning adds its parts in order. No two blocks
// write one number, rows of dtable that do not occur are not touched, and one id repeated ten thousand times is work for many blocks.
#include "embedding.h"

#include <bit>

#include "norm_rows.cuh"

namespace clover {
namespace {

// ---- forward -------------------------------------------------------------------------------------------------------------------

template <class W>
struct Lookup {
    using Term = W;
    const int32_t *ids, *past;  // past may be null
    const W* table;
    AnyFloats positions;
    int64_t V, P, T, C;

    /// Stops the kernel for an id or a position outside its table.
    __device__ RowTerms<W, AnyFloats> row(int64_t n) const {
        const int32_t id = warp_load(ids + n);
        if (id < 0 || id >= V) ptx::trap();
        AnyFloats place = positions;
        if (place) {
            const int64_t before = past ? warp_load(past + n / T) : 0, position = before + n % T;
            if (before < 0 || position >= P) ptx::trap();
            place.data = static_cast<const char*>(place.data) + position * C * int64_t(bytes_of(place.dtype));
        }
        return {table + id * C, place};
    }
};

template <class A, class W>
void forward_rows(Context& ctx, const EmbeddingForward& e) {
    const Lookup<W> lookup{.ids = e.ids.as<int32_t>(), .past = e.past.present() ? e.past.as<int32_t>() : nullptr, .table = e.table.as<W>(),
                           .positions = e.positions.present() ? AnyFloats(e.positions) : AnyFloats(), .V = e.table.shape[0],
                           .P = e.positions.present() ? e.positions.shape[0] : 0, .T = e.sequence, .C = e.out.shape[1]};
    const bool vectors = by_vectors(4, lookup.C, {e.out, e.table, e.positions});
    if (!e.norm) return run_norm_rows(ctx, NormedRows<A>{.N = e.out.shape[0], .C = row_columns(e.out), .sum = e.out.as<A>()}, lookup, vectors);
    const NormForward& n = *e.norm;
    run_norm_rows(ctx, normed_rows<A>(n, e.out.as<A>()), lookup, vectors && by_vectors(4, lookup.C, {n.y, n.weight, n.bias}));
}

void forward(Context& ctx, const EmbeddingForward& e) {
    check(e);
    if (e.norm) check(*e.norm);
    by_dtype(e.out.dtype, [&](auto a) { by_dtype(e.table.dtype, [&](auto w) { forward_rows<decltype(a), decltype(w)>(ctx, e); }); });
}

// ---- sorting: pairs (key, n) by eight bits of the key at a time, from the lowest up, each pass keeping the order of equal digits ----

constexpr int digits = 256, sort_threads = 256, sort_warps = sort_threads / warp_size;  // a thread for each digit, and for each pair of a tile
static_assert(digits == sort_threads);

struct Pairs {
    int32_t *keys, *places;
};

/// Of the lanes whose pairs are valid, those with this lane's digit.
__device__ unsigned lanes_with_digit(int digit, bool valid) {
    unsigned lanes = __ballot_sync(all_lanes, valid);
    for (int bit = 1; bit < digits; bit *= 2) {
        const unsigned set = __ballot_sync(all_lanes, digit & bit);
        lanes &= digit & bit ? set : ~set;
    }
    return lanes;
}

/// counts (sort_warps, digits) = how often each digit occurs in each warp. Returns how often this thread's digit occurs in lower lanes.
__device__ int count_digits(int (*counts)[digits], int digit, bool valid) {
    const int lane = int(threadIdx.x) % warp_size, warp = int(threadIdx.x) / warp_size;
    for (int w = 0; w < sort_warps; w++) counts[w][threadIdx.x] = 0;
    __syncthreads();
    const unsigned same = lanes_with_digit(digit, valid), lower = same & ((1u << lane) - 1);
    if (valid && lower == 0) counts[warp][digit] = __popc(same);
    __syncthreads();
    return __popc(lower);
}

/// counts (digits, tiles): how often each digit occurs in each tile of keys. The first pass looks at the keys' range.
__global__ void __launch_bounds__(sort_threads) sort_count_kernel(int32_t* counts, const int32_t* keys, int64_t N, int shift, int64_t V) {
    int(*const of_warp)[digits] = shared_memory<int[digits]>();
    const int64_t n = int64_t(blockIdx.x) * sort_threads + threadIdx.x;
    const int32_t key = n < N ? keys[n] : 0;
    if (key < 0 || key >= V) ptx::trap();
    count_digits(of_warp, key >> shift & (digits - 1), n < N);
    int total = 0;
    for (int w = 0; w < sort_warps; w++) total += of_warp[w][threadIdx.x];
    counts[int64_t(threadIdx.x) * gridDim.x + blockIdx.x] = total;
}

/// Each count becomes the sum of those before it. One block.
__global__ void __launch_bounds__(1024) sort_scan_kernel(int32_t* counts, int64_t n) {
    int* const of_warp = shared_memory<int>();
    const int lane = int(threadIdx.x) % warp_size, warp = int(threadIdx.x) / warp_size;
    int before = 0;  // sum of all counts of earlier rounds
    for (int64_t first = 0; first < n; first += 1024) {
        const int64_t i = first + threadIdx.x;
        const int mine = i < n ? counts[i] : 0;
        int sum = mine;
        for (int step = 1; step < warp_size; step *= 2) {
            const int lower = __shfl_up_sync(all_lanes, sum, step);
            if (lane >= step) sum += lower;
        }
        if (lane == warp_size - 1) of_warp[warp] = sum;
        __syncthreads();
        int total = 0;
        for (int w = 0; w < 32; w++) {
            if (w < warp) sum += of_warp[w];
            total += of_warp[w];
        }
        __syncthreads();
        if (i < n) counts[i] = before + sum - mine;
        before += total;
    }
}

/// Writes each pair to its place. Without `from.places` the places are 0, 1, 2, …
__global__ void __launch_bounds__(sort_threads) sort_scatter_kernel(Pairs to, Pairs from, const int32_t* starts, int64_t N, int shift) {
    int(*const of_warp)[digits] = shared_memory<int[digits]>();
    const int64_t n = int64_t(blockIdx.x) * sort_threads + threadIdx.x;
    const int warp = int(threadIdx.x) / warp_size;
    const int32_t key = n < N ? from.keys[n] : 0, digit = key >> shift & (digits - 1);
    const int lower = count_digits(of_warp, digit, n < N);
    int start = starts[int64_t(threadIdx.x) * gridDim.x + blockIdx.x];
    for (int w = 0; w < sort_warps; w++) {  // each count becomes the place where the warp's pairs of that digit begin
        const int count = of_warp[w][threadIdx.x];
        of_warp[w][threadIdx.x] = start;
        start += count;
    }
    __syncthreads();
    if (n >= N) return;
    const int place = of_warp[warp][digit] + lower;
    to.keys[place] = key;
    to.places[place] = from.places ? from.places[n] : int32_t(n);
}

// ---- backward ------------------------------------------------------------------------------------------------------------------

constexpr int piece = 32;  // sorted rows that one thread sums
constexpr int column_threads = 128;

/// Space in the workspace, by the sizes alone.
struct BackwardPlan {
    int64_t N, C, V, tiles, pieces;
    explicit BackwardPlan(const EmbeddingBackward& e)
        : N(e.dout.shape[0]), C(e.dout.shape[1]), V(e.dtable.shape[0]), tiles(RowCut::ceil(N, sort_threads)), pieces(RowCut::ceil(N, piece)) {
        CLOVER_CHECK(N < int64_t{1} << 31, N, " rows");
    }
    size_t bytes() const {
        return 4 * Workspace::padded(size_t(N) * sizeof(int32_t)) + Workspace::padded(size_t(digits * tiles) * sizeof(int32_t)) +
               Workspace::padded(size_t(2 * pieces * C) * sizeof(float));
    }
};

size_t backward_workspace_bytes(const EmbeddingBackward& e) { return BackwardPlan(e).bytes(); }

/// The pairs (id, n) in order.
Pairs sorted(Context& ctx, const int32_t* ids, const BackwardPlan& plan) {
    Pairs pairs[2];
    for (Pairs& p : pairs) p = {ctx.workspace.take<int32_t>(plan.N), ctx.workspace.take<int32_t>(plan.N)};
    int32_t* const counts = ctx.workspace.take<int32_t>(digits * plan.tiles);
    Pairs from{const_cast<int32_t*>(ids), nullptr};
    const Launch tiles{unsigned(plan.tiles), sort_threads, sizeof(int[sort_warps][digits])};
    const int bits = std::clamp(int(std::bit_width(uint64_t(plan.V - 1))), 1, 31);
    for (int shift = 0, pass = 0; shift < bits; shift += 8, pass++) {
        launch(ctx, tiles, sort_count_kernel, counts, from.keys, plan.N, shift, plan.V);
        launch(ctx, {plan.N > 0 ? 1u : 0u, 1024, 32 * sizeof(int)}, sort_scan_kernel, counts, digits * plan.tiles);
        launch(ctx, tiles, sort_scatter_kernel, pairs[pass % 2], from, counts, plan.N, shift);
        from = pairs[pass % 2];
    }
    return from;
}

/// The sorted pairs and what is summed by them; partials (pieces, 2, C): of the run that comes from before the piece, of the one that goes on
/// behind it. A run that does both is of the first kind.
template <class A>
struct SortedRows {
    Pairs pairs;
    int64_t N, C;
    const A* dout;
    float *dtable, *partials;
};

template <int width, class A>
__device__ void add_to_table(const SortedRows<A>& r, int64_t at, float (&sum)[width]) {
    float before[width];
    load_floats(before, r.dtable + at);
    for (int k = 0; k < width; k++) before[k] += sum[k];
    store_floats(r.dtable + at, before);
}

/// Sums the runs of one piece, blockIdx.x; each thread for `width` columns.
template <int width, class A>
__global__ void __launch_bounds__(column_threads) sum_pieces_kernel(SortedRows<A> r) {
    constexpr int ahead = 8;  // rows asked for before the first is used
    int32_t* const keys = shared_memory<int32_t>();  // of the piece, and of one pair before and behind: -1 if there is none
    int32_t* const places = keys + piece + 2;
    const int64_t first = int64_t(blockIdx.x) * piece;
    const int count = int(min(int64_t{piece}, r.N - first));
    for (int k = int(threadIdx.x); k < piece + 2; k += int(blockDim.x)) {
        const int64_t p = first + k - 1;
        keys[k] = p >= 0 && p < r.N ? r.pairs.keys[p] : -1;
    }
    for (int k = int(threadIdx.x); k < count; k += int(blockDim.x)) places[k] = r.pairs.places[first + k];
    __syncthreads();
    const int64_t column = (int64_t(blockIdx.y) * column_threads + threadIdx.x) * width;
    if (column >= r.C) return;
    float sum[width] = {};
    bool from_before = keys[0] == keys[1];
    for (int begin = 0; begin < count; begin += ahead) {
        float x[ahead][width];
#pragma unroll
        for (int k = 0; k < ahead; k++)
            if (begin + k < count) load_floats(x[k], r.dout + places[begin + k] * r.C + column);
#pragma unroll
        for (int k = 0; k < ahead; k++) {
            const int i = begin + k;
            if (i >= count) continue;
            for (int j = 0; j < width; j++) sum[j] += x[k][j];
            const bool ends = keys[i + 1] != keys[i + 2];
            if (!ends && i + 1 < count) continue;
            float* const partial = r.partials + 2 * blockIdx.x * r.C + column;
            if (from_before)
                store_floats(partial, sum);
            else if (!ends)
                store_floats(partial + r.C, sum);
            else
                add_to_table(r, keys[i + 1] * r.C + column, sum);
            for (int j = 0; j < width; j++) sum[j] = 0;
            from_before = false;
        }
    }
}

/// Adds up a run that begins in piece blockIdx.x and goes on behind it.
template <int width, class A>
__global__ void __launch_bounds__(column_threads) join_pieces_kernel(SortedRows<A> r) {
    const int64_t last = (int64_t(blockIdx.x) + 1) * piece - 1;  // the piece's last pair
    if (last + 1 >= r.N) return;
    const int32_t key = warp_load(r.pairs.keys + last);
    if (key != warp_load(r.pairs.keys + last + 1)) return;
    const bool whole_piece = key == warp_load(r.pairs.keys + last + 1 - piece);
    if (whole_piece && last >= piece && key == warp_load(r.pairs.keys + last - piece)) return;  // it began before
    const int64_t column = (int64_t(blockIdx.y) * column_threads + threadIdx.x) * width;
    float sum[width] = {}, part[width];
    if (column < r.C) load_floats(sum, r.partials + (2 * blockIdx.x + 1) * r.C + column);
    for (int64_t p = blockIdx.x + 1, next = last + 1; next < r.N && key == warp_load(r.pairs.keys + next); p++, next += piece) {
        if (column >= r.C) continue;
        load_floats(part, r.partials + 2 * p * r.C + column);
        for (int k = 0; k < width; k++) sum[k] += part[k];
    }
    if (column < r.C) add_to_table(r, key * r.C + column, sum);
}

/// dpositions (T, C) += Σ_b dout (B, T, C).
template <int width, class A>
__global__ void __launch_bounds__(column_threads) positions_kernel(float* dpositions, const A* dout, int64_t B, int64_t T, int64_t C) {
    const int64_t t = blockIdx.x, column = (int64_t(blockIdx.y) * column_threads + threadIdx.x) * width;
    if (column >= C) return;
    float sum[width];
    load_floats(sum, dpositions + t * C + column);
#pragma unroll 4
    for (int64_t b = 0; b < B; b++) {
        float x[width];
        load_floats(x, dout + (b * T + t) * C + column);
        for (int k = 0; k < width; k++) sum[k] += x[k];
    }
    store_floats(dpositions + t * C + column, sum);
}

template <int width, class A>
void sum_rows(Context& ctx, const EmbeddingBackward& e, const SortedRows<A>& rows, int64_t pieces) {
    const unsigned across = blocks_for(rows.C, column_threads * width);
    launch(ctx, {dim3(unsigned(pieces), across), column_threads, (2 * piece + 2) * sizeof(int32_t)}, sum_pieces_kernel<width, A>, rows);
    launch(ctx, {dim3(unsigned(pieces), across), column_threads}, join_pieces_kernel<width, A>, rows);
    if (!e.dpositions.present()) return;
    launch(ctx, {dim3(rows.N > 0 ? unsigned(e.sequence) : 0, across), column_threads}, positions_kernel<width, A>, e.dpositions.as<float>(), rows.dout,
           rows.N / e.sequence, e.sequence, rows.C);
}

void backward(Context& ctx, const EmbeddingBackward& e) {
    check(e);
    const BackwardPlan plan(e);
    const WorkspaceScope scope(ctx.workspace);
    const Pairs pairs = sorted(ctx, e.ids.as<int32_t>(), plan);
    float* const partials = ctx.workspace.take<float>(2 * plan.pieces * plan.C);
    by_dtype(e.dout.dtype, [&](auto a) {
        using A = decltype(a);
        const SortedRows<A> rows{.pairs = pairs, .N = plan.N, .C = plan.C, .dout = e.dout.as<A>(), .dtable = e.dtable.as<float>(),
                                 .partials = partials};
        by_vectors(4, plan.C, {e.dout, e.dtable, e.dpositions}) ? sum_rows<4>(ctx, e, rows, plan.pieces) : sum_rows<1>(ctx, e, rows, plan.pieces);
    });
}

}  // namespace

const EmbeddingOps embedding_cuda = {forward, backward_workspace_bytes, backward};

}  // namespace clover
