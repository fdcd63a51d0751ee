// The plain forward on CUDA, over a sequence's own keys or over a cache; see attention_plain.cuh.
#include "attention_cuda.h"
#include "attention_plain.cuh"

namespace clover {
namespace plain {
namespace {

/// Of one row: the greatest score so far and the sum of exp(score − maximum) over the columns of this thread.
struct RowState {
    float maximum = -INFINITY, total = 0;
};

/// s becomes exp(s − maximum), 0 where column > row + base; the sums so far are scaled to the new maximum.
template <int blocks>
__device__ __forceinline__ void online_softmax(Fragment& s, int base, RowState (&state)[per], float (&sum)[blocks][per][per]) {
#pragma unroll
    for (int m = 0; m < per; m++) {
        float greatest = state[m].maximum;
        for (int n = 0; n < per; n++)
            if (column_of(n) - row_of(m) <= base) greatest = fmaxf(greatest, s[m][n]);
        greatest = row_max(greatest);
        const float older = expf(state[m].maximum - greatest);
        state[m].maximum = greatest;
        state[m].total *= older;
        for (int n = 0; n < per; n++) {
            s[m][n] = column_of(n) - row_of(m) <= base ? expf(s[m][n] - greatest) : 0.0f;
            state[m].total += s[m][n];
        }
        for (int block = 0; block < blocks; block++)
            for (int n = 0; n < per; n++) sum[block][m][n] *= older;
    }
}

template <class T>
struct ForwardResult {
    HeadView<T> out;
    float* lse;  // (B, H, queries), or null
};

/// Every row sees key 0, so from the first tile of keys on its maximum is finite.
template <class T, bool relative, int blocks>
__global__ void __launch_bounds__(threads, blocks_per_multiprocessor<blocks>) plain_forward(Problem<T> p, ForwardResult<T> to) {
    Shared& shared = *shared_memory<Shared>();
    const int64_t units = p.B * p.H, unit = blockIdx.x % units, b = unit / p.H, h = unit % p.H;
    const int i0 = int(gridDim.x / units - 1 - blockIdx.x / units) * tile;  // those with most keys first
    if constexpr (relative) load_biases(p, h, shared);
    const Head<T> head = head_of<relative>(p, b, h, shared, p.past ? p.past[b] : 0);
    const int position = head.past + i0;

    float sum[blocks][per][per]{};
    RowState state[per];
    if constexpr (relative) begin_band(head.position_q, i0, head.r, position, shared);
    for (int j0 = 0; j0 < min(position + tile, head.k.count); j0 += tile) {
        Fragment s{};
        score_keys<relative>(s, head, i0, j0, p.scale, shared);
        online_softmax(s, position - j0, state, sum);
        store_weights(shared.weights, s);
        add_weighted_rows(sum, shared.weights, head.v, j0, shared);
    }

    for (int m = 0; m < per; m++) {
        const float total = row_sum(state[m].total);
        const int i = i0 + row_of(m);
        if (to.lse && column_of(0) == 0 && i < p.queries) to.lse[unit * p.queries + i] = state[m].maximum + logf(total);
        for (int block = 0; block < blocks; block++)
            for (int n = 0; n < per; n++) sum[block][m][n] /= total;
    }
    store_sums(to.out.at(b, h), to.out.row, i0, p, sum);
}

template <class T>
void run_forward(Context& ctx, const Problem<T>& p, const ForwardResult<T>& to, bool relative) {
    specialised(relative, p.D, [&](auto r, auto blocks) {
        launch(ctx, {blocks_for(tiles_of(p.queries) * p.B * p.H, 1), threads, shared_bytes(r)}, plain_forward<T, r, blocks>, p, to);
    });
}

}  // namespace
}  // namespace plain

using namespace plain;

void attention_forward_plain(Context& ctx, const AttentionForward& a) {
    const attention::Sizes n = attention::check(a);
    by_dtype(a.qkv.dtype, [&](auto element) {
        using T = decltype(element);
        Problem<T> p = problem_of<T>(a.qkv, a.position, n.B, n.T, n.H, n.D);
        p.k = part_of<const T>(a.qkv, n.T, n.D, 1);
        p.v = part_of<const T>(a.qkv, n.T, n.D, 2);
        p.vectors = vectors_possible(4, n.D, {a.out, a.qkv, a.position.r});
        run_forward(ctx, p, ForwardResult<T>{heads_of<T>(a.out, n.T, n.D), static_cast<float*>(a.lse.data)},
                    a.position.kind == AttentionPosition::relative);
    });
}

void attention_prompt_plain(Context& ctx, const AttentionDecode& a) {
    const attention::DecodeSizes n = attention::check(a);
    by_dtype(a.qkv.dtype, [&](auto element) {
        using T = decltype(element);
        Problem<T> p = problem_of<T>(a.qkv, a.position, n.B, n.Q, n.H, n.D);
        p.k = cache_of<const T>(a.keys);
        p.v = cache_of<const T>(a.values);
        p.past = a.past.as<int32_t>();
        p.vectors = vectors_possible(4, n.D, {a.out, a.qkv, a.keys, a.values, a.position.r});
        run_forward(ctx, p, ForwardResult<T>{heads_of<T>(a.out, n.Q, n.D), nullptr}, a.position.kind == AttentionPosition::relative);
    });
}

}  // namespace clover
