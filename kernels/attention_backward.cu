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

constexpr int lanes_per_row = 8, rows_per_block = block_threads / lanes_per_row;

/// Backward::query_terms. A block has 32 queries of one head, eight lanes for each.
__global__ void query_terms(Backward a, const bf16* out, const float* lse, float* terms) {
    const int t = int((blockIdx.x * block_threads + threadIdx.x) / lanes_per_row);
    const int64_t unit = a.unit(blockIdx.z, blockIdx.y);
    const bool valid = t < a.T;
    const int64_t at = ((int64_t{blockIdx.z} * a.T + (valid ? t : 0)) * a.H + blockIdx.y) * a.D;
    float delta = 0;
    for (int c = int(threadIdx.x % lanes_per_row * 8); c < a.D; c += lanes_per_row * 8) {
        const auto x = load_vector<8>(a.dout + at + c), y = load_vector<8>(out + at + c);
#pragma unroll
        for (int i = 0; i < 8; i++) delta = fmaf(to_float(x[i]), to_float(y[i]), delta);
    }
    for (int step = lanes_per_row / 2; step > 0; step /= 2) delta += __shfl_xor_sync(all_lanes, delta, step);
    if (threadIdx.x % lanes_per_row != 0) return;
    store_vector(terms + (unit * a.pitch + t) * 2, valid ? Vector<float, 2>{{lse[unit * a.T + t] * log2_e, delta}} : Vector<float, 2>{{INFINITY, 0}});
}

// ---- After ---------------------------------------------------------------------------------------------------------------------

/// Rows t of head h in each sequence b, and a weight for each.
struct WeightedRows {
    const bf16* x;
    int64_t sequence_stride, stride, head_stride;
    const float* weights;  // (B, H, pitch)
    int B, T, H, D;
    int64_t pitch;
};
constexpr int rows_per_slab = 256, rows_at_once = 16;
int64_t slabs_of(int64_t rows) { return (rows + rows_per_slab - 1) / rows_per_slab; }

/// parts (slabs, H, D): the weighted sum of 256 rows per block. A thread adds every sixteenth row in 8 columns.
__global__ void weighted_sums(WeightedRows rows, float* parts) {
    float* shared = shared_memory<float>();  // (rows_at_once, D)
    const int first = int(blockIdx.x) * rows_per_slab, h = int(blockIdx.y), D = rows.D;
    const int lane = int(threadIdx.x) / (D / 8), column = int(threadIdx.x) % (D / 8) * 8;
    const int end = rows.B * rows.T;
    float sum[8] = {};
    for (int n = first + lane; n < min(first + rows_per_slab, end); n += rows_at_once) {
        const int b = n / rows.T, t = n % rows.T;
        const float weight = rows.weights[(int64_t{b} * rows.H + h) * rows.pitch + t];
        const auto x = load_vector<8>(rows.x + b * rows.sequence_stride + t * rows.stride + h * rows.head_stride + column);
#pragma unroll
        for (int i = 0; i < 8; i++) sum[i] = fmaf(weight, to_float(x[i]), sum[i]);
    }
#pragma unroll
    for (int i = 0; i < 8; i += 4) store_vector(shared + lane * D + column + i, Vector<float, 4>{{sum[i], sum[i + 1], sum[i + 2], sum[i + 3]}});
    __syncthreads();
    for (int c = int(threadIdx.x); c < D; c += int(blockDim.x)) {
        float total = 0;
        for (int n = 0; n < rows_at_once; n++) total += shared[n * D + c];
        parts[(int64_t{blockIdx.x} * rows.H + h) * D + c] = total;
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
    const int64_t slabs = slabs_of(int64_t{rows.B} * rows.T), count = int64_t{rows.H} * rows.D;
    launch(ctx, {dim3(unsigned(slabs), unsigned(rows.H)), unsigned(rows.D / 8 * rows_at_once), rows_at_once * size_t(rows.D) * sizeof(float)},
           weighted_sums, rows, parts);
    launch(ctx, {blocks_for(count, block_threads), block_threads}, add_parts, parts, slabs, count, to);
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
        parts = slabs_of(n.B * n.T) * n.H * n.D;  // of u; v needs no more
    }
    size_t bytes() const {
        size_t total = 0;
        for (int64_t n : {terms, key_sums, distance_sums, parts}) total += Workspace::padded(size_t(n) * sizeof(float));
        return total;
    }
};

bool aligned(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data) % 16 == 0; }

/// The members that relative positions add; c and e are computed here.
void set_relative(Context& ctx, Backward& p, const AttentionBackward& a, const Scratch& scratch) {
    const RelativeScalars scalars = relative_scalars(ctx, {p.B, p.T, p.H, p.D}, a.qkv, a.position);
    p.r = a.position.r.as<bf16>();
    p.dr = a.dr.as<float>();
    p.c = scalars.c, p.e = scalars.e;
    p.u = AnyFloats(a.position.content_bias), p.v = AnyFloats(a.position.position_bias);
    p.key_sums = ctx.workspace.take<float>(scratch.key_sums);
    p.distance_sums = ctx.workspace.take<float>(scratch.distance_sums);
}

void add_bias_gradients(Context& ctx, const Backward& p, const AttentionBackward& a, float* parts) {
    const int64_t C = int64_t{p.H} * p.D, D = p.D;
    add_weighted_sums(ctx, {p.qkv + D, p.T * 3 * C, 3 * C, 3 * D, p.key_sums, p.B, p.T, p.H, p.D, p.pitch}, parts, a.dcontent_bias.as<float>());
    add_weighted_sums(ctx, {p.r, 0, C, D, p.distance_sums, 1, p.T, p.H, p.D, p.pitch}, parts, a.dposition_bias.as<float>());
}

}  // namespace

bool fast_backward_supports(const AttentionBackward& a) {
    const attention::Sizes n = attention::check(a);
    constexpr int64_t limit = 1 << 30, most = 65535;  // of int, and of blocks in the second and third dimension
    const bool fits = n.B <= most && n.H <= most && n.T <= most * rows && n.B * n.T < limit;
    const bool all_aligned = aligned(a.dqkv) && aligned(a.dout) && aligned(a.out) && aligned(a.qkv) && aligned(a.dr) && aligned(a.position.r) &&
                             aligned(a.position.content_bias) && aligned(a.position.position_bias);
    return a.qkv.dtype == Dtype::bf16 && by_head_size(n.D, [](auto) {}) && n.B * n.T > 0 && fits && all_aligned;
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
    launch(ctx, {dim3(blocks_for(p.pitch, rows_per_block), unsigned(p.H), unsigned(p.B)), block_threads}, query_terms, p, a.out.as<bf16>(),
           a.lse.as<float>(), terms);
    if (kind == Kind::relative) set_relative(ctx, p, a, scratch);
    run_pass<Owner::keys>(ctx, kind, p);
    run_pass<Owner::queries>(ctx, kind, p);
    if (kind != Kind::relative) return;
    run_pass<Owner::distances>(ctx, kind, p);
    add_bias_gradients(ctx, p, a, ctx.workspace.take<float>(scratch.parts));
}

}  // namespace clover
