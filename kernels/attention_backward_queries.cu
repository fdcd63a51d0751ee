// The pass of attention's backward that owns queries and streams keys (attention_backward.cuh): dQ. It walks the keys from the diagonal
// down, so that the distances ascend from 0: their rows of r arrive in the same order as in the other passes.
#include "attention_backward.cuh"

namespace clover::tiles {
namespace {

template <int D, Kind kind>
struct alignas(16) QueryPass : Plan<D, kind, Owner::queries> {
    using Plan = tiles::Plan<D, kind, Owner::queries>;
    using Plan::relative, Plan::threads, Plan::owned, Plan::streamed, Plan::ring;
    struct Keys {
        Tile<D, streamed> k, v;
        alignas(16) float scalars[relative ? streamed : 4];  // c_j
    };
    struct Shared {
        Keys keys[2];
        Ring<D, ring, Plan::bands> band;  // r, and e_d
    };
    static_assert(sizeof(Keys[2]) >= sizeof(Tile<D, owned>));

    FragmentC dq[D / 8] = {};
    Square position;          // relative: q·r + e of the 16 distances that this square of keys shares with the next
    FragmentA gradient = {};  // and G of this square for those distances
    FragmentA q[D / 16], dout[D / 16];
    float lse[2], delta[2];   // of rows g and g + 8
    const Backward& a;
    Shared& shared;
    int64_t h, b;
    int own;                  // the warp's first own query
    int first, top;           // the block's first one, and the end of the keys that it sees, a multiple of `streamed`

    /// The last queries see most keys: they start first, in all heads.
    __device__ QueryPass(const Backward& a_, Shared& shared_) : a(a_), shared(shared_) {
        const unsigned heads = unsigned(a.B * a.H), unit = blockIdx.x % heads;
        h = unit % a.H;
        b = unit / a.H;
        first = int(gridDim.x / heads - 1 - blockIdx.x / heads) * owned;
        own = first + int(threadIdx.x) / warp_size * 16;
        top = min(first + owned, (int(a.T) + streamed - 1) / streamed * streamed);
        load_a<D>(q, a.operand(b, h, 0), own);
        load_a<D>(dout, a.output_gradient(b, h), own);
        for (int half = 0; half < 2; half++) {
            const int query = own + lane_row() + 8 * half;
            const bool valid = query < int(a.T);
            const float* terms = a.query_terms + (unit * a.pitch + (valid ? query : 0)) * 2;
            lse[half] = valid ? terms[0] : INFINITY;
            delta[half] = valid ? terms[1] : 0.0f;
        }
    }

    /// Starts copying the keys from `key` on; of r the distances that they add.
    __device__ void start(int key, int stage, int slot) {
        Keys& to = shared.keys[stage];
        load_rows_async<threads, streamed>(to.k, 0, a.operand(b, h, 1), key);
        load_rows_async<threads, streamed>(to.v, 0, a.operand(b, h, 2), key);
        if constexpr (relative) {
            const int distance = top - streamed - key;
            load_floats_async<streamed>(to.scalars, a.c + (b * a.H + h) * a.pitch + key);
            load_rows_async<threads, streamed>(shared.band.band[0], slot, a.distances(h), distance);
            load_floats_async<streamed>(shared.band.scalars + slot, a.e + h * a.pitch + distance);
        }
        ptx::cp_async_commit();
    }
    /// S of the keys from row `at` of their tile on; `upper` is where the upper half of their band is in the ring.
    __device__ void add_scores(Square& s, const Keys& keys, int at, int upper) {
        Square band;
        if constexpr (relative) {
            start_columns(s, keys.scalars + at);
            start_columns(band, shared.band.scalars + upper);
        }
#pragma unroll
        for (int c = 0; c < D; c += 16) {
            multiply(s, q[c / 16], load_b(keys.k, at, c));
            if constexpr (relative) multiply(band, q[c / 16], load_b(shared.band.band[0], upper, c));
        }
        if constexpr (relative) {
            add_shifted_columns(s, position, band);
            position = band;
        }
    }
    /// P in place of S and G in place of dP. `distance` is that of the square's upper left element.
    __device__ void softmax_gradient(const Probability<kind>& probability, int distance, Square& s, Square& dp) const {
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int column = 8 * n + 2 * lane_column() + i % 2, row = lane_row() + i / 2 * 8;
                float &p = s.x[n].x[i], &g = dp.x[n].x[i];
                p = probability(p, lse[i / 2], distance + row - column);
                g = p * (g - delta[i / 2]);
            }
    }
    /// dq += G·r of the 16 distances that end with this square: the lower half of its band, and the upper one of the square before.
    __device__ void add_positions(const Square& g, int distance, int lower) {
        const Shifted shifted = shift_back(g);
#pragma unroll
        for (int i = 0; i < 4; i++) gradient.r[i] |= shifted.lower.r[i];
        if (distance > 0) add_product(dq, gradient, shared.band.band[0], lower);
        gradient = shifted.upper;
    }
    /// 16 keys from row `at` of their tile on, which are `distance` before the warp's own queries.
    __device__ void add_square(const Probability<kind>& probability, const Keys& keys, int at, int distance, int upper) {
        Square s, dp;
        add_scores(s, keys, at, upper);
#pragma unroll
        for (int c = 0; c < D; c += 16) multiply(dp, dout[c / 16], load_b(keys.v, at, c));
        if (distance == 0) hide(s, dp, [](int query, int key) { return query < key; });
        softmax_gradient(probability, distance, s, dp);
        add_product(dq, pack(dp.x[0], dp.x[1]), keys.k, at);
        if constexpr (relative) add_positions(dp, distance, upper == 0 ? ring - 16 : upper - 16);
    }
    __device__ void run() {
        const Probability<kind> probability(a, h);
        int stage = 0, slot = 0;
        // Where the distances from own − (row `at` of the tile) on are.
        const auto upper = [&](int at) {
            const int row = slot + own - at - (top - streamed);
            return row < 0 ? row + ring : row;
        };
        start(top - streamed, stage, slot);
        for (int key = top - streamed; key >= 0; key -= streamed) {
            ptx::cp_async_wait<0>();
            __syncthreads();
            const int after = slot == ring - streamed ? 0 : slot + streamed;
            if (key > 0) start(key - streamed, stage ^ 1, after);
#pragma unroll 1
            for (int at = streamed - 16; at >= 0; at -= 16) {
                const int distance = own - (key + at);
                if (distance >= 0 && own < int(a.T)) add_square(probability, shared.keys[stage], at, distance, upper(at));
            }
            if (key == 0) break;
            stage ^= 1;
            slot = after;
        }
        if constexpr (relative)
            if (own < int(a.T)) add_product(dq, gradient, shared.band.band[0], upper(0));
    }
    __device__ void store() {
        __syncthreads();
        const int64_t stride = a.H * 3 * D;
        store_rows<D>(dq, a.scale, reinterpret_cast<Tile<D, owned>&>(shared), own - first, a.gradient(b, h, 0) + own * stride, stride, a.T - own);
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
        launch(ctx, {blocks_for(a.T, Pass::owned) * unsigned(a.B * a.H), Pass::threads, sizeof(typename Pass::Shared)},
               attention_backward_queries<size(), position()>, a);
    });
}

}  // namespace clover::tiles
