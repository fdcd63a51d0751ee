// Attention over a cache on CUDA. A first kernel appends the new keys and values and checks that they fit. Then a prompt goes through
// the tiles of the plain forward, and single tokens, which must read the whole cache for one query, through two kernels that spread the cache
// over the machine (flash-decoding): the keys are cut into parts of 128, and a block makes of one part
//   m = max S_j,   l = Σ exp(S_j − m),   o = Σ exp(S_j − m) v_j;
// the second kernel adds the parts up in order: O = Σ exp(m_p − m) o_p / Σ exp(m_p − m) l_p.
// How many tokens are cached only the device knows: the grid covers the capacity, and blocks beyond the last key end at once. Where the
// cuts lie depends on nothing, so the bits do not change with the capacity.
#include "attention_cuda.h"
#include "attention_plain.cuh"

namespace clover {
namespace {

using plain::HeadView;

constexpr int64_t prompt = 8;  // from this many new tokens on, tiles pay
constexpr int part = 128;      // keys of a block
constexpr int threads = 128;
constexpr int group = 8;       // lanes that share a row
constexpr int groups = threads / group;
constexpr int warps = threads / warp_size;
constexpr int rows_at_once = 4;  // loads that a group has under way
constexpr int greatest_head = 256;
static_assert(part == threads && part % (groups * rows_at_once) == 0);

template <class T>
struct Problem {
    int64_t B, H, Q, capacity, distances;  // distances: rows of r, or no limit
    int D;
    float scale;
    bool vectors;             // rows may be moved 16 bytes at a time
    HeadView<const T> q, k, v;  // of the new tokens
    HeadView<T> keys, values;   // the cache
    const int32_t* past;        // (B)
    const float* slopes;        // alibi, else null
    HeadView<const T> r;        // relative
    AnyFloats u, v_bias;
    HeadView<T> out;
};

/// What a block finds out about its part of the keys.
struct Parts {
    int64_t count;  // per token and head
    float* o;       // (B, Q, H, count, D)
    float2* state;  // (B, Q, H, count): m and l
};

struct Shared {
    float content_q[greatest_head], position_q[greatest_head];  // (q + u) / √D and (q + v) / √D, zero from D on
    float scores[part], weights[part];
    float o[warps][greatest_head];
};

/// A row of a head, `per` elements from column c on; zero beyond D.
template <int per, class T>
__device__ __forceinline__ Vector<float, per> load_floats(const T* row, int c, int D, bool vectors) {
    Vector<float, per> x{};
    if (c >= D) return x;
    if (vectors) {
        const Vector<T, per> raw = load_vector<per>(row + c);
        for (int i = 0; i < per; i++) x[i] = to_float(raw[i]);
    } else {
        for (int i = 0; i < per; i++) x[i] = c + i < D ? to_float(row[c + i]) : 0.0f;
    }
    return x;
}

/// Token n of sequence b, head h.
struct Place {
    int64_t b, n, h;
    template <class T>
    __device__ static Place of(const Problem<T>& p, int64_t row) {
        return {row / p.H / p.Q, row / p.H % p.Q, row % p.H};
    }
};

/// One thread per element of the new keys.
template <class T>
__global__ void decode_append(Problem<T> p) {
    const int64_t x = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (x >= p.B * p.Q * p.H * p.D) return;
    const Place at = Place::of(p, x / p.D);
    const int64_t c = x % p.D, past = p.past[at.b];
    if (past < 0 || past + p.Q > p.capacity || past + p.Q > p.distances) ptx::trap();
    p.keys.at(at.b, at.h, past + at.n)[c] = p.k.at(at.b, at.h, at.n)[c];
    p.values.at(at.b, at.h, past + at.n)[c] = p.v.at(at.b, at.h, at.n)[c];
}

template <bool relative, class T>
__device__ void load_query(const Problem<T>& p, const Place& at, Shared& shared) {
    const T* q = p.q.at(at.b, at.h, at.n);
    for (int c = threadIdx.x; c < greatest_head; c += threads) {
        const int64_t bias = at.h * p.D + c;
        const float x = c < p.D ? to_float(q[c]) : 0.0f;
        shared.content_q[c] = (relative && c < p.D ? x + p.u[bias] : x) * p.scale;
        if constexpr (relative) shared.position_q[c] = c < p.D ? (x + p.v_bias[bias]) * p.scale : 0.0f;
    }
}

/// x[i] = elements c … of row(i), or zero where row(i) is null. All loads are under way before the first is used.
template <int per, class T, class Row>
__device__ __forceinline__ void load_rows(Vector<float, per> (&x)[rows_at_once], const Problem<T>& p, int c, Row&& row) {
#pragma unroll
    for (int i = 0; i < rows_at_once; i++) x[i] = row(i) ? load_floats<per>(row(i), c, p.D, p.vectors) : Vector<float, per>{};
}

/// dots[i] += query · row(i), the share of this lane of the group. (Of 8 lanes that read 8 bf16's worth of the query, two share a bank: the
/// rows, which come from global memory, take longer.)
template <class T, class Row>
__device__ __forceinline__ void add_dots(float (&dots)[rows_at_once], const float* query, const Problem<T>& p, Row&& row) {
    constexpr int per = per_16_bytes<T>;
    for (int c = int(threadIdx.x) % group * per; c < p.D; c += group * per) {
        Vector<float, per> x[rows_at_once];
        load_rows(x, p, c, row);
#pragma unroll
        for (int e = 0; e < per; e += 4) {
            const Vector<float, 4> q = load_vector<4>(query + c + e);
            for (int i = 0; i < rows_at_once; i++)
                for (int k = 0; k < 4; k++) dots[i] += q[k] * x[i][e + k];
        }
    }
}

/// scores[j] for the keys first + j < end of the part, −∞ beyond.
template <bool relative, class T>
__device__ void score_part(const Problem<T>& p, const Place& at, int64_t first, int64_t end, Shared& shared) {
    const int64_t position = p.past[at.b] + at.n;
    const float slope = p.slopes ? p.slopes[at.h] : 0.0f;
    for (int j0 = int(threadIdx.x) / group; j0 < part; j0 += groups * rows_at_once) {
        const auto key = [&](int i) { return first + j0 + i * groups; };
        float dots[rows_at_once]{};
        add_dots(dots, shared.content_q, p, [&](int i) { return key(i) < end ? p.keys.at(at.b, at.h, key(i)) : nullptr; });
        if constexpr (relative)
            add_dots(dots, shared.position_q, p, [&](int i) { return key(i) < end ? p.r.at(at.b, at.h, position - key(i)) : nullptr; });
        for (int i = 0; i < rows_at_once; i++) {
            for (int step = group / 2; step > 0; step /= 2) dots[i] += __shfl_xor_sync(all_lanes, dots[i], step);
            if (threadIdx.x % group == 0)
                shared.scores[j0 + i * groups] = key(i) < end ? dots[i] + slope * float(key(i) - position) : -INFINITY;
        }
    }
}

/// weights[j] = exp(scores[j] − m); every warp finds the same m and l for itself.
__device__ inline float2 softmax_part(Shared& shared) {
    const int lane = int(threadIdx.x) % warp_size;
    float m = -INFINITY, l = 0;
    for (int j = lane; j < part; j += warp_size) m = fmaxf(m, shared.scores[j]);
    m = warp_max(m);
    for (int j = lane; j < part; j += warp_size) {
        const float weight = expf(shared.scores[j] - m);
        l += weight;
        if (j / warp_size == int(threadIdx.x) / warp_size) shared.weights[j] = weight;
    }
    return {m, warp_sum(l)};
}

/// o[warp][c] = Σ_j weights[j] v_j[c] over the keys that the groups of the warp take.
template <class T>
__device__ void add_values(const Problem<T>& p, const Place& at, int64_t first, int64_t end, Shared& shared) {
    constexpr int per = per_16_bytes<T>;
    for (int slice = 0; slice < p.D; slice += group * per) {
        const int c = slice + int(threadIdx.x) % group * per;
        Vector<float, per> sum{}, x[rows_at_once];
        for (int j0 = int(threadIdx.x) / group; j0 < part; j0 += groups * rows_at_once) {
            const auto key = [&](int i) { return first + j0 + i * groups; };
            load_rows(x, p, c, [&](int i) { return key(i) < end ? p.values.at(at.b, at.h, key(i)) : nullptr; });
            for (int i = 0; i < rows_at_once; i++)
                for (int e = 0; e < per; e++) sum[e] += shared.weights[j0 + i * groups] * x[i][e];
        }
        for (int e = 0; e < per; e++) {
            for (int step = group; step < warp_size; step *= 2) sum[e] += __shfl_xor_sync(all_lanes, sum[e], step);
            if (threadIdx.x % warp_size < group) shared.o[threadIdx.x / warp_size][c + e] = sum[e];
        }
    }
}

/// One part of the keys for one token and head.
template <class T, bool relative>
__global__ void __launch_bounds__(threads, 4) decode_part(Problem<T> p, Parts parts) {
    Shared& shared = *shared_memory<Shared>();
    const Place at = Place::of(p, blockIdx.x / parts.count);
    const int64_t first = blockIdx.x % parts.count * part, end = p.past[at.b] + at.n + 1;
    if (first >= end) return;
    load_query<relative>(p, at, shared);
    __syncthreads();
    score_part<relative>(p, at, first, end, shared);
    __syncthreads();
    const float2 state = softmax_part(shared);
    __syncthreads();
    add_values(p, at, first, end, shared);
    __syncthreads();
    if (threadIdx.x == 0) parts.state[blockIdx.x] = state;
    for (int c = threadIdx.x; c < p.D; c += threads) {
        float sum = 0;
        for (int w = 0; w < warps; w++) sum += shared.o[w][c];
        parts.o[int64_t(blockIdx.x) * p.D + c] = sum;
    }
}

/// One block per token and head; a thread adds up a column, and finds the weights of the parts for itself.
template <class T>
__global__ void __launch_bounds__(threads) decode_combine(Problem<T> p, Parts parts) {
    const Place at = Place::of(p, blockIdx.x);
    const int64_t first = int64_t(blockIdx.x) * parts.count, used = (p.past[at.b] + at.n) / part + 1;
    float m = -INFINITY;
    for (int64_t i = 0; i < used; i++) m = fmaxf(m, parts.state[first + i].x);
    for (int c = threadIdx.x; c < p.D; c += threads) {
        float l = 0, o = 0;
        for (int64_t i = 0; i < used; i++) {
            const float2 state = parts.state[first + i];
            const float weight = expf(state.x - m);
            l += weight * state.y;
            o += weight * parts.o[(first + i) * p.D + c];
        }
        p.out.at(at.b, at.h, at.n)[c] = from_float<T>(o / l);
    }
}

// ---- On the host ----------------------------------------------------------------------------------------------------------------

int64_t parts_of(const attention::DecodeSizes& n) { return n.Q < prompt ? (n.capacity + part - 1) / part : 0; }

template <class T>
Problem<T> problem_of(const AttentionDecode& a, const attention::DecodeSizes& n) {
    Problem<T> p{};
    p.B = n.B, p.H = n.H, p.Q = n.Q, p.capacity = n.capacity, p.distances = INT64_MAX, p.D = int(n.D);
    p.scale = float(1 / std::sqrt(double(n.D)));
    p.vectors = plain::vectors_possible(per_16_bytes<T>, n.D, {a.keys, a.values, a.position.r});
    p.q = plain::part_of<const T>(a.qkv, n.Q, n.D, 0), p.k = plain::part_of<const T>(a.qkv, n.Q, n.D, 1);
    p.v = plain::part_of<const T>(a.qkv, n.Q, n.D, 2);
    p.keys = plain::cache_of<T>(a.keys), p.values = plain::cache_of<T>(a.values);
    p.past = a.past.as<int32_t>();
    p.out = plain::heads_of<T>(a.out, n.Q, n.D);
    if (a.position.kind == AttentionPosition::alibi) p.slopes = a.position.slopes.as<float>();
    if (a.position.kind != AttentionPosition::relative) return p;
    p.r = plain::heads_of<const T>(a.position.r, 0, n.D);
    p.distances = a.position.r.shape[0];
    p.u = AnyFloats(a.position.content_bias), p.v_bias = AnyFloats(a.position.position_bias);
    return p;
}

template <class T>
void decode_tokens(Context& ctx, const AttentionDecode& a, const attention::DecodeSizes& n, const Problem<T>& p) {
    WorkspaceScope scope(ctx.workspace);
    const int64_t rows = n.B * n.Q * n.H, count = parts_of(n);
    float* const o = ctx.workspace.take<float>(rows * count * n.D);
    const Parts parts{count, o, ctx.workspace.take<float2>(rows * count)};
    const Launch l{blocks_for(rows * count, 1), threads, sizeof(Shared)};
    if (a.position.kind == AttentionPosition::relative) launch(ctx, l, decode_part<T, true>, p, parts);
    else launch(ctx, l, decode_part<T, false>, p, parts);
    launch(ctx, {blocks_for(rows, 1), threads}, decode_combine<T>, p, parts);
}

}  // namespace

size_t attention_decode_workspace_bytes(const AttentionDecode& a) {
    const attention::DecodeSizes n = attention::check(a);
    const int64_t parts = n.B * n.Q * n.H * parts_of(n);
    return Workspace::padded(size_t(parts * n.D) * sizeof(float)) + Workspace::padded(size_t(parts) * sizeof(float2));
}

void attention_decode_cuda(Context& ctx, const AttentionDecode& a) {
    const attention::DecodeSizes n = attention::check(a);
    by_dtype(a.qkv.dtype, [&](auto element) {
        using T = decltype(element);
        const Problem<T> p = problem_of<T>(a, n);
        launch(ctx, {blocks_for(n.B * n.Q * n.H * n.D, 256), 256}, decode_append<T>, p);
        if (n.Q < prompt) decode_tokens(ctx, a, n, p);
        else attention_prompt_plain(ctx, a);
    });
}

}  // namespace clover
