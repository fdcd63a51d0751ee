// The scalars of relative positions: c_j = u·k_j for each key, e_d = v·r_d for each distance, in f32. Both are products of many rows
// with one vector per head; each element of k and r is read once.
#include "attention_cuda.h"
#include "cuda.cuh"

namespace clover {
namespace {

constexpr int rows_per_block = 64, lanes_per_row = 8, rows_at_once = warp_size / lanes_per_row;

/// T rows of size D for each of B·H units: row t of unit (b, h) is at x + b · sequence_stride + h · head_stride + t · row_stride.
struct HeadRows {
    const bf16* x;
    int64_t sequence_stride, head_stride, row_stride;
    int64_t T, H, D;
};

/// Elements 8 (lane + 8 n) … of a row for n = 0, 1; zero beyond D.
template <class T>
__device__ void load_part(float (&to)[2][8], const T* row, int64_t D) {
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const int64_t column = 8 * (threadIdx.x % lanes_per_row + lanes_per_row * n);
        if (column >= D) {
            for (float& x : to[n]) x = 0;
            continue;
        }
#pragma unroll
        for (int c = 0; c < 8; c += per_16_bytes<T>) {
            const auto v = load_vector<per_16_bytes<T>>(row + column + c);
#pragma unroll
            for (int i = 0; i < per_16_bytes<T>; i++) to[n][c + i] = to_float(v[i]);
        }
    }
}

/// The same in the eight lanes.
__device__ float dot(const float (&a)[2][8], const float (&b)[2][8]) {
    float sum = 0;
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int c = 0; c < 8; c++) sum = fmaf(a[n][c], b[n][c], sum);
    for (int step = lanes_per_row / 2; step > 0; step /= 2) sum += __shfl_xor_sync(all_lanes, sum, step);
    return sum;
}

/// out (B·H, pitch) = rows · w (H, D). A warp takes 32 rows, four at a time with eight lanes each; then lane l stores row l.
template <class Weight>
__global__ void row_dots(HeadRows rows, const Weight* w, float* out, int64_t pitch) {
    const int64_t blocks = pitch / rows_per_block, unit = blockIdx.x / blocks;
    const int64_t first = blockIdx.x % blocks * rows_per_block + threadIdx.x / warp_size * warp_size;
    const int64_t b = unit / rows.H, h = unit % rows.H;
    const bf16* x = rows.x + b * rows.sequence_stride + h * rows.head_stride;
    const int lane = int(threadIdx.x) % warp_size;
    float weights[2][8], part[2][8], mine = 0;
    load_part(weights, w + h * rows.D, rows.D);
    for (int n = 0; n < warp_size; n += rows_at_once) {
        const int64_t t = first + n + lane / lanes_per_row;
        load_part(part, x + (t < rows.T ? t : 0) * rows.row_stride, rows.D);
        const float sum = __shfl_sync(all_lanes, dot(weights, part), lane % rows_at_once * lanes_per_row);
        if (lane / rows_at_once * rows_at_once == n) mine = sum;
    }
    out[unit * pitch + first + lane] = first + lane < rows.T ? mine : 0.0f;
}

int64_t pitch_of(int64_t T) { return (T + rows_per_block - 1) / rows_per_block * rows_per_block; }

float* multiply(Context& ctx, int64_t units, const HeadRows& rows, const Tensor& w) {
    const int64_t pitch = pitch_of(rows.T);
    float* out = ctx.workspace.take<float>(units * pitch);
    by_dtype(w.dtype, [&](auto element) {
        using Weight = decltype(element);
        launch(ctx, {blocks_for(units * pitch, rows_per_block), rows_per_block}, row_dots<Weight>, rows, w.as<Weight>(), out, pitch);
    });
    return out;
}

}  // namespace

size_t relative_scalars_bytes(const attention::Sizes& n) {
    const size_t row = size_t(pitch_of(n.T)) * sizeof(float);
    return Workspace::padded(size_t(n.B * n.H) * row) + Workspace::padded(size_t(n.H) * row);
}

RelativeScalars relative_scalars(Context& ctx, const attention::Sizes& n, const Tensor& qkv, const PositionTerm& position) {
    const HeadRows keys{qkv.as<bf16>() + n.D, n.T * qkv.columns(), 3 * n.D, qkv.columns(), n.T, n.H, n.D};
    const HeadRows distances{position.r.as<bf16>(), 0, n.D, position.r.columns(), n.T, n.H, n.D};
    return {multiply(ctx, n.B * n.H, keys, position.content_bias), multiply(ctx, n.H, distances, position.position_bias), pitch_of(n.T)};
}

}  // namespace clover
