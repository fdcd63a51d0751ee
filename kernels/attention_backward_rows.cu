// The two passes of attention's backward that stream queries (attention_backward.cuh): the owner of keys has dK and dV, that of
// distances dr. Both work on transposed squares, own rows by queries; where the keys' pass has a band of r, the distances' pass has bands
// of K and V. The latter streams the queries of all sequences, since r has no batch dimension.
#include "attention_backward.cuh"

namespace clover::tiles {
namespace {

template <int D, int streamed>
struct QueryTile {
    Tile<D, streamed> q, dout;
    alignas(16) float terms[2 * streamed];  // lse · log2 e and δ of each query
};

template <int D, Kind kind, Owner owner>
struct alignas(16) RowPass : Plan<D, kind, owner> {
    using Plan = tiles::Plan<D, kind, owner>;
    using Plan::relative, Plan::threads, Plan::owned, Plan::streamed, Plan::ring;
    static constexpr bool of_keys = owner == Owner::keys;
    struct Shared {
        QueryTile<D, streamed> queries[2];
        Ring<D, ring, Plan::bands> bands;
    };
    static_assert(sizeof(QueryTile<D, streamed>[2]) >= sizeof(Tile<D, owned>));

    FragmentC dk[D / 8] = {};  // or dr
    FragmentC dv[of_keys ? D / 8 : 1] = {};
    FragmentA k[D / 16];  // own rows of K, or of r
    FragmentA v[of_keys ? D / 16 : 1];
    float scalars[2] = {}, sums[2] = {};  // of rows g and g + 8: c_j, or e_d; Σ_i G
    const Backward& a;
    Shared& shared;
    int64_t h, b;    // of distances: b is unused
    int first, own;  // the first own row of the block, and of the warp

    /// The longest sums are those of the first rows: they start first, in all heads.
    __device__ RowPass(const Backward& a_, Shared& shared_) : a(a_), shared(shared_) {
        const unsigned heads = unsigned(of_keys ? a.B * a.H : a.H), unit = blockIdx.x % heads;
        h = unit % a.H;
        b = unit / a.H;
        first = int(blockIdx.x / heads) * owned;
        own = first + int(threadIdx.x) / warp_size * 16;
        if constexpr (of_keys) {
            load_a<D>(k, a.operand(b, h, 1), own);
            load_a<D>(v, a.operand(b, h, 2), own);
        } else {
            load_a<D>(k, a.distances(h), own);
        }
        if constexpr (relative) {
            const float* from = of_keys ? a.c + unit * a.pitch : a.e + unit * a.pitch;
            for (int half = 0; half < 2; half++) scalars[half] = own_row(half) < int(a.T) ? from[own_row(half)] : 0.0f;
        }
    }
    __device__ int own_row(int half) const { return own + lane_row() + 8 * half; }

    /// A tile of the stream: its sequence and first query, where its queries and its new rows of the bands lie in shared memory.
    struct Cursor {
        int sequence, query, stage, slot;
    };
    __device__ Cursor begin() const { return {of_keys ? int(b) : 0, first, 0, 0}; }
    __device__ bool at_end(const Cursor& tile) const { return tile.sequence == (of_keys ? int(b) + 1 : int(a.B)); }
    __device__ void advance(Cursor& tile) const {
        tile.query += streamed;
        tile.stage ^= 1;
        tile.slot = tile.slot == ring - streamed ? 0 : tile.slot + streamed;
        if (tile.query >= int(a.T)) tile.query = first, tile.sequence++;
    }
    /// Starts copying a tile.
    __device__ void start(const Cursor& tile) {
        const int64_t unit = tile.sequence * a.H + h;
        const int partner = tile.query - first;  // the first new row of the bands
        QueryTile<D, streamed>& to = shared.queries[tile.stage];
        load_rows_async<threads, streamed>(to.q, 0, a.operand(tile.sequence, h, 0), tile.query);
        load_rows_async<threads, streamed>(to.dout, 0, a.output_gradient(tile.sequence, h), tile.query);
        load_floats_async<2 * streamed>(to.terms, a.query_terms + (unit * a.pitch + tile.query) * 2);
        if constexpr (relative) {
            load_rows_async<threads, streamed>(shared.bands.band[0], tile.slot, of_keys ? a.distances(h) : a.operand(tile.sequence, h, 1), partner);
            if constexpr (!of_keys) load_rows_async<threads, streamed>(shared.bands.band[1], tile.slot, a.operand(tile.sequence, h, 2), partner);
            load_floats_async<streamed>(shared.bands.scalars + tile.slot, (of_keys ? a.e + h * a.pitch : a.c + unit * a.pitch) + partner);
        }
        ptx::cp_async_commit();
    }

    /// S of the queries from row `at` of their tile on. `lower` and `upper` are where the rows of the band are in the ring.
    __device__ void add_scores(Square& s, const QueryTile<D, streamed>& queries, int at, int lower, int upper) const {
        Band band;
        start_rows(s, scalars);
        if constexpr (relative) {
            const float(&of)[ring] = shared.bands.scalars;
            start_rows(band.lower, {of[lower + lane_row()], of[lower + lane_row() + 8]});
            start_rows(band.upper, {of[upper + lane_row()], of[upper + lane_row() + 8]});
        }
#pragma unroll
        for (int c = 0; c < D; c += 16) {
            const FragmentB q = load_b(queries.q, at, c);
            multiply(s, k[c / 16], q);
            if constexpr (relative) add_band(band, shared.bands.band[0], lower, upper, c, q);
        }
        if constexpr (relative) add_shifted_rows(s, band);
    }
    /// dP of the same.
    __device__ void add_probability_gradient(Square& dp, const QueryTile<D, streamed>& queries, int at, int lower, int upper) const {
        Band band;
#pragma unroll
        for (int c = 0; c < D; c += 16) {
            const FragmentB dout = load_b(queries.dout, at, c);
            if constexpr (of_keys) multiply(dp, v[c / 16], dout);
            if constexpr (!of_keys) add_band(band, shared.bands.band[1], lower, upper, c, dout);
        }
        if constexpr (!of_keys) add_shifted_rows(dp, band);
    }
    /// P in place of S and G in place of dP. `distance` is that of the square's upper left element.
    __device__ void softmax_gradient(const Probability<kind>& probability, const float* terms, int distance, Square& s, Square& dp) {
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const Vector<float, 4> of = load_vector<4>(terms + 2 * (8 * n + 2 * lane_column()));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int column = 8 * n + 2 * lane_column() + i % 2, row = lane_row() + i / 2 * 8;
                float &p = s.x[n].x[i], &g = dp.x[n].x[i];
                p = probability(p, of[i % 2 * 2], distance + column - row);
                g = p * (g - of[i % 2 * 2 + 1]);
                sums[i / 2] += g;
            }
        }
    }
    /// 16 queries from row `at` of their tile on, which are `skipped` after the warp's own rows; the upper half of their band is at `upper`.
    __device__ void add_square(const Probability<kind>& probability, const QueryTile<D, streamed>& queries, int at, int skipped, int upper) {
        Square s, dp;
        // The lower half of the diagonal's band is row −16 … −1: masked, whatever is there.
        const int lower = skipped == 0 ? upper : upper == 0 ? ring - 16 : upper - 16;
        add_scores(s, queries, at, lower, upper);
        add_probability_gradient(dp, queries, at, lower, upper);
        if (skipped == 0) hide(s, dp, [](int row, int query) { return query < row; });
        softmax_gradient(probability, queries.terms + 2 * at, skipped, s, dp);
        if constexpr (of_keys) add_product(dv, pack(s.x[0], s.x[1]), queries.dout, at);
        add_product(dk, pack(dp.x[0], dp.x[1]), queries.q, at);
    }
    __device__ void run() {
        const Probability<kind> probability(a, h);
        Cursor tile = begin(), next = tile;
        if (!at_end(next)) start(next);
        for (; !at_end(tile); advance(tile)) {
            ptx::cp_async_wait<0>();
            __syncthreads();
            advance(next);
            if (!at_end(next)) start(next);
#pragma unroll 1
            for (int at = 0; at < streamed; at += 16) {
                const int skipped = tile.query + at - own, slot = tile.slot + at - (own - first);
                if (skipped >= 0 && tile.query + at < int(a.T))
                    add_square(probability, shared.queries[tile.stage], at, skipped, slot < 0 ? slot + ring : slot);
            }
        }
    }

    /// What u or v add: dk_j += u Σ_i G_ij, or dr_d += v Σ_i G_i,i−d. The sums are kept for the gradients of u and v.
    __device__ void add_bias(const Bias& bias, float* kept) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = quad_sum(sums[half]);
            if (lane_column() == 0 && own_row(half) < int(a.T)) kept[own_row(half)] = sum * a.scale;
#pragma unroll
            for (int n = 0; n < D / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) dk[n].x[2 * half + c] += bias[h * D + 8 * n + 2 * lane_column() + c] * sum;
        }
    }
    __device__ void store_keys() {
        if constexpr (relative) add_bias(a.u, a.key_sums + (b * a.H + h) * a.pitch);
        __syncthreads();
        auto& staging = reinterpret_cast<Tile<D, owned>&>(shared);
        const int64_t stride = a.H * 3 * D;
        store_rows<D>(dk, a.scale, staging, own - first, a.gradient(b, h, 1) + own * stride, stride, a.T - own);
        store_rows<D>(dv, 1, staging, own - first, a.gradient(b, h, 2) + own * stride, stride, a.T - own);
    }
    __device__ void store_distances() {
        add_bias(a.v, a.distance_sums + h * a.pitch);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (own_row(half) >= int(a.T)) continue;
            float* row = a.dr + (own_row(half) * a.H + h) * D + 2 * lane_column();
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                store_vector(row + 8 * n, Vector<float, 2>{{dk[n].x[2 * half] * a.scale, dk[n].x[2 * half + 1] * a.scale}});
        }
    }
};

template <int D, Kind kind, Owner owner>
__global__ void __launch_bounds__(Plan<D, kind, owner>::threads, Plan<D, kind, owner>::blocks) attention_backward_rows(const Backward a) {
    using Pass = RowPass<D, kind, owner>;
    Pass pass(a, *shared_memory<typename Pass::Shared>());
    pass.run();
    if constexpr (owner == Owner::keys)
        pass.store_keys();
    else
        pass.store_distances();
}

}  // namespace

template <int D, Kind kind, Owner owner>
static void start_row_pass(Context& ctx, const Backward& a) {
    using Pass = RowPass<D, kind, owner>;
    const int64_t heads = owner == Owner::keys ? a.B * a.H : a.H;
    launch(ctx, {blocks_for(a.T, Pass::owned) * unsigned(heads), Pass::threads, sizeof(typename Pass::Shared)},
           attention_backward_rows<D, kind, owner>, a);
}
template <>
void run_pass<Owner::keys>(Context& ctx, Kind kind, const Backward& a) {
    by_shape(a.D, kind, [&](auto size, auto position) { start_row_pass<size(), position(), Owner::keys>(ctx, a); });
}
template <>
void run_pass<Owner::distances>(Context& ctx, Kind, const Backward& a) {
    by_head_size(a.D, [&](auto size) { start_row_pass<size(), Kind::relative, Owner::distances>(ctx, a); });
}

}  // namespace clover::tiles
