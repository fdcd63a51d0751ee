// LayerNorm and RMSNorm on CUDA. Forward stands in norm_rows.cuh. Backward, with xhat = (s − mean) · rstd and g = dy · weight:
//   ds = rstd · (g − mean(g) − xhat · mean(g · xhat)),   dweight = Σ dy · xhat,   dbias = Σ dy
//
// A group of threads (a warp for up to 512 columns, else the block) takes two rows at a time, reads x and dy once, into shared memory, and
// sums; then it writes dx and adds to its own sums of dweight and dbias, each thread for its columns. Each block leaves one row of partial
// sums in the workspace; a second kernel adds those up in order.
#include "norm_rows.cuh"

namespace clover {
namespace {

template <class A>
struct Added {
    using Term = A;
    const A *x, *delta;
    int64_t C;
    __device__ RowTerms<A, Floats<A>> row(int64_t n) const { return {x + n * C, {delta ? delta + n * C : nullptr}}; }
};

void forward(Context& ctx, const NormForward& n) {
    check(n);
    const bool vectors = by_vectors(4, n.x.shape[1], {n.y, n.sum, n.x, n.delta, n.weight, n.bias});
    by_dtype(n.x.dtype, [&](auto a) {
        using A = decltype(a);
        const bool add = n.delta.present();
        run_norm_rows(ctx, normed_rows<A>(n, add ? n.sum.as<A>() : nullptr), Added<A>{n.x.as<A>(), add ? n.delta.as<A>() : nullptr, n.x.shape[1]},
                      vectors);
    });
}

// ---- backward ------------------------------------------------------------------------------------------------------------------

constexpr int at_once = 2;  // rows

template <class A>
struct BackwardRows {
    int64_t N, rows;  // rows: of a block
    int C;
    bool layernorm, accumulate;
    A* dx;
    const A *dy, *x;
    AnyFloats weight;
    const float *mean, *rstd;
    float *dweight, *dbias;  // (blocks, C) partial sums; dbias may be null
    bool keep_rows = false, keep_sums = false, keep_weight = false;  // in shared memory
};

/// One row: absent if it has no dx. The means are those over its columns of g and of g · xhat.
template <class A>
struct Row {
    const A *dy, *x;
    A* dx;
    float mean, rstd, mean_g = 0, mean_g_xhat = 0;
};

/// Reads the rows' x and dy, keeping them at `kept` (at_once, 2, C) if that is given, and finds their means. A thread asks for 64 bytes
/// before it uses the first.
template <class Group, int width, class A>
__device__ void read_rows(Row<A> (&rows)[at_once], A* kept, const BackwardRows<A>& n, float* reduction) {
    constexpr int ahead = std::min<int>(2, 16 / (width * sizeof(A)));
    const int step = Group::size() * width;
    float sums[2 * at_once] = {};
#pragma unroll 1
    for (int begin = Group::rank() * width; begin < n.C; begin += ahead * step) {
        Vector<A, width> dy[ahead][at_once], x[ahead][at_once];
#pragma unroll
        for (int v = 0; v < ahead; v++)
#pragma unroll
            for (int k = 0; k < at_once; k++) {
                const int i = begin + v * step;
                if (i >= n.C || !rows[k].dx) continue;
                dy[v][k] = load_vector<width>(rows[k].dy + i);
                x[v][k] = load_vector<width>(rows[k].x + i);
            }
#pragma unroll
        for (int v = 0; v < ahead; v++) {
            const int i = begin + v * step;
            if (i >= n.C) continue;
            float w[width];
            n.weight.load(w, i);
#pragma unroll
            for (int k = 0; k < at_once; k++) {
                if (!rows[k].dx) continue;
                if (kept) store_vector(kept + 2 * k * padded_columns(n.C) + i, dy[v][k]);
                if (kept) store_vector(kept + (2 * k + 1) * padded_columns(n.C) + i, x[v][k]);
                for (int j = 0; j < width; j++) {
                    const float g = to_float(dy[v][k][j]) * w[j];
                    sums[2 * k] += g;
                    sums[2 * k + 1] += g * ((to_float(x[v][k][j]) - rows[k].mean) * rows[k].rstd);
                }
            }
        }
    }
    Group::sum(sums, reduction);
    for (int k = 0; k < at_once; k++) {
        rows[k].mean_g = n.layernorm ? sums[2 * k] / float(n.C) : 0.0f;
        rows[k].mean_g_xhat = sums[2 * k + 1] / float(n.C);
        if (kept) rows[k].dy = kept + 2 * k * padded_columns(n.C), rows[k].x = kept + (2 * k + 1) * padded_columns(n.C);
    }
}

/// dx of the rows, and what they add to dweight and dbias.
template <class Group, int width, class A>
__device__ void write_rows(const Row<A> (&rows)[at_once], float* dweight, float* dbias, const BackwardRows<A>& n) {
    for (int i = Group::rank() * width; i < n.C; i += Group::size() * width) {
        float w[width], dw[width], db[width] = {}, before[at_once][width] = {};
#pragma unroll
        for (int k = 0; k < at_once; k++)
            if (n.accumulate && rows[k].dx) load_floats(before[k], rows[k].dx + i);
        n.weight.load(w, i);
        load_floats(dw, dweight + i);
        if (dbias) load_floats(db, dbias + i);
#pragma unroll
        for (int k = 0; k < at_once; k++) {
            if (!rows[k].dx) continue;
            float dy[width], x[width], ds[width];
            load_floats(dy, rows[k].dy + i);
            load_floats(x, rows[k].x + i);
            for (int j = 0; j < width; j++) {
                const float xhat = (x[j] - rows[k].mean) * rows[k].rstd;
                ds[j] = (dy[j] * w[j] - rows[k].mean_g - xhat * rows[k].mean_g_xhat) * rows[k].rstd + before[k][j];
                dw[j] += dy[j] * xhat;
                db[j] += dy[j];
            }
            store_floats(rows[k].dx + i, ds);
        }
        store_floats(dweight + i, dw);
        if (dbias) store_floats(dbias + i, db);
    }
}

template <class Group, int width>
__device__ void clear_sums(float* dweight, float* dbias, int C) {
    const float zeros[width] = {};
    for (int i = Group::rank() * width; i < C; i += Group::size() * width) {
        store_floats(dweight + i, zeros);
        if (dbias) store_floats(dbias + i, zeros);
    }
}

/// to (C) = the sum over groups of from (groups, stride), in order. By the whole block.
__device__ void add_groups(float* to, const float* from, int groups, int stride, int C) {
    for (int c = int(threadIdx.x); c < C; c += int(blockDim.x)) {
        float sum = 0;
        for (int g = 0; g < groups; g++) sum += from[g * stride + c];
        to[c] = sum;
    }
}

/// The shared memory of a block: what of it there is, is decided by the host.
template <class A>
struct BackwardShared {
    float *reduction, *weight, *sums;  // sums (groups, 2, C)
    A* rows;                           // (groups, at_once, 2, C)
    __device__ BackwardShared(const BackwardRows<A>& n, int groups) {
        const int columns = padded_columns(n.C);
        reduction = shared_memory<float>();
        weight = reduction + reduction_floats;
        sums = weight + (n.keep_weight ? columns : 0);
        rows = reinterpret_cast<A*>(sums + (n.keep_sums ? groups * 2 * columns : 0));
    }
    static size_t bytes(const BackwardRows<A>& n, int64_t groups) {
        const size_t columns = size_t(padded_columns(n.C)), of_groups = size_t(groups) * columns;
        return reduction_floats * sizeof(float) + (n.keep_weight ? columns * sizeof(float) : 0) + (n.keep_sums ? 2 * of_groups * sizeof(float) : 0) +
               (n.keep_rows ? 2 * at_once * of_groups * sizeof(A) : 0);
    }
};

template <class Group, int width, class A>
__global__ void __launch_bounds__(Group::most_threads, 1) backward_kernel(BackwardRows<A> n) {
    const int groups = int(blockDim.x) / Group::size();
    const int columns = padded_columns(n.C);
    const BackwardShared<A> shared(n, groups);
    float* const dweight_of_block = n.dweight + blockIdx.x * n.C;
    float* const dbias_of_block = n.dbias ? n.dbias + blockIdx.x * n.C : nullptr;
    float* const dweight = n.keep_sums ? shared.sums + Group::place() * 2 * columns : dweight_of_block;
    float* const dbias = !n.dbias ? nullptr : n.keep_sums ? dweight + columns : dbias_of_block;
    A* const kept = n.keep_rows ? shared.rows + Group::place() * at_once * 2 * columns : nullptr;
    clear_sums<Group, width>(dweight, dbias, n.C);
    if (n.keep_weight) {
        copy_floats<width>(shared.weight, n.weight, n.C);
        n.weight = AnyFloats(shared.weight);
        __syncthreads();
    }
    const int64_t end = min(n.N, (int64_t(blockIdx.x) + 1) * n.rows);
    for (int64_t first = blockIdx.x * n.rows + Group::place(); first < end; first += at_once * groups) {
        Row<A> rows[at_once] = {};
        for (int k = 0; k < at_once; k++) {
            const int64_t row = first + k * groups, at = row * n.C;
            if (row >= end) continue;
            rows[k] = {.dy = n.dy + at, .x = n.x + at, .dx = n.dx + at, .mean = n.layernorm ? warp_load(n.mean + row) : 0.0f,
                       .rstd = warp_load(n.rstd + row)};
        }
        read_rows<Group, width>(rows, kept, n, shared.reduction);
        write_rows<Group, width>(rows, dweight, dbias, n);
    }
    if (!n.keep_sums) return;
    __syncthreads();
    add_groups(dweight_of_block, shared.sums, groups, 2 * columns, n.C);
    if (n.dbias) add_groups(dbias_of_block, shared.sums + columns, groups, 2 * columns, n.C);
}

struct BackwardPlan {
    RowThreads threads;
    int64_t groups, rows, blocks;
    explicit BackwardPlan(const NormBackward& n) : threads(n.x.columns(), 512) {
        if (threads.by_warp) threads.threads = 128;
        if (!threads.by_warp) threads.threads = std::max(threads.threads, 256);
        groups = threads.by_warp ? threads.threads / warp_size : 1;
        const int64_t N = n.x.rows(), most = planned_multiprocessors * (512 / threads.threads);
        rows = std::max(4 * at_once * groups, RowCut::ceil(N, most));
        blocks = RowCut::ceil(N, rows);
    }
};

size_t backward_workspace_bytes(const NormBackward& n) {
    return Workspace::padded(size_t(BackwardPlan(n).blocks * n.x.columns() * (n.dbias.present() ? 2 : 1)) * sizeof(float));
}

template <class A>
void backward_rows(Context& ctx, const NormBackward& n) {
    const BackwardPlan plan(n);
    const int64_t C = n.x.shape[1];
    const WorkspaceScope scope(ctx.workspace);
    float* const partials = ctx.workspace.take<float>(plan.blocks * C * (n.dbias.present() ? 2 : 1));
    BackwardRows<A> rows{.N = n.x.shape[0], .rows = plan.rows, .C = row_columns(n.x), .layernorm = n.kind == NormKind::layernorm,
                         .accumulate = n.accumulate_dx, .dx = n.dx.as<A>(), .dy = n.dy.as<A>(), .x = n.x.as<A>(), .weight = AnyFloats(n.weight),
                         .mean = n.mean.present() ? n.mean.as<float>() : nullptr, .rstd = n.rstd.as<float>(), .dweight = partials,
                         .dbias = n.dbias.present() ? partials + plan.blocks * C : nullptr};
    // In the order of what they save: the sums are read and written, the rows read twice.
    for (bool* keep : {&rows.keep_sums, &rows.keep_rows, &rows.keep_weight}) {
        *keep = true;
        *keep = BackwardShared<A>::bytes(rows, plan.groups) <= cuda_state(ctx).shared_limit;
    }
    CLOVER_CHECK(rows.keep_sums || plan.groups == 1);
    const Launch l{unsigned(plan.blocks), unsigned(plan.threads.threads), BackwardShared<A>::bytes(rows, plan.groups)};
    const bool vectors = by_vectors(4, C, {n.dx, n.dy, n.x, n.weight});
    const auto run = [&](auto group) {
        using Group = decltype(group);
        vectors ? launch(ctx, l, backward_kernel<Group, 4, A>, rows) : launch(ctx, l, backward_kernel<Group, 1, A>, rows);
    };
    plan.threads.by_warp ? run(WarpGroup{}) : run(BlockGroup{});
    add_partials(ctx, n.dweight.as<float>(), rows.dbias ? n.dbias.as<float>() : nullptr, partials, plan.blocks, C);
}

void backward(Context& ctx, const NormBackward& n) {
    check(n);
    by_dtype(n.x.dtype, [&](auto a) { backward_rows<decltype(a)>(ctx, n); });
}

}  // namespace

const NormOps norm_cuda = {forward, backward_workspace_bytes, backward};

}  // namespace clover
