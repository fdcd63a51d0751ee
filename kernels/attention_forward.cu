// The forward of attention on tensor cores, IO-aware (Dao 2023, FlashAttention-2), for all three kinds of position.
//
// A block has 64 or 128 queries of one head, in strips of 16, one or two for each of its four warps. It walks the tiles of 64 keys from
// the diagonal, where a mask is needed, down to key 0. Per tile and strip, in registers:
//
//     S (16, 64) = Q·Kᵀ + position      P = exp(S − m)      O (16, D) = O exp(m_before − m) + P·V      l = l exp(m_before − m) + Σ P
//
// with m the greatest score so far; at the end out = O / l and lse = m + log l. No (T, T) matrix is in memory. Exponentials are of base 2:
// the factor log2 e is part of the scale. What is rounded to bf16 is P, for the tensor core, and out.
//
// Relative positions take one more product per tile, no more. Query tile m and key tile n of 64 need the distances of tile ρ = m − n of
// r, those with key <= query within the tiles, and of tile ρ − 1, the others:
//
//          key tile n − 1   key tile n           Each square is 64 queries by 64 keys, each diagonal one distance. The block multiplies
//         ┌──────────────┬──────────────┐        its Q with tile ρ of r once: E (64, 64). The shift takes the triangle of E that
//   query │ ╲  tile ρ    │ ╲  tile ρ−1  │        belongs to key tile n to its scores, together with the triangle that the product
//   tile  │   ╲          │   ╲          │        before, with tile ρ − 1, had left in shared memory, and leaves there the triangle
//   m     │ ρ+1 ╲        │  ρ  ╲        │        for key tile n − 1. On the diagonal, n = m, ρ = 0, there is nothing above.
//         └──────────────┴──────────────┘        How the shift goes without bank conflicts: attention_shift.cuh.
//
// So the scores start as the shifted E plus c_j, and Q·Kᵀ is added by the tensor core: 3 products of (64, 64, D) instead of 2.
//
// Tiles of r, K and V arrive by cp.async in a ring of slots, in the order of use. Before each product the block waits for its tile, at a
// barrier that also says that the tile of the product before is done with, and starts the copy that takes that tile's place.
#include <numbers>

#include "attention_cuda.h"
#include "attention_shift.cuh"

namespace clover {
namespace {

using namespace tiles;
using Kind = AttentionPosition;

constexpr int warps = rows / 16, threads = warps * warp_size;
constexpr float log2_e = std::numbers::log2e_v<float>, ln_2 = std::numbers::ln2_v<float>;

/// Strips of queries per warp. Fragments of K and V for one strip take shared memory about as long as their products take the tensor cores,
/// so two strips share them, except where the band of relative positions needs the registers.
template <int D, Kind kind>
inline constexpr int strips = kind == Kind::relative ? 1 : 2;
/// Whether Q stays in shared memory, where it does not fit in the registers beside O and S.
template <int D, Kind kind>
inline constexpr bool queries_stay = strips<D, kind> == 2 && D > 64;

/// Blocks that a multiprocessor is to hold at a time, by its registers and by sm_80's 164 KiB of shared memory.
template <int D, Kind kind>
inline constexpr int blocks_at_once = kind == Kind::relative && D <= 80 ? 3 : 2;

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

/// The block's shared memory: `parts` tiles belong to a key tile; Q may have slots of its own at the end.
template <int D, Kind kind>
struct Shared {
    static constexpr int parts = 2, slots = D == 128 ? 2 : 4;
    Slot<D, false> slot[slots + (queries_stay<D, kind> ? strips<D, kind> : 0)];
};
template <int D>
struct Shared<D, Kind::relative> {
    static constexpr int parts = 3, slots = 3;
    Slot<D, true> slot[slots];
    ShiftRows shift[warps];
};

/// Q of a warp as fragments: at(m, k) is strip m, columns k … k + 15.
template <int D, int M, bool stay>
struct Queries {
    FragmentA x[M][D / 16];
    __device__ void set(const Tile<D>& tile, int row) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int k = 0; k < D; k += 16) x[m][k / 16] = load_a(tile, row + 16 * m, k);
    }
    __device__ const FragmentA& at(int m, int k) const { return x[m][k / 16]; }
};
template <int D, int M>
struct Queries<D, M, true> {
    const Tile<D>* tile;
    int row;
    __device__ void set(const Tile<D>& tile_, int row_) { tile = &tile_, row = row_; }
    __device__ FragmentA at(int m, int k) const { return load_a(*tile, row + 16 * m, k); }
};

/// The kernel's argument.
struct Problem {
    bf16* out;        // (B·T, H·D)
    float* lse;       // (B, H, T)
    const bf16* qkv;  // (B·T, H·3·D)
    int T, H;
    float scale;      // log2 e / √D
    const float* slopes;
    const bf16* r;    // (T, H·D)
    RelativeScalars scalars;
};

/// What one block works on. The longest rows come first, so that the short ones fill the end.
template <int D, int M>
struct Block {
    static constexpr int queries = M * rows;
    const Problem& p;
    int first;  // query
    __device__ explicit Block(const Problem& p_) : p(p_), first(int(gridDim.x - 1 - blockIdx.x) * queries) {}
    __device__ int h() const { return int(blockIdx.y); }
    __device__ int64_t b() const { return blockIdx.z; }
    __device__ int64_t unit() const { return b() * p.H + h(); }
    /// Key tile where the walk begins: that of the last query.
    __device__ int last_key_tile() const { return (min(first + queries, p.T) - 1) / rows; }
    /// q (part 0), k (1) or v (2).
    __device__ GlobalRows operand(int part) const {
        const int stride = p.H * 3 * D;
        return {p.qkv + b() * p.T * stride + (h() * 3 + part) * D, stride, p.T};
    }
    __device__ GlobalRows distances() const { return {p.r + h() * D, p.H * D, p.T}; }
};

/// The tiles of r, K and V in the order of use.
template <int D, Kind kind>
struct TileStream {
    static constexpr bool relative = kind == Kind::relative;
    static constexpr int parts = Shared<D, kind>::parts, slots = Shared<D, kind>::slots;
    Shared<D, kind>& shared;
    GlobalRows k, r = {};
    const float *c = nullptr, *e = nullptr;
    int last;  // key tile, the first to be used

    template <int M>
    __device__ TileStream(Shared<D, kind>& shared_, const Block<D, M>& block)
        : shared(shared_), k(block.operand(1)), last(block.last_key_tile()) {
        if constexpr (relative) {
            r = block.distances();
            c = block.p.scalars.c + block.unit() * block.p.scalars.pitch;
            e = block.p.scalars.e + block.h() * block.p.scalars.pitch;
        }
    }
    /// Where the tile of `part` of key tile n goes.
    __device__ Slot<D, relative>& slot(int part, int n) const { return shared.slot[part + parts * ((last - n) % (slots / parts))]; }

    /// Starts copying the tile of one step and closes its group, which stays empty when there are no more tiles.
    template <int part>
    __device__ void start(int n) const {
        Slot<D, relative>& to = slot(part, n);
        const int key = rows * n, distance = rows * (last - n);
        if (n >= 0) {
            if constexpr (part == parts - 1) load_rows_async<threads, rows>(to.tile, 0, {k.data + D, k.stride, k.count}, key);
            if constexpr (part == parts - 2) load_rows_async<threads, rows>(to.tile, 0, k, key);
            if constexpr (part == parts - 2 && relative) load_floats_async(to.scalars, c + key);
            if constexpr (part == parts - 3) load_rows_async<threads, rows, DistanceOrder>(to.tile, 0, r, distance);
            if constexpr (part == parts - 3) load_floats_async(to.scalars, e + distance);
        }
        ptx::cp_async_commit();
    }
    /// Starts the steps first … end − 1 of all.
    template <int first, int end>
    __device__ void start_steps() const {
        if constexpr (first < end) {
            start<first % parts>(last - first / parts);
            start_steps<first + 1, end>();
        }
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

/// Q of the warp's strips, by way of the slots that are filled last unless it stays, and the start of the stream.
template <int D, Kind kind, int M, bool stay>
__device__ void load_queries(Queries<D, M, stay>& q, const TileStream<D, kind>& stream, const Block<D, M>& block, int warp) {
    constexpr int slots = Shared<D, kind>::slots, query_slot = stay ? slots : slots - M, free = stay ? slots - 1 : slots - M;
    auto* slot = stream.shared.slot + query_slot;
#pragma unroll
    for (int n = 0; n < M; n++)
        load_rows_async<threads, rows>(slot[n].tile, 0, block.operand(0), block.first + n * rows);
    ptx::cp_async_commit();
    stream.template start_steps<0, free>();
    ptx::cp_async_wait<free>();
    __syncthreads();
    q.set(slot[warp * M / warps].tile, M * warp % warps * 16);
    if constexpr (free < slots - 1) __syncthreads();
    stream.template start_steps<free, slots - 1>();
}

/// scores = the shifted Q·rᵀ + e.
template <int D>
__device__ void start_scores(FragmentC (&scores)[1][rows / 8], const Queries<D, 1, false>& q, const Slot<D, true>& r, ShiftRows& shift, int a0) {
    FragmentC band[1][rows / 8];
    start_band(band[0], r.scalars);
    multiply_transposed(band, q, r.tile);
    shift.store<KeyTile::current>(band[0], a0);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < rows / 8; n++) scores[0][n] = shift.load(n);
    __syncwarp();
    shift.store<KeyTile::previous>(band[0], a0);
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

/// What 16 queries have summed up so far. Lane 4 g + t has rows g and g + 8; of l only the part of its columns.
template <int D>
struct Sums {
    FragmentC out[D / 8] = {};
    float greatest[2] = {-INFINITY, -INFINITY}, sum[2] = {};

    /// P = 2^(scale (S − m)) as an operand; m, l and O move on.
    __device__ void softmax(FragmentA (&p)[rows / 16], FragmentC (&scores)[rows / 8], float scale) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float m = greatest[half];
#pragma unroll
            for (int n = 0; n < rows / 8; n++) m = fmaxf(m, fmaxf(scores[n].x[2 * half], scores[n].x[2 * half + 1]));
            m = quad_max(m);
            const float older = ptx::exp2_approximate((greatest[half] - m) * scale), subtract = -m * scale;
            greatest[half] = m;
            sum[half] *= older;
#pragma unroll
            for (int n = 0; n < rows / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float& s = scores[n].x[2 * half + c];
                    s = ptx::exp2_approximate(fmaf(s, scale, subtract));
                    sum[half] += s;
                }
#pragma unroll
            for (int n = 0; n < D / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) out[n].x[2 * half + c] *= older;
        }
#pragma unroll
        for (int k = 0; k < rows / 16; k++) p[k] = pack(scores[2 * k], scores[2 * k + 1]);
    }
};

/// O += P·V
template <int M, int D>
__device__ void add_values(Sums<D> (&sums)[M], const FragmentA (&p)[M][rows / 16], const Tile<D>& v) {
#pragma unroll
    for (int k = 0; k < rows; k += 16)
#pragma unroll
        for (int n = 0; n < D; n += 16) {
            const FragmentB b = load_b_transposed(v, k, n);
#pragma unroll
            for (int m = 0; m < M; m++) multiply(sums[m].out[n / 8], sums[m].out[n / 8 + 1], p[m][k / 16], b);
        }
}

/// out = O / l and lse of 16 queries from `first` on, by way of `staging`, 16 rows of a tile that are the warp's own.
template <int D, int M>
__device__ void finish(Sums<D>& sums, float scale, bf16* staging, const Block<D, M>& block, int first) {
    const int stride = block.p.H * D, count = block.p.T - first;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = lane_row() + 8 * half;
        const float sum = quad_sum(sums.sum[half]), factor = 1 / sum;
        if (lane_column() == 0 && row < count)
            block.p.lse[block.unit() * block.p.T + first + row] = ln_2 * fmaf(sums.greatest[half], scale, log2f(sum));
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) sums.out[n].x[2 * half + c] *= factor;
    }
    store_rows<D>(sums.out, 1, staging, block.p.out + (block.b() * block.p.T + first) * stride + block.h() * D, stride, count);
}

template <int D, Kind kind>
__global__ void __launch_bounds__(threads, blocks_at_once<D, kind>) attention_forward(Problem p) {
    constexpr int M = strips<D, kind>;
    auto& shared = *shared_memory<Shared<D, kind>>();
    const Block<D, M> block(p);
    const TileStream<D, kind> stream(shared, block);
    const int warp = int(threadIdx.x / warp_size), first = block.first + 16 * M * warp;  // query of the warp
    const float slope = kind == Kind::alibi ? p.slopes[block.h()] * log2_e : 0.0f;
    const float scale = kind == Kind::alibi ? 1.0f : p.scale;  // add_alibi() has scaled the scores
    if constexpr (kind == Kind::relative) shared.shift[warp].clear();

    Queries<D, M, queries_stay<D, kind>> q;
    Sums<D> sums[M];
    load_queries(q, stream, block, warp);
    for (int n = stream.last; n >= 0; n--) {
        const bool visible = M == 1 || rows * n <= first;
        FragmentC scores[M][rows / 8] = {};
        FragmentA probabilities[M][rows / 16] = {};
        if constexpr (kind == Kind::relative) start_scores(scores, q, stream.template take<0>(n), shared.shift[warp], first % rows);
        const auto& k = stream.template take<stream.parts - 2>(n);
        if constexpr (kind == Kind::relative) add_key_scalars(scores[0], k.scalars);
        if (visible) {
            multiply_transposed(scores, q, k.tile);
#pragma unroll
            for (int m = 0; m < M; m++) {
                if constexpr (kind == Kind::alibi) add_alibi(scores[m], p.scale, slope, rows * n - (first + 16 * m));
                if (n == first / rows) mask(scores[m], first % rows + 16 * m);
                sums[m].softmax(probabilities[m], scores[m], scale);
            }
        }
        const auto& v = stream.template take<stream.parts - 1>(n);
        if (visible) add_values(sums, probabilities, v.tile);
    }
#pragma unroll
    for (int m = 0; m < M; m++) finish(sums[m], scale, shared.slot[0].tile.at(16 * warp, 0), block, first + 16 * m);
}

template <int D, Kind kind>
void run(Context& ctx, const attention::Sizes& n, const Problem& p) {
    const dim3 grid(blocks_for(n.T, rows * strips<D, kind>), unsigned(n.H), unsigned(n.B));
    launch(ctx, {grid, threads, sizeof(Shared<D, kind>)}, attention_forward<D, kind>, p);
}

bool aligned(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data) % 16 == 0; }

}  // namespace

bool fast_forward_supports(const AttentionForward& a) {
    const attention::Sizes n = attention::check(a);
    constexpr int64_t most = 65535;  // blocks in the second and third dimension
    return a.qkv.dtype == Dtype::bf16 && by_head_size(n.D, [](auto) {}) && n.B <= most && n.H <= most && n.T < (1 << 30) &&
           aligned(a.qkv) && aligned(a.out) && aligned(a.position.r) && aligned(a.position.content_bias) &&
           aligned(a.position.position_bias);
}

size_t fast_forward_workspace_bytes(const AttentionForward& a) {
    return a.position.kind == Kind::relative ? relative_scalars_bytes(attention::check(a)) : 0;
}

void attention_forward_fast(Context& ctx, const AttentionForward& a) {
    const attention::Sizes n = attention::check(a);
    WorkspaceScope scope(ctx.workspace);
    const float scale = float(std::numbers::log2e / std::sqrt(double(n.D)));
    Problem p{a.out.as<bf16>(), a.lse.as<float>(), a.qkv.as<bf16>(), int(n.T), int(n.H), scale, {}, {}, {}};
    if (a.position.kind == Kind::alibi) p.slopes = a.position.slopes.as<float>();
    if (a.position.kind == Kind::relative) {
        p.r = a.position.r.as<bf16>();
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
