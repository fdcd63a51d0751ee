// The pass of attention's backward that owns queries and streams keys (attention_backward.cuh): dQ. It walks the keys from the diagonal
// down, so that the distances ascend from 0: their rows of r arrive in the same order as in the other passes.
#include "attention_backward.cuh"

namespace clover::tiles {
namespace {

/// One warp's part of the pass. (Aligned because g++, for the harness, clears the sums 16 bytes at a time.)
template <int D, Kind kind>
struct alignas(16) QueryPass : Plan<D, kind, Owner::queries> {
    using Plan = tiles::Plan<D, kind, Owner::queries>;
    using Plan::relative, Plan::strips, Plan::threads, Plan::owned, Plan::streamed, Plan::ring;
    struct Keys {
        Tile<D, streamed> k, v;
        alignas(16) float scalars[relative ? streamed : 4];  // c_j
    };
    struct Shared {
        Keys keys[2];
        Ring<D, ring, Plan::bands> band;  // r, and e_d
    };
    static_assert(sizeof(Keys[2]) >= sizeof(Tile<D, owned>));  // the results pass through there
    static_assert(!relative || strips == 1);                   // two strips would need two bands

    FragmentC dq[strips][D / 8] = {};
    Square carried;              // relative: q·r + e of the 16 distances that a square of keys shares with the next
    FragmentA gradient[1] = {};  // and G for those distances
    FragmentA q[strips][D / 16], dout[strips][D / 16];
    float lse[strips][2], delta[strips][2];  // of rows g and g + 8; lse times log2 e
    const Backward& a;
    Shared& shared;
    const int first = int(gridDim.z - 1 - blockIdx.z) * owned;             // own query of the block
    const int own = first + int(threadIdx.x / warp_size) * (16 * strips);  // and of the warp
    const int top;  // the end of the keys that the block sees, a multiple of `streamed`

    /// Head and sequence.
    __device__ static unsigned h() { return ptx::block_index<0>(); }
    __device__ static unsigned b() { return ptx::block_index<1>(); }

    /// The last queries see most keys: they start first, in all heads.
    __device__ QueryPass(const Backward& a_, Shared& shared_)
        : a(a_), shared(shared_), top(min(first + owned, (a.T + streamed - 1) / streamed * streamed)) {
        const unsigned head = h(), sequence = b();
#pragma unroll
        for (int m = 0; m < strips; m++) {
            load_a<D>(q[m], a.operand<D>(sequence, head, 0), own + 16 * m);
            load_a<D>(dout[m], a.output_gradient<D>(sequence, head), own + 16 * m);
            for (int half = 0; half < 2; half++) {
                const int query = own + 16 * m + lane_row() + 8 * half;
                const bool valid = query < a.T;
                const float* terms = a.query_terms + (a.unit(sequence, head) * a.pitch + (valid ? query : 0)) * 2;
                lse[m][half] = valid ? terms[0] : INFINITY;
                delta[m][half] = valid ? terms[1] : 0.0f;
            }
        }
    }

    /// Where the distances that the tile of keys from `key` on adds are in the ring, and its buffer.
    __device__ int slot(int key) const { return int(unsigned(top - streamed - key) % ring); }
    static_assert(ring / streamed % 2 == 0);
    __device__ Keys& keys(int key) const { return shared.keys[slot(key) / streamed % 2]; }
    /// Starts copying that tile; of r the distances that it adds.
    __device__ void start(int key) {
        const unsigned head = h(), sequence = b();
        Keys& to = keys(key);
        load_rows_async<threads, streamed>(to.k, 0, a.operand<D>(sequence, head, 1), key);
        load_rows_async<threads, streamed>(to.v, 0, a.operand<D>(sequence, head, 2), key);
        if constexpr (relative) {
            const int distance = top - streamed - key, at = slot(key);
            load_floats_async<streamed>(to.scalars, a.c + a.unit(sequence, head) * a.pitch + key);
            load_rows_async<threads, streamed>(shared.band.band[0], at, a.distances<D>(head), distance);
            load_floats_async<streamed>(shared.band.scalars + at, a.e + a.unit(0, head) * a.pitch + distance);
        }
        ptx::cp_async_commit();
    }
    /// S of the keys from row `at` of their tile on; `upper` is where the upper half of their band is in the ring.
    __device__ void add_scores(Square (&s)[strips], const Keys& tile, int at, int upper) {
        Square band;
        if constexpr (relative) {
            start_columns(s[0], tile.scalars + at);
            start_columns(band, shared.band.scalars + upper);
        }
#pragma unroll
        for (int c = 0; c < D; c += 16) {
            const FragmentB k = load_b(tile.k, at, c);
#pragma unroll
            for (int m = 0; m < strips; m++) multiply(s[m], q[m][c / 16], k);
            if constexpr (relative) multiply(band, q[0][c / 16], load_b(shared.band.band[0], upper, c));
        }
        if constexpr (relative) {
            add_shifted_columns(s[0], carried, band);
            carried = band;
        }
    }
    /// dP of the same.
    __device__ void add_probability_gradient(Square (&dp)[strips], const Keys& tile, int at) const {
#pragma unroll
        for (int c = 0; c < D; c += 16) {
            const FragmentB v = load_b(tile.v, at, c);
#pragma unroll
            for (int m = 0; m < strips; m++) multiply(dp[m], dout[m][c / 16], v);
        }
    }
    /// P in place of S and G in place of dP, for strip m. `distance` is that of the square's upper left element.
    __device__ void softmax_gradient(const Probability<kind>& probability, int m, int distance, Square& s, Square& dp) const {
        const float position = probability.position(distance + lane_row() - 2 * lane_column());
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &p = s.x[n].x[i], &g = dp.x[n].x[i];
                p = probability(p, lse[m][i / 2], position, i / 2 * 8 - 8 * n - i % 2);
                g = p * (g - delta[m][i / 2]);
            }
    }
    /// dq += G·r of the 16 distances that end with this square: the lower half of its band, and the upper one of the square before.
    __device__ void add_positions(const Square& g, int distance, int lower) {
        const Shifted shifted = shift_back(g);
#pragma unroll
        for (int i = 0; i < 4; i++) gradient[0].r[i] |= shifted.lower.r[i];
        if (distance > 0) add_product<1, D>(dq, gradient, shared.band.band[0], lower);
        gradient[0] = shifted.upper;
    }
    /// 16 keys from row `at` of their tile on, which are `distance` before the warp's first query.
    __device__ void add_square(const Probability<kind>& probability, const Keys& tile, int at, int distance, int upper) {
        Square s[strips], dp[strips];
        add_scores(s, tile, at, upper);
        add_probability_gradient(dp, tile, at);
#pragma unroll
        for (int m = 0; m < strips; m++) {
            const int from = distance + 16 * m;
            if (distance <= 0) hide(s[m], dp[m], [&](int query, int key) { return from + query < key; });
            softmax_gradient(probability, m, from, s[m], dp[m]);
        }
        FragmentA left[strips];
        pack(left, dp);
        add_product<strips, D>(dq, left, tile.k, at);
        if constexpr (relative) add_positions(dp[0], distance, upper == 0 ? ring - 16 : upper - 16);
    }
    __device__ void run() {
        const Probability<kind> probability(a, h());
        // Where the distances from own − (row `at` of the tile) on are.
        const auto upper = [&](int key, int at) {
            const int row = slot(key) + own - at - (top - streamed);
            return row < 0 ? row + ring : row;
        };
        start(top - streamed);
        for (int key = top - streamed; key >= 0; key -= streamed) {
            ptx::cp_async_wait<0>();
            __syncthreads();
            if (key > 0) start(key - streamed);
#pragma unroll 1
            for (int at = streamed - 16; at >= 0; at -= 16) {
                const int distance = own - (key + at);
                if (distance > -16 * strips && own < a.T) add_square(probability, keys(key), at, distance, upper(key, at));
            }
        }
        if constexpr (relative)
            if (own < a.T) add_product<1, D>(dq, gradient, shared.band.band[0], upper(0, 0));
    }
    __device__ void store() {
        const unsigned head = h(), sequence = b();
        __syncthreads();
        bf16* staging = reinterpret_cast<Tile<D, owned>&>(shared).at(own - first, 0);
#pragma unroll
        for (int m = 0; m < strips; m++) {
            const int row = own + 16 * m;
            store_rows<D>(dq[m], a.scale, staging, a.gradient<D>(sequence, head, 0, row), int64_t{a.H} * (3 * D), a.T - row);
        }
    }
};

template <int D, Kind kind>
__global__ void __launch_bounds__(Plan<D, kind, Owner::queries>::threads, Plan<D, kind, Owner::queries>::blocks)
    attention_backward_queries(const Backward a) {
    QueryPass<D, kind> pass(a, *shared_memory<typename QueryPass<D, kind>::Shared>());
    pass.run();
    pass.store();
}

}  // namespace

template <>
void run_pass<Owner::queries>(Context& ctx, Kind kind, const Backward& a) {
    by_shape(a.D, kind, [&](auto size, auto position) {
        using Pass = QueryPass<size(), position()>;
        launch(ctx, {dim3(unsigned(a.H), unsigned(a.B), blocks_for(a.T, Pass::owned)), Pass::threads, sizeof(typename Pass::Shared)},
               attention_backward_queries<size(), position()>, a);
    });
}

}  // namespace clover::tiles
