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

/// One warp's part of a pass. (Aligned because g++, for the harness, clears the sums 16 bytes at a time.)
template <int D, Kind kind, Owner owner>
struct alignas(16) RowPass : Plan<D, kind, owner> {
    using Plan = tiles::Plan<D, kind, owner>;
    using Plan::relative, Plan::strips, Plan::threads, Plan::owned, Plan::streamed, Plan::ring;
    static constexpr bool of_keys = owner == Owner::keys;
    struct Shared {
        QueryTile<D, streamed> queries[2];
        Ring<D, ring, Plan::bands> bands;
        float own_scalars[relative ? owned : 1];  // c_j, or e_d
    };
    static_assert(!of_keys || sizeof(QueryTile<D, streamed>[2]) >= sizeof(Tile<D, owned>));  // the results pass through there

    FragmentC dk[strips][D / 8] = {};  // or dr
    FragmentC dv[of_keys ? strips : 1][D / 8] = {};
    float sums[strips][2] = {};        // Σ_i G of rows g and g + 8
    FragmentA k[strips][D / 16];       // own rows of K, or of r
    FragmentA v[of_keys ? strips : 1][D / 16];
    const Backward& a;
    Shared& shared;
    const int first = int(blockIdx.z) * owned;                               // own row of the block
    const int own = first + int(threadIdx.x / warp_size) * (16 * strips);    // and of the warp

    /// Head and, for keys, sequence.
    __device__ static unsigned h() { return ptx::block_index<0>(); }
    __device__ static unsigned b() { return ptx::block_index<1>(); }

    /// The longest sums are those of the first rows: they start first, in all heads.
    __device__ RowPass(const Backward& a_, Shared& shared_) : a(a_), shared(shared_) {
        const unsigned head = h(), sequence = b();
#pragma unroll
        for (int m = 0; m < strips; m++) {
            load_a<D>(k[m], of_keys ? a.operand<D>(sequence, head, 1) : a.distances<D>(head), own + 16 * m);
            if constexpr (of_keys) load_a<D>(v[m], a.operand<D>(sequence, head, 2), own + 16 * m);
        }
        if constexpr (relative)
            for (int n = int(threadIdx.x); n < owned; n += threads)
                shared.own_scalars[n] = first + n < a.T ? (of_keys ? a.c : a.e)[a.unit(of_keys ? sequence : 0, head) * a.pitch + first + n] : 0.0f;
    }
    __device__ int own_row(int m, int half) const { return own + 16 * m + lane_row() + 8 * half; }

    /// A tile of the stream. It is the one after `before` others.
    struct Cursor {
        int sequence, query, before;
    };
    /// Where its new rows of the bands are in the ring.
    __device__ int slot(const Cursor& tile) const {
        return int(unsigned(of_keys ? tile.query - first : tile.before * streamed) % ring);
    }
    static_assert(ring / streamed % 2 == 0);  // so that the slot also says which of the two buffers holds the queries
    __device__ QueryTile<D, streamed>& queries(const Cursor& tile) const { return shared.queries[slot(tile) / streamed % 2]; }
    __device__ bool at_end(const Cursor& tile) const { return of_keys ? tile.query >= a.T : tile.sequence == a.B; }
    __device__ Cursor after(Cursor tile) const {
        tile.before++;
        tile.query += streamed;
        if (!of_keys && tile.query >= a.T) tile.query = first, tile.sequence++;
        return tile;
    }
    /// Starts copying a tile.
    __device__ void start(const Cursor& tile) {
        const unsigned head = h(), sequence = of_keys ? b() : unsigned(tile.sequence);
        const int64_t unit = a.unit(sequence, head);
        const int partner = tile.query - first, at = slot(tile);  // the first new row of the bands, and where it goes
        QueryTile<D, streamed>& to = queries(tile);
        load_rows_async<threads, streamed>(to.q, 0, a.operand<D>(sequence, head, 0), tile.query);
        load_rows_async<threads, streamed>(to.dout, 0, a.output_gradient<D>(sequence, head), tile.query);
        load_floats_async<2 * streamed>(to.terms, a.query_terms + (unit * a.pitch + tile.query) * 2);
        if constexpr (relative) {
            load_rows_async<threads, streamed>(shared.bands.band[0], at, of_keys ? a.distances<D>(head) : a.operand<D>(sequence, head, 1), partner);
            if constexpr (!of_keys) load_rows_async<threads, streamed>(shared.bands.band[1], at, a.operand<D>(sequence, head, 2), partner);
            load_floats_async<streamed>(shared.bands.scalars + at, (of_keys ? a.e + a.unit(0, head) * a.pitch : a.c + unit * a.pitch) + partner);
        }
        ptx::cp_async_commit();
    }

    /// S of the queries from row `at` of their tile on. Block m of 16 rows of the band is at band_at[m] in the ring; strip m's lower half
    /// is block strips − 1 − m.
    __device__ void add_scores(Square (&s)[strips], const QueryTile<D, streamed>& queries, int at, const int (&band_at)[strips + 1]) const {
        Square band[strips + 1];
        if constexpr (relative) {
#pragma unroll
            for (int m = 0; m < strips; m++) start_rows(s[m], shared.own_scalars + own - first + 16 * m);
#pragma unroll
            for (int m = 0; m <= strips; m++) start_rows(band[m], shared.bands.scalars + band_at[m]);
        }
#pragma unroll
        for (int c = 0; c < D; c += 16) {
            const FragmentB q = load_b(queries.q, at, c);
#pragma unroll
            for (int m = 0; m < strips; m++) multiply(s[m], k[m][c / 16], q);
            if constexpr (relative) add_band(band, shared.bands.band[0], band_at, c, q);
        }
        if constexpr (relative) {
            __syncwarp();  // for the compiler: products and shuffles mixed take more registers than there are
            add_shifted_bands(s, band);
        }
    }
    /// dP of the same.
    __device__ void add_probability_gradient(Square (&dp)[strips], const QueryTile<D, streamed>& queries, int at,
                                             const int (&band_at)[strips + 1]) const {
        Square band[strips + 1];
#pragma unroll
        for (int c = 0; c < D; c += 16) {
            const FragmentB dout = load_b(queries.dout, at, c);
            if constexpr (of_keys)
#pragma unroll
                for (int m = 0; m < strips; m++) multiply(dp[m], v[m][c / 16], dout);
            else
                add_band(band, shared.bands.band[1], band_at, c, dout);
        }
        if constexpr (!of_keys) add_shifted_bands(dp, band);
    }
    /// band += its rows, columns from c on, by `right`
    __device__ static void add_band(Square (&band)[strips + 1], const Tile<D, ring>& rows, const int (&band_at)[strips + 1], int c,
                                    const FragmentB& right) {
#pragma unroll
        for (int m = 0; m <= strips; m++) multiply(band[m], load_a(rows, band_at[m], c), right);
    }
    __device__ static void add_shifted_bands(Square (&s)[strips], const Square (&band)[strips + 1]) {
#pragma unroll
        for (int m = 0; m < strips; m++) add_shifted_rows(s[m], band[strips - 1 - m], band[strips - m]);
    }
    /// P in place of S and G in place of dP, for one strip. `distance` is that of the square's upper left element.
    __device__ void softmax_gradient(const Probability<kind>& probability, const float* terms, int distance, Square& s, Square& dp,
                                     float (&sum)[2]) const {
        const float position = probability.position(distance + 2 * lane_column() - lane_row());
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const Vector<float, 4> of = load_vector<4>(terms + 2 * (8 * n + 2 * lane_column()));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &p = s.x[n].x[i], &g = dp.x[n].x[i];
                p = probability(p, of[i % 2 * 2], position, 8 * n + i % 2 - i / 2 * 8);
                g = p * (g - of[i % 2 * 2 + 1]);
                sum[i / 2] += g;
            }
        }
    }
    /// 16 queries from row `at` of their tile on, which are `skipped` after the warp's own rows; the last block of their band is at `slot`.
    __device__ void add_square(const Probability<kind>& probability, const QueryTile<D, streamed>& queries, int at, int skipped, int slot) {
        // On the diagonal rows of the band before the first are masked, whatever is there.
        int band_at[strips + 1];
#pragma unroll
        for (int m = 0; m <= strips; m++) {
            const int before = 16 * (strips - m);
            band_at[m] = skipped < before ? slot : slot < before ? slot + ring - before : slot - before;
        }
        Square s[strips], dp[strips];
        add_scores(s, queries, at, band_at);
        add_probability_gradient(dp, queries, at, band_at);
#pragma unroll
        for (int m = 0; m < strips; m++) {
            const int distance = skipped - 16 * m;
            if (skipped < 16 * strips) hide(s[m], dp[m], [&](int row, int query) { return distance + query < row; });
            softmax_gradient(probability, queries.terms + 2 * at, distance, s[m], dp[m], sums[m]);
        }
        FragmentA left[strips];
        if constexpr (of_keys) {
            pack(left, s);
            add_product<strips, D>(dv, left, queries.dout, at);
        }
        pack(left, dp);
        add_product<strips, D>(dk, left, queries.q, at);
    }
    __device__ void run() {
        const Probability<kind> probability(a, h());
        Cursor tile{0, first, 0};
        if (!at_end(tile)) start(tile);
        for (; !at_end(tile); tile = after(tile)) {
            ptx::cp_async_wait<0>();
            __syncthreads();
            if (!at_end(after(tile))) start(after(tile));
#pragma unroll 1
            for (int at = 0; at < streamed; at += 16) {
                const int skipped = tile.query + at - own, last = slot(tile) + at - (own - first);
                if (skipped >= 0 && tile.query + at < a.T)
                    add_square(probability, queries(tile), at, skipped, last < 0 ? last + ring : last);
            }
        }
    }

    /// What u or v add: dk_j += u Σ_i G_ij, or dr_d += v Σ_i G_i,i−d. The sums are kept for the gradients of u and v.
    __device__ void add_bias(int m, AnyFloats bias, unsigned head, float* kept) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = quad_sum(sums[m][half]);
            if (lane_column() == 0 && own_row(m, half) < a.T) kept[own_row(m, half)] = sum * a.scale;
#pragma unroll
            for (int n = 0; n < D / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) dk[m][n].x[2 * half + c] += bias[int64_t{head} * D + 8 * n + 2 * lane_column() + c] * sum;
        }
    }
    __device__ void store_keys() {
        const unsigned head = h(), sequence = b();
        __syncthreads();
        bf16* staging = reinterpret_cast<Tile<D, owned>&>(shared).at(own - first, 0);
        const int64_t stride = int64_t{a.H} * (3 * D);
#pragma unroll
        for (int m = 0; m < strips; m++) {
            const int row = own + 16 * m;
            if constexpr (relative) add_bias(m, a.u, head, a.key_sums + a.unit(sequence, head) * a.pitch);
            store_rows<D>(dk[m], a.scale, staging, a.gradient<D>(sequence, head, 1, row), stride, a.T - row);
            store_rows<D>(dv[m], 1, staging, a.gradient<D>(sequence, head, 2, row), stride, a.T - row);
        }
    }
    __device__ void store_distances() {
        const unsigned head = h();
#pragma unroll
        for (int m = 0; m < strips; m++) {
            add_bias(m, a.v, head, a.distance_sums + a.unit(0, head) * a.pitch);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                if (own_row(m, half) >= a.T) continue;
                float* row = a.dr + (int64_t{own_row(m, half)} * a.H + head) * D + 2 * lane_column();
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    const float(&x)[4] = dk[m][n].x;
                    store_vector(row + 8 * n, Vector<float, 2>{{x[2 * half] * a.scale, x[2 * half + 1] * a.scale}});
                }
            }
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
    launch(ctx, {dim3(unsigned(a.H), owner == Owner::keys ? a.B : 1, blocks_for(a.T, Pass::owned)), Pass::threads, sizeof(typename Pass::Shared)},
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
