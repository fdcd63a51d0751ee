// Matrix products by oneDNN (2.6 of Debian 12 and 3.x). A plan is one oneDNN primitive for one shape, made on first use and kept.
#include "gemm.h"

#include <omp.h>

#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <set>
#include <tuple>

#include "elementwise.h"
#include "gelu.h"

namespace clover {
namespace {

using dnnl::memory;

memory::data_type dnnl_type(Dtype d) {
    CLOVER_CHECK(d != Dtype::i32, "dtype ", name_of(d));
    return d == Dtype::f32 ? memory::data_type::f32 : d == Dtype::bf16 ? memory::data_type::bf16 : memory::data_type::f16;
}

// oneDNN copies b in blocks that follow its row length. For a wide b that lies as stored (not transposed) the copies fall into
// few cache sets, and the product runs at down to half its speed; two panels of columns, each a product of its own, avoid it.
// Where that pays was measured on the shapes of the layers (./clover bench train) with AVX-512 and AMX; the result of a product
// depends on it in the last bits only.
int64_t column_panels(const Gemm& g, GemmSizes s) {
    if (g.transpose_b || s.n % 32 != 0) return 1;
    if (g.a.dtype != Dtype::f32) return g.transpose_a && s.n >= 512 && s.m <= 8192 ? 2 : 1;
    if (g.transpose_a) return s.n >= 2048 ? 2 : 1;
    return s.n >= 512 ? 2 : 1;
}

// A product of fewer multiplications stays on the caller's thread, for which waking the others would take longer. oneDNN asks
// OpenMP for the number of threads, both when it makes a primitive and when it runs one.
constexpr int64_t parallel_above_products = 1 << 18;

class ThreadsFor {
public:
    explicit ThreadsFor(GemmSizes s) : before_(omp_get_max_threads()) {
        if (s.m * s.n * s.k <= parallel_above_products) omp_set_num_threads(1);
    }
    ~ThreadsFor() { omp_set_num_threads(before_); }
    ThreadsFor(const ThreadsFor&) = delete;

private:
    int before_;
};

struct Plan {
    dnnl::matmul primitive;
    memory a, b, c, bias, scratch;
    size_t scratch_bytes = 0;
    int64_t panels = 1, panel_columns = 0;
};

// Everything that makes two products differ for oneDNN; the number of threads is built into its primitives.
using Key = std::tuple<int64_t, int64_t, int64_t, bool, bool, bool, Dtype, Dtype, int, int>;

struct Plans {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::set<Dtype> widened;  // what oneDNN does not multiply on this CPU
    std::map<Key, Plan> plans;
};

dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b, const memory::desc& c,
                                      const memory::desc* bias, const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
    return bias ? dnnl::matmul::primitive_desc(engine, a, b, *bias, c, attributes)
                : dnnl::matmul::primitive_desc(engine, a, b, c, attributes);
#else
    return bias ? dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, *bias, c), attributes, engine)
                : dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, engine);
#endif
}

Plan make_plan(const dnnl::engine& engine, const Gemm& g, GemmSizes s) {
    Plan p;
    p.panels = column_panels(g, s);
    p.panel_columns = s.n / p.panels;
    const memory::dims a_strides = g.transpose_a ? memory::dims{1, s.m} : memory::dims{s.k, 1};
    const memory::dims b_strides = g.transpose_b ? memory::dims{1, s.k} : memory::dims{s.n, 1};
    const memory::desc a({s.m, s.k}, dnnl_type(g.a.dtype), a_strides);
    const memory::desc b({s.k, p.panel_columns}, dnnl_type(g.b.dtype), b_strides);
    const memory::desc c({s.m, p.panel_columns}, dnnl_type(g.c.dtype), memory::dims{s.n, 1});
    memory::desc bias;
    if (g.bias.present()) bias = memory::desc({1, p.panel_columns}, dnnl_type(g.bias.dtype), memory::dims{p.panel_columns, 1});

    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (g.accumulate) {
        dnnl::post_ops sum;
        sum.append_sum(1.0f);
        attributes.set_post_ops(sum);
    }
    const auto description = describe(engine, a, b, c, g.bias.present() ? &bias : nullptr, attributes);
    p.primitive = dnnl::matmul(description);
    p.scratch_bytes = description.scratchpad_desc().get_size();
    p.a = memory(a, engine, DNNL_MEMORY_NONE);
    p.b = memory(b, engine, DNNL_MEMORY_NONE);
    p.c = memory(c, engine, DNNL_MEMORY_NONE);
    p.scratch = memory(description.scratchpad_desc(), engine, DNNL_MEMORY_NONE);
    if (g.bias.present()) p.bias = memory(bias, engine, DNNL_MEMORY_NONE);
    return p;
}

/// Products of a 16-bit dtype whose results are of the same, and f32.
bool multiplies(const dnnl::engine& engine, Dtype dtype) {
    const auto square = [](Dtype d) { return memory::desc({16, 16}, dnnl_type(d), memory::dims{16, 1}); };
    try {
        for (Dtype result : {dtype, Dtype::f32}) describe(engine, square(dtype), square(dtype), square(result), nullptr, {});
    } catch (const dnnl::error&) {
        return false;
    }
    return true;
}

Plans& plans_of(Context& ctx) {
    if (!ctx.gemm_plans) {
        const auto made = std::make_shared<Plans>();
        for (Dtype d : {Dtype::bf16, Dtype::f16})
            if (!multiplies(made->engine, d)) made->widened.insert(d);
        ctx.gemm_plans = made;
    }
    return *static_cast<Plans*>(ctx.gemm_plans.get());
}

Plan& plan_for(Context& ctx, const Gemm& g, GemmSizes s, Plans*& plans) {
    plans = &plans_of(ctx);
    const Key key{s.m, s.n, s.k, g.transpose_a, g.transpose_b, g.accumulate, g.a.dtype, g.c.dtype,
                  g.bias.present() ? 1 + int(g.bias.dtype) : 0, omp_get_max_threads()};
    auto found = plans->plans.find(key);
    if (found == plans->plans.end()) found = plans->plans.emplace(key, make_plan(plans->engine, g, s)).first;
    return found->second;
}

void* column(Tensor t, int64_t elements) { return static_cast<char*>(t.data) + size_t(elements) * bytes_of(t.dtype); }

void run_plan(Plan& p, dnnl::stream& stream, const Gemm& g, GemmSizes s, void* scratch) {
    p.a.set_data_handle(g.a.data);
    if (p.scratch_bytes) p.scratch.set_data_handle(scratch);
    for (int64_t panel = 0; panel < p.panels; panel++) {
        const int64_t first = panel * p.panel_columns;
        p.b.set_data_handle(column(g.b, g.transpose_b ? first * s.k : first));
        p.c.set_data_handle(column(g.c, first));
        dnnl_exec_arg_t arguments[5] = {{DNNL_ARG_SRC, p.a.get()}, {DNNL_ARG_WEIGHTS, p.b.get()}, {DNNL_ARG_DST, p.c.get()}};
        int count = 3;
        if (p.scratch_bytes) arguments[count++] = {DNNL_ARG_SCRATCHPAD, p.scratch.get()};
        if (g.bias.present()) {
            p.bias.set_data_handle(column(g.bias, first));
            arguments[count++] = {DNNL_ARG_BIAS, p.bias.get()};
        }
        // The C call takes an array; the C++ one would build a map on the heap each time.
        const dnnl_status_t status = dnnl_primitive_execute(p.primitive.get(), stream.get(), count, arguments);
        CLOVER_CHECK(status == dnnl_success, "oneDNN status ", int(status));
    }
    stream.wait();
}

// oneDNN has no bf16 products for CPUs without AVX-512, and f16 ones from version 3 on for the few CPUs with AVX512-FP16. Elsewhere the
// operands are widened to f32, which is exact, and the product, summed in f32 as everywhere, is rounded once.

Gemm widened(Gemm g) {
    for (Tensor* t : {&g.a, &g.b, &g.c, &g.bias}) t->dtype = Dtype::f32;
    return g;
}

size_t widened_bytes(const Gemm& g) {
    size_t bytes = 0;
    for (const Tensor& t : {g.a, g.b, g.c, g.bias})
        if (t.present() && t.dtype != Dtype::f32) bytes += Workspace::padded(size_t(t.count()) * sizeof(float));
    return bytes;
}

void product(Context& ctx, const Gemm& g);

void run_widened(Context& ctx, const Gemm& g) {
    WorkspaceScope scope(ctx.workspace);
    Gemm wide = g;
    for (Tensor* t : {&wide.a, &wide.b, &wide.c, &wide.bias}) {
        if (!t->present() || t->dtype == Dtype::f32) continue;
        const Tensor narrow = *t;
        t->dtype = Dtype::f32, t->data = ctx.workspace.take<float>(narrow.count());
        if (t != &wide.c || g.accumulate) elementwise_cpu.cast(ctx, *t, narrow);
    }
    product(ctx, wide);
    if (g.c.dtype != Dtype::f32) elementwise_cpu.cast(ctx, g.c, wide.c);
}

size_t product_workspace_bytes(Context& ctx, const Gemm& g) {
    const GemmSizes s = gemm_sizes(g);
    if (plans_of(ctx).widened.contains(g.a.dtype)) return widened_bytes(g) + product_workspace_bytes(ctx, widened(g));
    if (s.m == 0 || s.n == 0 || s.k == 0) return 0;
    const ThreadsFor threads(s);
    Plans* plans;
    return Workspace::padded(plan_for(ctx, g, s, plans).scratch_bytes);
}

void product(Context& ctx, const Gemm& g) {
    const GemmSizes s = gemm_sizes(g);
    CLOVER_CHECK(s.k > 0);
    if (s.m == 0 || s.n == 0) return;
    if (plans_of(ctx).widened.contains(g.a.dtype)) return run_widened(ctx, g);
    const ThreadsFor threads(s);
    Plans* plans;
    Plan& p = plan_for(ctx, g, s, plans);
    WorkspaceScope scope(ctx.workspace);
    run_plan(p, plans->stream, g, s, ctx.workspace.take<char>(int64_t(p.scratch_bytes)));
}

// The product alone. What else is asked for follows it in calls of its own.
Gemm plain(Gemm g) {
    if (g.pre_activation.present()) g.c = g.pre_activation;
    g.pre_activation = g.gelu_input = g.bias_gradient = {};
    return g;
}

size_t workspace_bytes(Context& ctx, const Gemm& g) {
    gemm_sizes(g);
    return std::max(product_workspace_bytes(ctx, plain(g)),
                    g.bias_gradient.present() ? elementwise_cpu.column_sum_workspace_bytes(g.a) : size_t{0});
}

void run(Context& ctx, const Gemm& g) {
    gemm_sizes(g);
    product(ctx, plain(g));
    if (g.pre_activation.present()) gelu_cpu.forward(ctx, {.y = g.c, .x = g.pre_activation});
    if (g.gelu_input.present()) gelu_cpu.backward(ctx, {.dx = g.c, .dy = g.c, .x = g.gelu_input});
    if (g.bias_gradient.present()) elementwise_cpu.column_sum(ctx, g.bias_gradient, g.a);
}

}  // namespace

GemmSizes gemm_sizes(const Gemm& g) {
    const auto matrix = [](Tensor t, bool transposed) {
        return std::pair(transposed ? t.columns() : t.rows(), transposed ? t.rows() : t.columns());
    };
    const auto [m, k] = matrix(g.a, g.transpose_a);
    const auto [k_of_b, n] = matrix(g.b, g.transpose_b);
    CLOVER_CHECK(k == k_of_b && g.c.rows() == m && g.c.columns() == n, g.c.describe(), " = ", g.a.describe(),
                 g.transpose_a ? "ᵀ · " : " · ", g.b.describe(), g.transpose_b ? "ᵀ" : "");
    CLOVER_CHECK(g.a.dtype == g.b.dtype, g.a.describe(), " · ", g.b.describe());
    CLOVER_CHECK(!g.bias.present() || (g.bias.count() == n && !g.accumulate), g.bias.describe());
    CLOVER_CHECK(g.pre_activation.present() + g.gelu_input.present() + g.bias_gradient.present() <= 1);
    for (const Tensor& t : {g.pre_activation, g.gelu_input})
        CLOVER_CHECK(!t.present() || (t.has_shape({m, n}) && t.dtype == g.c.dtype && !g.accumulate), t.describe(), " with ", g.c.describe());
    CLOVER_CHECK(!g.gelu_input.present() || !g.bias.present());
    CLOVER_CHECK(!g.bias_gradient.present() || (g.transpose_a && g.bias_gradient.has_shape({m}) && g.bias_gradient.dtype == Dtype::f32),
                 g.bias_gradient.describe());
    return {m, n, k};
}

const GemmOps gemm_cpu{workspace_bytes, run};

}  // namespace clover
