// The forward of attention on tensor cores, IO-aware (Dao 2023, FlashAttention-2), for all three kinds of position.
//
// A block has 64 queries of one head, 16 for each of its four warps, and walks the tiles of 64 keys from the diagonal, the only one
// that needs a mask, down to key 0. Per tile, in registers, for a warp:
//
//     S (16, 64) = Q·Kᵀ + position      P = exp(S − m)      O (16, D) = O exp(m_before − m) + P·V      l = l exp(m_before − m) + Σ P
//
// with m the greatest score so far; at the end out = O / l and lse = m + log l. No (T, T) matrix is in memory. Exponentials are of base 2:
// the factor log2 e is part of the scale. The rounding to bf16 is that of P, for the tensor core, and of out.
//
// Relative positions take one more product per tile, no more. Query tile m and key tile n of 64 need the distances of tile ρ = m − n of
// r, those with key <= query within the tiles, and of tile ρ − 1, the others:
//
//          key tile n − 1   key tile n           Each square is 64 queries by 64 keys, each diagonal one distance. The block multiplies
//         ┌──────────────┬──────────────┐        its Q with tile ρ of r once: E (64, 64). The shift takes the triangle of E that
//   query │ ╲  tile ρ    │ ╲  tile ρ−1  │        belongs to key tile n to its scores, together with the triangle that the product
//   tile  │   ╲          │   ╲          │        before, with tile ρ − 1, had left in shared memory, and leaves there the triangle
//   m     │ ρ+1 ╲        │  ρ  ╲        │        for key tile n − 1. On the diagonal, n = m, ρ = 0, there is nothing above.
//         └──────────────┴──────────────┘        How the shift goes without bank conflicts: attention_tile.cuh, ShiftRows.
//
// So the scores start as the shifted E plus c_j, and Q·Kᵀ is added by the tensor core: 3 products of (64, 64, D) instead of 2.
//
// Tiles of r, K and V arrive by cp.async in a ring of slots, in the order of use. Before each product the block waits for its tile, at a
// barrier that also says that the tile of the product before is done with, and starts the copy that takes that tile's place.
#include <type_traits>

#include "attention_cuda.h"
#include "attention_tile.cuh"

namespace clover {
namespace {

using namespace tiles;
using Kind = AttentionPosition;

constexpr int warps = row_steps, threads = warps * warp_size;

/// A tile and, where there are relative positions, the scalars of its rows: e_d with r, c_j with K.
template <int D, bool scalars>
struct Slot {
    Tile<D> tile;
};
template <int D>
struct Slot<D, true> {
    Tile<D> tile;
    alignas(16) float scalars[rows];
};

template <int D, Kind kind>
struct Shared {
    static constexpr int parts = 2, slots = 4;
    Slot<D, false> slot[slots];
};
template <int D>
struct Shared<D, Kind::relative> {
    static constexpr int parts = 3, slots = 3;
    Slot<D, true> slot[slots];
    ShiftRows shift[warps];
};

struct Problem {
    bf16* out;       // (B·T, H·D)
    float* lse;      // (B, H, T)
    const bf16* qkv; // (B·T, H·3·D)
    int64_t T, H;
    float scale;     // log2 e / √D
    const float* slopes;
    GlobalRows r;
    RelativeScalars scalars;
};

/// What one block works on. The longest rows come first, so that the short ones fill the end.
struct Block {
    int64_t unit, b, h;
    int m;  // query tile
    __device__ explicit Block(const Problem& p) {
        const unsigned tiles = unsigned((p.T + rows - 1) / rows);
        unit = blockIdx.x / tiles;
        m = int(tiles - 1 - blockIdx.x % tiles);
        b = unit / p.H;
        h = unit % p.H;
    }
    /// q (part 0), k (1) or v (2).
    template <int D>
    __device__ GlobalRows operand(const Problem& p, int part) const {
        const int64_t stride = p.H * 3 * D;
        return {p.qkv + b * p.T * stride + (h * 3 + part) * D, stride, p.T};
    }
};

/// The tiles of r, K and V in the order of use.
template <int D, Kind kind>
struct TileStream {
    static constexpr bool relative = kind == Kind::relative;
    static constexpr int parts = Shared<D, kind>::parts, slots = Shared<D, kind>::slots;
    Shared<D, kind>& shared;
    GlobalRows k, v, r;
    const float *c, *e;
    int m;  // the query tile, and the first key tile

    __device__ TileStream(Shared<D, kind>& shared_, const Problem& p, const Block& block)
        : shared(shared_), k(block.operand<D>(p, 1)), v(block.operand<D>(p, 2)), m(block.m) {
        if constexpr (relative) {
            r = {p.r.data + block.h * D, p.r.stride, p.r.count};
            c = p.scalars.c + block.unit * p.scalars.pitch;
            e = p.scalars.e + block.h * p.scalars.pitch;
        }
    }
    /// Where the tile of `part` of key tile n goes.
    __device__ Slot<D, relative>& slot(int part, int n) const { return shared.slot[part + parts * ((m - n) % (slots / parts))]; }

    /// Starts copying the tile of one step and closes its group, which stays empty when there are no more tiles.
    template <int part>
    __device__ void start(int n) const {
        Slot<D, relative>& to = slot(part, n);
        const int64_t key = int64_t{rows} * n, distance = int64_t{rows} * (m - n);
        if (n >= 0) {
            if constexpr (part == parts - 1) load_tile_async<D, threads>(to.tile, v, key);
            if constexpr (part == parts - 2) load_tile_async<D, threads>(to.tile, k, key);
            if constexpr (part == parts - 2 && relative) load_floats_async(to.scalars, c + key);
            if constexpr (part == parts - 3) load_tile_async<D, threads, true>(to.tile, r, distance);
            if constexpr (part == parts - 3) load_floats_async(to.scalars, e + distance);
        }
        ptx::cp_async_commit();
    }
    /// Starts step `step` of all.
    template <int step>
    __device__ void start_first() const {
        start<step % parts>(m - step / parts);
    }
    /// The tile of `part` of key tile n, for the whole block; starts the copy that takes the place of the one used before.
    template <int part>
    __device__ const Slot<D, relative>& take(int n) const {
        ptx::cp_async_wait<slots - 2>();
        __syncthreads();
        constexpr int next = part + slots - 1;
        start<next % parts>(n - next / parts);
        return slot(part, n);
    }
};

/// 16 queries of a warp: what has been summed up so far. Lane 4 g + t has rows g and g + 8; of the sums only the part of its columns.
template <int D>
struct Queries {
    FragmentA q[D / 16];
    FragmentC out[D / 8] = {};
    float greatest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
};

template <int D, Kind kind>
__device__ void start_and_load_queries(const TileStream<D, kind>& stream, const GlobalRows& rows_of_q, int warp, FragmentA (&q)[D / 16]) {
    constexpr int slots = Shared<D, kind>::slots;
    Tile<D>& tile = stream.shared.slot[slots - 1].tile;  // the last to be filled
    load_tile_async<D, threads>(tile, rows_of_q, int64_t{rows} * stream.m);
    ptx::cp_async_commit();
    stream.template start_first<0>();
    stream.template start_first<1>();
    if constexpr (slots == 4) stream.template start_first<2>();
    ptx::cp_async_wait<slots - 1>();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < D; k += 16) q[k / 16] = load_a(tile, 16 * warp, k);
}

/// scores = the shifted Q·rᵀ + e.
template <int D>
__device__ void start_scores(FragmentC (&scores)[rows / 8], const FragmentA (&q)[D / 16], const Slot<D, true>& r, ShiftRows& shift, int a0) {
    FragmentC band[rows / 8];
    start_band(band, r.scalars);
    multiply_transposed<D>(band, q, r.tile);
    shift.store<KeyTile::current>(band, a0);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < rows / 8; n++) scores[n] = shift.load(n);
    __syncwarp();
    shift.store<KeyTile::previous>(band, a0);
}

/// scores += c_j
__device__ inline void add_key_scalars(FragmentC (&scores)[rows / 8], const float* c) {
#pragma unroll
    for (int n = 0; n < rows / 8; n++) {
        const Vector<float, 2> v = load_vector<2>(c + 8 * n + 2 * lane_column());
#pragma unroll
        for (int i = 0; i < 4; i++) scores[n].x[i] += v[i % 2];
    }
}

/// scores = scale · scores + slope (j − i), where `offset` is j − i for the upper left element of the (16, 64).
__device__ inline void add_alibi(FragmentC (&scores)[rows / 8], float scale, float slope, int offset) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float first = slope * float(offset + 2 * lane_column() - lane_row() - 8 * half);
#pragma unroll
        for (int n = 0; n < rows / 8; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float& s = scores[n].x[2 * half + c];
                s = fmaf(s, scale, fmaf(slope, float(8 * n + c), first));
            }
    }
}

/// −∞ for keys b > a on the diagonal.
__device__ inline void mask(FragmentC (&scores)[rows / 8], int a0) {
#pragma unroll
    for (int n = 0; n < rows / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (8 * n + 2 * lane_column() + i % 2 > a0 + lane_row() + i / 2 * 8) scores[n].x[i] = -INFINITY;
}

/// P = 2^(scale (S − m)) in place of S; m, l and O move on.
template <int D>
__device__ void softmax(FragmentC (&scores)[rows / 8], Queries<D>& queries, float scale) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float greatest = queries.greatest[half];
#pragma unroll
        for (int n = 0; n < rows / 8; n++) greatest = fmaxf(greatest, fmaxf(scores[n].x[2 * half], scores[n].x[2 * half + 1]));
        greatest = quad_max(greatest);
        const float older = ptx::exp2_approximate((queries.greatest[half] - greatest) * scale), subtract = -greatest * scale;
        float sum = queries.sum[half] * older;
#pragma unroll
        for (int n = 0; n < rows / 8; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float& s = scores[n].x[2 * half + c];
                s = ptx::exp2_approximate(fmaf(s, scale, subtract));
                sum += s;
            }
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) queries.out[n].x[2 * half + c] *= older;
        queries.greatest[half] = greatest;
        queries.sum[half] = sum;
    }
}

/// O += P·V
template <int D>
__device__ void add_values(FragmentC (&out)[D / 8], const FragmentC (&p)[rows / 8], const Tile<D>& v) {
#pragma unroll
    for (int k = 0; k < rows; k += 16) {
        const FragmentA a = pack(p[k / 8], p[k / 8 + 1]);
#pragma unroll
        for (int n = 0; n < D; n += 16) multiply(out[n / 8], out[n / 8 + 1], a, load_b_transposed(v, k, n));
    }
}

/// out = O / l and lse, for the rows before T. The warp's rows go through its part of `staging`, so that they leave in 16-byte pieces.
template <int D>
__device__ void finish(Queries<D>& queries, float scale, Tile<D>& staging, int a0, int64_t count, bf16* out, int64_t stride, float* lse) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int a = a0 + lane_row() + 8 * half;
        const float sum = quad_sum(queries.sum[half]), factor = 1 / sum;
        if (lane_column() == 0 && a < count) lse[a] = 0.6931471805599453f * fmaf(queries.greatest[half], scale, log2f(sum));
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            const float(&x)[4] = queries.out[n].x;
            const uint32_t pair = ptx::pack_bf16(x[2 * half] * factor, x[2 * half + 1] * factor);
            ptx::store<4>(staging.at(a, 8 * n + 2 * lane_column()), &pair);
        }
    }
    __syncwarp();
#pragma unroll
    for (int n = lane_of_warp(); n < 16 * D / 8; n += warp_size) {
        const int a = a0 + n / (D / 8), column = n % (D / 8) * 8;
        if (a < count) store_vector(out + a * stride + column, load_vector<8>(staging.at(a, column)));
    }
}

template <int D, Kind kind>
__global__ void __launch_bounds__(threads, 2) attention_forward(Problem p) {
    auto& shared = *shared_memory<Shared<D, kind>>();
    const Block block(p);
    const TileStream<D, kind> stream(shared, p, block);
    const int warp = int(threadIdx.x) / warp_size, a0 = 16 * warp;
    const float scale = kind == Kind::alibi ? 1.0f : p.scale;  // of the scores in softmax()
    const float slope = kind == Kind::alibi ? p.slopes[block.h] * 1.4426950408889634f : 0.0f;
    if constexpr (kind == Kind::relative) shared.shift[warp].clear();

    Queries<D> queries;
    start_and_load_queries(stream, block.operand<D>(p, 0), warp, queries.q);
    for (int n = block.m; n >= 0; n--) {
        FragmentC scores[rows / 8] = {};
        if constexpr (kind == Kind::relative) start_scores<D>(scores, queries.q, stream.template take<0>(n), shared.shift[warp], a0);
        const auto& k = stream.template take<stream.parts - 2>(n);
        if constexpr (kind == Kind::relative) add_key_scalars(scores, k.scalars);
        multiply_transposed<D>(scores, queries.q, k.tile);
        if constexpr (kind == Kind::alibi) add_alibi(scores, p.scale, slope, rows * (n - block.m) - a0);
        if (n == block.m) mask(scores, a0);
        softmax<D>(scores, queries, scale);
        add_values<D>(queries.out, scores, stream.template take<stream.parts - 1>(n).tile);
    }
    const int64_t first = int64_t{rows} * block.m, stride = p.H * D;
    finish<D>(queries, scale, shared.slot[0].tile, a0, p.T - first, p.out + (block.b * p.T + first) * stride + block.h * D, stride,
              p.lse + block.unit * p.T + first);
}

/// Calls f(std::integral_constant<int, D>) for a head size that has a kernel; else returns false.
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

template <int D, Kind kind>
void run(Context& ctx, const attention::Sizes& n, const Problem& p) {
    launch(ctx, {blocks_for(n.T, rows) * unsigned(n.B * n.H), threads, sizeof(Shared<D, kind>)}, attention_forward<D, kind>, p);
}

bool aligned(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data) % 16 == 0; }

}  // namespace

bool fast_forward_supports(const AttentionForward& a) {
    const attention::Sizes n = attention::check(a);
    const int64_t blocks = (n.T + rows - 1) / rows * n.B * n.H;
    return a.qkv.dtype == Dtype::bf16 && by_head_size(n.D, [](auto) {}) && blocks < (int64_t{1} << 31) && aligned(a.qkv) && aligned(a.out) &&
           aligned(a.position.r) && aligned(a.position.content_bias) && aligned(a.position.position_bias);
}

size_t fast_forward_workspace_bytes(const AttentionForward& a) {
    return a.position.kind == Kind::relative ? relative_scalars_bytes(attention::check(a)) : 0;
}

void attention_forward_fast(Context& ctx, const AttentionForward& a) {
    const attention::Sizes n = attention::check(a);
    WorkspaceScope scope(ctx.workspace);
    Problem p{a.out.as<bf16>(), a.lse.as<float>(), a.qkv.as<bf16>(), n.T, n.H, float(1.4426950408889634 / std::sqrt(double(n.D))), {}, {}, {}};
    if (a.position.kind == Kind::alibi) p.slopes = a.position.slopes.as<float>();
    if (a.position.kind == Kind::relative) {
        p.r = {a.position.r.as<bf16>(), a.position.r.columns(), n.T};
        p.scalars = relative_scalars(ctx, n, a.qkv, a.position);
    }
    by_head_size(n.D, [&](auto size) {
        constexpr int D = decltype(size)::value;
        switch (a.position.kind) {
            case Kind::none: return run<D, Kind::none>(ctx, n, p);
            case Kind::alibi: return run<D, Kind::alibi>(ctx, n, p);
            case Kind::relative: return run<D, Kind::relative>(ctx, n, p);
        }
    });
}

}  // namespace clover
