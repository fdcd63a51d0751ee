// Matrix products by cuBLASLt, and by a plain kernel of our own where it has no algorithm.
//
// cuBLASLt counts by columns. A matrix stored by rows, (R, S), is by columns its transpose: S x R with ld S. So our C = op(a) op(b) is
// computed as Cᵀ = op(b)ᵀ op(a)ᵀ, with b as cuBLASLt's A, a as its B, and m = N, n = M, k = K:
//   ours           Lt's A     op(A)   Lt's B     op(B)   what is fused
//   y  = x Wᵀ      W  ld K    T       x  ld K    N       bias over Lt's rows (our columns); GeLU, with x stored in the auxiliary matrix
//   dx = dy W      W  ld N    N       dy ld K    N       the slope of GeLU at the auxiliary matrix
//   dW = dyᵀ x     x  ld N    N       dy ld M    T       the sums of op(B) over k: the bias gradient
//
// The heuristic is asked once per shape and its first answer is kept: the same shapes get the same algorithm and so the same bits, in
// every run. Timing the candidates would choose by chance.
#include <algorithm>
#include <array>
#include <compare>
#include <map>

#include "cublaslt.cuh"
#include "cuda.cuh"

namespace clover {
namespace {

// ---- The plain kernel ----------------------------------------------------------------------------------------------------------

constexpr int tile = 16;

struct Tiles {
    float a[tile][tile + 1], b[tile][tile + 1];  // one column more, so that columns lie in different banks
};

/// The tile at (row, column) of x (rows, columns), which is stored as (columns, rows) if transposed; zero outside x.
template <class T>
__device__ void load_tile(float (&to)[tile][tile + 1], const T* x, int64_t rows, int64_t columns, int64_t row, int64_t column, bool transposed) {
    const int fast = int(threadIdx.x), slow = int(threadIdx.y);  // neighbours in x are loaded by neighbouring threads
    const int i = transposed ? fast : slow, j = transposed ? slow : fast;
    const bool inside = row + i < rows && column + j < columns;
    const int64_t at = transposed ? (column + j) * rows + row + i : (row + i) * columns + column + j;
    to[i][j] = inside ? to_float(x[at]) : 0.0f;
}

/// c (M, N) = op(a) op(b) + bias + c: block (tile, tile), one block per tile of c, one thread per element, summed in f32 in the order of k.
template <class In, class Out>
__global__ void product_kernel(Out* c, const In* a, const In* b, const Out* bias, GemmSizes s, bool transpose_a, bool transpose_b, bool accumulate) {
    Tiles& tiles = *shared_memory<Tiles>();
    const int64_t across = (s.n + tile - 1) / tile;
    const int64_t row = blockIdx.x / across * tile, column = blockIdx.x % across * tile;
    float sum = 0;
    for (int64_t k = 0; k < s.k; k += tile) {
        load_tile(tiles.a, a, s.m, s.k, row, k, transpose_a);
        load_tile(tiles.b, b, s.k, s.n, k, column, transpose_b);
        __syncthreads();
        for (int l = 0; l < tile; l++) sum = fmaf(tiles.a[threadIdx.y][l], tiles.b[l][threadIdx.x], sum);
        __syncthreads();
    }
    const int64_t i = row + threadIdx.y, j = column + threadIdx.x;
    if (i >= s.m || j >= s.n) return;
    if (bias) sum += to_float(bias[j]);
    if (accumulate) sum += to_float(c[i * s.n + j]);
    c[i * s.n + j] = from_float<Out>(sum);
}

void run_plain(Context& ctx, const Gemm& g, GemmSizes s) {
    const int64_t blocks = ((s.m + tile - 1) / tile) * ((s.n + tile - 1) / tile);
    by_dtype(g.a.dtype, [&](auto in) {
        by_dtype(g.c.dtype, [&](auto out) {
            using In = decltype(in);
            using Out = decltype(out);
            launch(ctx, {blocks_for(blocks, 1), dim3(tile, tile), sizeof(Tiles)}, product_kernel<In, Out>, g.c.as<Out>(), g.a.as<In>(), g.b.as<In>(),
                   g.bias.present() ? g.bias.as<Out>() : nullptr, s, g.transpose_a, g.transpose_b, g.accumulate);
        });
    });
}

// ---- Plans ---------------------------------------------------------------------------------------------------------------------

/// What one algorithm was found for. The alignments of the pointers count: an algorithm may rely on them.
struct Key {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    Dtype in, out;
    cublasLtEpilogue_t fused, unfused;
    std::array<int, 5> alignment;  // of a, b, c, bias or bias gradient, pre-activation or GeLU's input
    auto operator<=>(const Key&) const = default;
};

struct Plan {
    OwnedCublaslt<cublasLtMatmulDesc_t> product;  // null: cuBLASLt has no algorithm, and the plain kernel multiplies
    OwnedCublaslt<cublasLtMatrixLayout_t> a, b, c;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    cublasLtMatmulHeuristicResult_t chosen{};
};

struct Plans {
    OwnedCublaslt<cublasLtHandle_t> handle;
    std::map<Key, Plan> plans;

    Plans() {
        cublasLtHandle_t made = nullptr;
        CLOVER_CUBLASLT(Create(&made));
        handle.reset(made);
    }
};

Plans& plans_of(Context& ctx) {
    if (!ctx.gemm_plans) ctx.gemm_plans = std::make_shared<Plans>();
    return *static_cast<Plans*>(ctx.gemm_plans.get());
}

// As cuBLAS's manual recommends for the two generations. Room for partial sums of a split k.
size_t product_workspace_limit(Context& ctx) { return cuda_state(ctx).capability >= 90 ? size_t{32} << 20 : size_t{4} << 20; }

/// The largest power of two that divides the address, at most 256. No address yet: tensors of the arenas are aligned so.
int alignment_of(const void* p) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(p) | 256;
    return int(address & -address);
}

cublasLtEpilogue_t unfused_epilogue(const Gemm& g) { return g.bias.present() ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT; }

/// The epilogue that does all that is asked for, where it can be trusted to. GeLU: cuBLASLt's tanh is approximate, which a bf16 result
/// does not show but an f32 or an f16 one does; before sm_90 it is a slow pass of its own; the header asks for rows that are multiples of 8.
/// The bias gradient has the dtype of c, and is f32.
cublasLtEpilogue_t fused_epilogue(const Gemm& g, GemmSizes s, int capability) {
    const bool gelu = g.c.dtype == Dtype::bf16 && capability >= 90 && s.n % 8 == 0;
    if (g.pre_activation.present() && gelu && alignment_of(g.pre_activation.data) >= 16)
        return g.bias.present() ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    if (g.gelu_input.present() && gelu && alignment_of(g.gelu_input.data) >= 16) return CUBLASLT_EPILOGUE_DGELU;
    if (g.bias_gradient.present() && g.c.dtype == Dtype::f32 && !g.bias.present()) return CUBLASLT_EPILOGUE_BGRADB;
    return unfused_epilogue(g);
}
bool fuses_gelu(cublasLtEpilogue_t e) { return e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS; }

/// The matrix that an epilogue stores x in or reads it from.
Tensor auxiliary(const Gemm& g) { return g.pre_activation.present() ? g.pre_activation : g.gelu_input; }

Key key_of(const Gemm& g, GemmSizes s, int capability) {
    const int alignment_of_c = std::min(alignment_of(g.c.data), alignment_of(g.pre_activation.data));  // the product may go to either
    return {s.m, s.n, s.k, g.transpose_a, g.transpose_b, g.a.dtype, g.c.dtype, fused_epilogue(g, s, capability), unfused_epilogue(g),
            {alignment_of(g.a.data), alignment_of(g.b.data), alignment_of_c, alignment_of(g.bias.data), alignment_of(auxiliary(g).data)}};
}

cudaDataType cuda_type(Dtype d) { return d == Dtype::f32 ? CUDA_R_32F : d == Dtype::bf16 ? CUDA_R_16BF : CUDA_R_16F; }

OwnedCublaslt<cublasLtMatrixLayout_t> layout(Dtype dtype, int64_t columns, int64_t rows, bool transposed) {
    if (transposed) std::swap(columns, rows);
    cublasLtMatrixLayout_t made = nullptr;
    CLOVER_CUBLASLT(MatrixLayoutCreate(&made, cuda_type(dtype), uint64_t(columns), uint64_t(rows), columns));
    return OwnedCublaslt<cublasLtMatrixLayout_t>(made);
}

template <class T>
void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, T value) {
    CLOVER_CUBLASLT(MatmulDescSetAttribute(product, attribute, &value, sizeof value));
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    CLOVER_CUBLASLT(MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

OwnedCublaslt<cublasLtMatmulDesc_t> describe(const Key& key, cublasLtEpilogue_t epilogue) {
    cublasLtMatmulDesc_t made = nullptr;
    CLOVER_CUBLASLT(MatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));  // f32 stays f32: TF32 is another compute type
    OwnedCublaslt<cublasLtMatmulDesc_t> product(made);
    set(made, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(made, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    // The heuristic reads how these pointers are aligned, and nothing else of them; run_plan sets the real ones.
    const auto aligned = [](int alignment) { return reinterpret_cast<void*>(uintptr_t(alignment)); };
    set(made, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned(key.alignment[3]));
    if (fuses_gelu(epilogue) || epilogue == CUBLASLT_EPILOGUE_DGELU) {
        set(made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned(key.alignment[4]));
        set(made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.n);
    }
    return product;
}

OwnedCublaslt<cublasLtMatmulPreference_t> preference(const Key& key, size_t workspace) {
    cublasLtMatmulPreference_t made = nullptr;
    CLOVER_CUBLASLT(MatmulPreferenceCreate(&made));
    OwnedCublaslt<cublasLtMatmulPreference_t> owned(made);
    set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace));
    // A split k adds up its parts in f32, never in the dtype of a bf16 result.
    set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(key.alignment[1]));
    set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(key.alignment[0]));
    set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(key.alignment[2]));
    set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(key.alignment[2]));
    return owned;
}

// The first algorithm of the heuristic that fits; false if there is none.
bool find_algorithm(Plan& p, cublasLtHandle_t handle, const Key& key, size_t workspace) {
    cublasLtMatmulHeuristicResult_t found[8];
    int count = 0;
    const cublasStatus_t status = cublaslt().MatmulAlgoGetHeuristic(handle, p.product.get(), p.a.get(), p.b.get(), p.c.get(), p.c.get(),
                                                                    preference(key, workspace).get(), int(std::size(found)), found, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return false;
    check_cublaslt(status, "cublasLtMatmulAlgoGetHeuristic");
    const auto fits = [&](const auto& r) { return r.state == CUBLAS_STATUS_SUCCESS && r.workspaceSize <= workspace; };
    const auto* first = std::find_if(found, found + count, fits);
    if (first == found + count) return false;
    p.chosen = *first;
    return true;
}

Plan make_plan(cublasLtHandle_t handle, const Key& key, size_t workspace) {
    Plan p;
    if (key.in != key.out && key.out != Dtype::f32) return p;  // not among cuBLASLt's combinations
    p.a = layout(key.in, key.n, key.k, key.transpose_b);
    p.b = layout(key.in, key.k, key.m, key.transpose_a);
    p.c = layout(key.out, key.n, key.m, false);
    for (cublasLtEpilogue_t epilogue : {key.fused, key.unfused}) {
        p.epilogue = epilogue;
        p.product = describe(key, epilogue);
        if (find_algorithm(p, handle, key, workspace)) return p;
    }
    return {};
}

const Plan& plan_for(Context& ctx, const Gemm& g, GemmSizes s) {
    Plans& all = plans_of(ctx);
    const Key key = key_of(g, s, cuda_state(ctx).capability);
    auto found = all.plans.find(key);
    if (found == all.plans.end()) found = all.plans.emplace(key, make_plan(all.handle.get(), key, product_workspace_limit(ctx))).first;
    return found->second;
}

// ---- Running -------------------------------------------------------------------------------------------------------------------

void run_plan(Context& ctx, const Plan& p, const Gemm& g, void* bias) {
    WorkspaceScope scope(ctx.workspace);
    set(p.product.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (p.epilogue == CUBLASLT_EPILOGUE_DGELU || fuses_gelu(p.epilogue))
        set(p.product.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, auxiliary(g).data);
    const float one = 1, old_share = g.accumulate ? 1 : 0;
    const size_t bytes = p.chosen.workspaceSize;
    CLOVER_CUBLASLT(Matmul(plans_of(ctx).handle.get(), p.product.get(), &one, g.b.data, p.a.get(), g.a.data, p.b.get(), &old_share, g.c.data, p.c.get(),
                           g.c.data, p.c.get(), &p.chosen.algo, ctx.workspace.take<char>(int64_t(bytes)), bytes, cuda_state(ctx).stream));
}

// cuBLASLt overwrites the bias gradient, and ours adds up.
void run_with_bias_gradient(Context& ctx, const Plan& p, const Gemm& g) {
    WorkspaceScope scope(ctx.workspace);
    const Tensor sums(ctx.workspace.take<float>(g.bias_gradient.count()), Dtype::f32, {g.bias_gradient.count()});
    run_plan(ctx, p, g, sums.data);
    ctx.device.elementwise.add(ctx, g.bias_gradient, g.bias_gradient, sums);
}

// The product and what can be fused into it. Says which epilogue was.
cublasLtEpilogue_t multiply(Context& ctx, Gemm g, GemmSizes s) {
    if (s.m == 0 || s.n == 0) return CUBLASLT_EPILOGUE_DEFAULT;
    const Plan* p = s.k > 0 ? &plan_for(ctx, g, s) : nullptr;
    const bool by_cublaslt = p && p->product;
    const cublasLtEpilogue_t fused = by_cublaslt ? p->epilogue : CUBLASLT_EPILOGUE_DEFAULT;
    if (g.pre_activation.present() && !fuses_gelu(fused)) g.c = g.pre_activation;
    if (!by_cublaslt)
        run_plain(ctx, g, s);
    else if (fused == CUBLASLT_EPILOGUE_BGRADB)
        run_with_bias_gradient(ctx, *p, g);
    else
        run_plan(ctx, *p, g, g.bias.data);
    return fused;
}

// cuBLASLt adds a bias of the dtype of c.
bool casts_bias(const Gemm& g) { return g.bias.present() && g.bias.dtype != g.c.dtype; }

size_t workspace_bytes(Context& ctx, const Gemm& g) {
    const GemmSizes s = gemm_sizes(g);
    if (s.m > 0 && s.n > 0 && s.k > 0) plan_for(ctx, g, s);
    const size_t bias = casts_bias(g) ? Workspace::padded(size_t(s.n) * bytes_of(g.c.dtype)) : 0;
    const size_t sums = g.bias_gradient.present() ? Workspace::padded(g.bias_gradient.bytes()) : 0;
    const size_t column_sum = g.bias_gradient.present() ? ctx.device.elementwise.column_sum_workspace_bytes(g.a) : 0;
    return bias + std::max(sums + product_workspace_limit(ctx), column_sum);
}

void run(Context& ctx, const Gemm& wanted) {
    const GemmSizes s = gemm_sizes(wanted);
    WorkspaceScope scope(ctx.workspace);
    Gemm g = wanted;
    if (casts_bias(g)) {
        g.bias = by_dtype(g.c.dtype, [&](auto out) { return Tensor(ctx.workspace.take<decltype(out)>(s.n), g.c.dtype, {s.n}); });
        ctx.device.elementwise.cast(ctx, g.bias, wanted.bias);
    }
    const cublasLtEpilogue_t fused = multiply(ctx, g, s);
    if (g.pre_activation.present() && !fuses_gelu(fused)) ctx.device.gelu.forward(ctx, {.y = g.c, .x = g.pre_activation});
    if (g.gelu_input.present() && fused != CUBLASLT_EPILOGUE_DGELU) ctx.device.gelu.backward(ctx, {.dx = g.c, .dy = g.c, .x = g.gelu_input});
    if (g.bias_gradient.present() && fused != CUBLASLT_EPILOGUE_BGRADB) ctx.device.elementwise.column_sum(ctx, g.bias_gradient, g.a);
}

}  // namespace

GemmPlanCounts cuda_gemm_plans(Context& ctx) {
    GemmPlanCounts counts;
    for (const auto& [key, plan] : plans_of(ctx).plans) {
        const bool fused = plan.epilogue != CUBLASLT_EPILOGUE_DEFAULT && plan.epilogue != CUBLASLT_EPILOGUE_BIAS;
        (!plan.product ? counts.plain : fused ? counts.fused : counts.unfused)++;
    }
    return counts;
}

const GemmOps gemm_cuda{workspace_bytes, run};

}  // namespace clover
