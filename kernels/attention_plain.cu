// The plain forward on CUDA, over a sequence's own keys or over a cache; see attention_plain.cuh.
#include "attention_cuda.h"
#include "attention_plain.cuh"

namespace clover {
namespace plain {
namespace {

/// s becomes exp(s − maximum), 0 where column > row + base. Of each row, shared memory holds the greatest score so far and the sum of such
/// exponentials; it and the sums of values are scaled to the new maximum.
template <int blocks>
__device__ __forceinline__ void online_softmax(Fragment& s, int base, Shared& shared, float (&sum)[blocks][per][per]) {
#pragma unroll
    for (int m = 0; m < per; m++) {
        const int row = row_of(m);
        const float before = shared.maxima[row];
        float greatest = before, total = 0;
        for (int n = 0; n < per; n++)
            if (column_of(n) - row <= base) greatest = fmaxf(greatest, s[m][n]);
        greatest = row_max(greatest);
        for (int n = 0; n < per; n++) {
            s[m][n] = column_of(n) - row <= base ? expf(s[m][n] - greatest) : 0.0f;
            total += s[m][n];
        }
        total = row_sum(total);
        const float older = expf(before - greatest);
        __syncwarp();  // everybody has read the maximum
        if (column_of(0) == 0) {
            shared.maxima[row] = greatest;
            shared.sums[row] = shared.sums[row] * older + total;
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
    const int b = blockIdx.x, h = blockIdx.y, i0 = int(gridDim.z - 1 - blockIdx.z) * tile;  // those with most keys first
    if constexpr (relative) load_biases(p, h, shared);
    const int past = p.past ? p.past[b] : 0, position = past + i0;
    const Head<T> head = head_of<relative>(p, b, h, shared, past);

    float sum[blocks][per][per]{};
    fill_rows(shared.maxima, -INFINITY);
    fill_rows(shared.sums, 0);
    if constexpr (relative) begin_band(head.position_q, i0, head.r, position, shared);
    for (int j0 = 0; j0 < min(position + tile, head.k.count); j0 += tile) {
        Fragment s{};
        score_keys<relative>(s, head, i0, j0, position - j0, p.scale, shared);
        online_softmax(s, position - j0, shared, sum);
        store_weights(shared.weights, s);
        add_weighted_rows(sum, shared.weights, head.v, j0, shared);
    }

    __syncthreads();
    for (int m = 0; m < per; m++) {
        const float total = shared.sums[row_of(m)], factor = 1 / total;
        const int i = i0 + row_of(m);
        if (to.lse && column_of(0) == 0 && i < p.queries) to.lse[(b * p.H + h) * p.queries + i] = shared.maxima[row_of(m)] + logf(total);
        for (int block = 0; block < blocks; block++)
            for (int n = 0; n < per; n++) sum[block][m][n] *= factor;
    }
    store_sums(to.out.at(b, h), to.out.row, i0, p, sum);
}

template <class T>
void run_forward(Context& ctx, const Problem<T>& p, const ForwardResult<T>& to, bool relative) {
    specialised(relative, p.D, [&](auto r, auto blocks) {
        launch(ctx, {grid_of(p.B, p), threads, shared_bytes(r)}, plain_forward<T, r, blocks>, p, to);
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
        CLOVER_CHECK(n.capacity <= greatest_position, a.keys.describe());
        p.past = a.past.as<int32_t>();
        p.vectors = vectors_possible(4, n.D, {a.out, a.qkv, a.keys, a.values, a.position.r});
        run_forward(ctx, p, ForwardResult<T>{heads_of<T>(a.out, n.Q, n.D), nullptr}, a.position.kind == AttentionPosition::relative);
    });
}

}  // namespace clover
