// The fast backward of attention (attention_backward.cuh): what goes before the passes and after them, and their order.
//   before: lse · log2 e and δ_i = dO_i·O_i of each query, c_j and e_d of relative positions
//   after:  du += Σ_j (Σ_i G_ij) k_j over all sequences, dv += Σ_d (Σ_i G_i,i−d) r_d
#include <numbers>

#include "attention_backward.cuh"

namespace clover {
namespace {

using namespace tiles;

constexpr int block_threads = 256;

// ---- Before --------------------------------------------------------------------------------------------------------------------

constexpr int lanes_per_row = 8;

/// Backward::query_terms; eight lanes take one row.
__global__ void query_terms(Backward a, const bf16* out, const float* lse, float* terms) {
    const int64_t row = (blockIdx.x * int64_t{block_threads} + threadIdx.x) / lanes_per_row, unit = row / a.pitch, t = row % a.pitch;
    const bool valid = t < a.T;
    const int64_t at = ((unit / a.H * a.T + (valid ? t : 0)) * a.H + unit % a.H) * a.D;
    float delta = 0;
    for (int64_t c = threadIdx.x % lanes_per_row * 8; c < a.D; c += lanes_per_row * 8) {
        const auto x = load_vector<8>(a.dout + at + c), y = load_vector<8>(out + at + c);
#pragma unroll
        for (int i = 0; i < 8; i++) delta = fmaf(to_float(x[i]), to_float(y[i]), delta);
    }
    for (int step = lanes_per_row / 2; step > 0; step /= 2) delta += __shfl_xor_sync(all_lanes, delta, step);
    if (threadIdx.x % lanes_per_row != 0) return;
    store_vector(terms + 2 * row, valid ? Vector<float, 2>{{lse[unit * a.T + t] * log2_e, delta}} : Vector<float, 2>{{INFINITY, 0}});
}

// ---- After ---------------------------------------------------------------------------------------------------------------------

/// Rows t of head h in each sequence b, and a weight for each.
struct WeightedRows {
    const bf16* x;
    int64_t sequence_stride, stride;  // of rows; heads are D apart, or 3 D
    int64_t head_stride;
    const float* weights;             // (B, H, pitch)
    int64_t B, T, H, D, pitch;

    int64_t slabs() const;
};
constexpr int rows_per_slab = 256, rows_at_once = 16;
int64_t WeightedRows::slabs() const { return (B * T + rows_per_slab - 1) / rows_per_slab; }

/// parts (slabs, H, D): the weighted sum of 256 rows per block. A thread adds every sixteenth row in 8 columns.
__global__ void weighted_sums(WeightedRows rows, float* parts) {
    float* shared = shared_memory<float>();  // (rows_at_once, D)
    const int64_t slab = blockIdx.x / rows.H, h = blockIdx.x % rows.H, first = slab * rows_per_slab, D = rows.D;
    const int64_t lane = threadIdx.x / (D / 8), column = threadIdx.x % (D / 8) * 8;
    float sum[8] = {};
    for (int64_t n = first + lane; n < min(first + rows_per_slab, rows.B * rows.T); n += rows_at_once) {
        const int64_t b = n / rows.T, t = n % rows.T;
        const float weight = rows.weights[(b * rows.H + h) * rows.pitch + t];
        const auto x = load_vector<8>(rows.x + b * rows.sequence_stride + t * rows.stride + h * rows.head_stride + column);
#pragma unroll
        for (int i = 0; i < 8; i++) sum[i] = fmaf(weight, to_float(x[i]), sum[i]);
    }
#pragma unroll
    for (int i = 0; i < 8; i += 4) store_vector(shared + lane * D + column + i, Vector<float, 4>{{sum[i], sum[i + 1], sum[i + 2], sum[i + 3]}});
    __syncthreads();
    for (int64_t c = threadIdx.x; c < D; c += blockDim.x) {
        float total = 0;
        for (int n = 0; n < rows_at_once; n++) total += shared[n * D + c];
        parts[blockIdx.x * D + c] = total;
    }
}
/// to += Σ parts
__global__ void add_parts(const float* parts, int64_t slabs, int64_t count, float* to) {
    const int64_t i = blockIdx.x * int64_t{block_threads} + threadIdx.x;
    if (i >= count) return;
    float total = 0;
    for (int64_t n = 0; n < slabs; n++) total += parts[n * count + i];
    to[i] += total;
}
void add_weighted_sums(Context& ctx, const WeightedRows& rows, float* parts, float* to) {
    launch(ctx, {unsigned(rows.slabs() * rows.H), unsigned(rows.D / 8 * rows_at_once), rows_at_once * size_t(rows.D) * sizeof(float)},
           weighted_sums, rows, parts);
    launch(ctx, {blocks_for(rows.H * rows.D, block_threads), block_threads}, add_parts, parts, rows.slabs(), rows.H * rows.D, to);
}

// ---- In order ------------------------------------------------------------------------------------------------------------------

int64_t pitch_of(int64_t T) { return (T + rows - 1) / rows * rows; }

/// Floats of each array in the workspace.
struct Scratch {
    int64_t terms, key_sums = 0, distance_sums = 0, parts = 0;

    Scratch(const attention::Sizes& n, bool relative) : terms(n.B * n.H * pitch_of(n.T) * 2) {
        if (!relative) return;
        key_sums = n.B * n.H * pitch_of(n.T);
        distance_sums = n.H * pitch_of(n.T);
        parts = (n.B * n.T + rows_per_slab - 1) / rows_per_slab * n.H * n.D;
    }
    size_t bytes() const {
        size_t total = 0;
        for (int64_t n : {terms, key_sums, distance_sums, parts}) total += Workspace::padded(size_t(n) * sizeof(float));
        return total;
    }
};

bool aligned(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data) % 16 == 0; }

Bias bias_of(const Tensor& t) { return {t.data, t.dtype == Dtype::bf16}; }

/// The members that relative positions add; c and e are computed here.
void set_relative(Context& ctx, Backward& p, const AttentionBackward& a, const Scratch& scratch) {
    const RelativeScalars scalars = relative_scalars(ctx, {p.B, p.T, p.H, p.D}, a.qkv, a.position);
    p.r = a.position.r.as<bf16>();
    p.dr = a.dr.as<float>();
    p.c = scalars.c, p.e = scalars.e;
    p.u = bias_of(a.position.content_bias), p.v = bias_of(a.position.position_bias);
    p.key_sums = ctx.workspace.take<float>(scratch.key_sums);
    p.distance_sums = ctx.workspace.take<float>(scratch.distance_sums);
}

void add_bias_gradients(Context& ctx, const Backward& p, const AttentionBackward& a, float* parts) {
    const int64_t T = p.T, C = int64_t{p.H} * p.D;
    add_weighted_sums(ctx, {p.qkv + p.D, T * 3 * C, 3 * C, 3 * int64_t{p.D}, p.key_sums, p.B, p.T, p.H, p.D, p.pitch}, parts, a.dcontent_bias.as<float>());
    add_weighted_sums(ctx, {p.r, 0, C, p.D, p.distance_sums, 1, p.T, p.H, p.D, p.pitch}, parts, a.dposition_bias.as<float>());
}

}  // namespace

bool fast_backward_supports(const AttentionBackward& a) {
    const attention::Sizes n = attention::check(a);
    constexpr int64_t limit = int64_t{1} << 31;
    return a.qkv.dtype == Dtype::bf16 && by_head_size(n.D, [](auto) {}) && n.B * n.T > 0 && n.B < 1 << 16 && n.T < 1 << 22 && n.H * 3 * n.D < limit &&
           pitch_of(n.T) * n.B * n.H * lanes_per_row / block_threads < limit && aligned(a.dqkv) && aligned(a.dout) && aligned(a.out) &&
           aligned(a.qkv) && aligned(a.position.r) && aligned(a.position.content_bias) && aligned(a.position.position_bias);
}

size_t fast_backward_workspace_bytes(const AttentionBackward& a) {
    const attention::Sizes n = attention::check(a);
    const bool relative = a.position.kind == Kind::relative;
    return Scratch(n, relative).bytes() + (relative ? relative_scalars_bytes(n) : 0);
}

void attention_backward_fast(Context& ctx, const AttentionBackward& a) {
    const attention::Sizes n = attention::check(a);
    const Kind kind = a.position.kind;
    const Scratch scratch(n, kind == Kind::relative);
    WorkspaceScope scope(ctx.workspace);
    Backward p{};
    p.B = int(n.B), p.T = int(n.T), p.H = int(n.H), p.D = int(n.D), p.pitch = pitch_of(n.T);
    p.qkv = a.qkv.as<bf16>(), p.dout = a.dout.as<bf16>(), p.dqkv = a.dqkv.as<bf16>();
    p.scale = float(1 / std::sqrt(double(n.D))), p.score_scale = float(std::numbers::log2e / std::sqrt(double(n.D)));
    if (kind == Kind::alibi) p.slopes = a.position.slopes.as<float>();
    float* terms = ctx.workspace.take<float>(scratch.terms);
    p.query_terms = terms;
    launch(ctx, {blocks_for(scratch.terms / 2 * lanes_per_row, block_threads), block_threads}, query_terms, p, a.out.as<bf16>(),
           a.lse.as<float>(), terms);
    if (kind == Kind::relative) set_relative(ctx, p, a, scratch);
    run_pass<Owner::keys>(ctx, kind, p);
    run_pass<Owner::queries>(ctx, kind, p);
    if (kind != Kind::relative) return;
    run_pass<Owner::distances>(ctx, kind, p);
    add_bias_gradients(ctx, p, a, ctx.workspace.take<float>(scratch.parts));
}

}  // namespace clover
