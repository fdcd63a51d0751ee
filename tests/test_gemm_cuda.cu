// How the CUDA device plans its products: what is fused where, what is kept, and what happens when cuBLASLt has no algorithm. In the
// harness the stand-in (tests/simt/cublasLt.h) refuses on demand, and holds the caller to the alignments it was promised.
#include "../kernels/cublaslt.cuh"
#include "../kernels/cuda.cuh"
#include "support.h"
#ifdef CLOVER_SIMT
#include "simt/simt.h"
#endif

using namespace clover;
using namespace clover::test;

namespace {

/// The three products of a linear layer between activations of 16 bits, with all that is asked of them in training.
struct Layer {
    static constexpr int64_t n = 24, in = 40, out = 32;
    Dtype dtype;
    Owned x = random_tensor(dtype, {n, in}, 1), w = random_tensor(dtype, {out, in}, 2, 0.1), bias = random_tensor(dtype, {out}, 3);
    Owned dy = random_tensor(dtype, {n, out}, 4), slope_at = random_tensor(dtype, {n, in}, 5);
    Owned y, before, dx, dw{Dtype::f32, {out, in}}, db{Dtype::f32, {out}};

    explicit Layer(const Device& device, Dtype dtype_ = Dtype::bf16)
        : dtype(dtype_), y(unwritten(device, dtype, {n, out})), before(unwritten(device, dtype, {n, out})), dx(unwritten(device, dtype, {n, in})) {}
    std::vector<Gemm> products() const {
        return {{.c = y, .a = x, .b = w, .bias = bias, .transpose_b = true, .pre_activation = before},
                {.c = dx, .a = dy, .b = w, .gelu_input = slope_at},
                {.c = dw, .a = dy, .b = x, .transpose_a = true, .accumulate = true, .bias_gradient = db}};
    }
    void run(Context& ctx) const {
        for (const Gemm& g : products()) ctx.device.gemm.run(ctx, g);
    }
    std::vector<const Owned*> results() const { return {&y, &before, &dx, &dw, &db}; }
};

// The error of each result against the CPU's, of the same inputs.
std::vector<double> errors_against_cpu(const Layer& layer) {
    const Device& cpu = find_device("cpu");
    TestContext ctx(cpu);
    const Layer same(cpu, layer.dtype);
    for (const Gemm& g : same.products()) ctx.reserve(std::max(ctx.ctx.workspace.size, cpu.gemm.workspace_bytes(ctx, g)));
    same.run(ctx);
    std::vector<double> errors;
    for (size_t i = 0; i < layer.results().size(); i++) {
        const Owned &ours = *layer.results()[i], &theirs = *same.results()[i];
        std::vector<double> a, b;
        for (int64_t j = 0; j < ours.t.count(); j++) a.push_back(ours.at(j)), b.push_back(theirs.at(j));
        errors.push_back(normalised_error(a, b));
    }
    return errors;
}
void check_layer(const Layer& layer) {
    const std::vector<double> errors = errors_against_cpu(layer);
    for (size_t i = 0; i < errors.size(); i++) {
        CAPTURE(i);
        CHECK(errors[i] <= (layer.results()[i]->t.dtype == Dtype::f32 ? 1e-5 : 2 * rounding_of(layer.dtype)));
    }
}

/// A context of its own, whose capability can be another's.
struct CudaContext {
    Context ctx{*usable_cuda()};
    CudaContext() {
        ctx.workspace.size = size_t{33} << 20;
        ctx.workspace.base = ctx.device.memory.allocate(ctx.workspace.size, false);
    }
    ~CudaContext() { ctx.device.memory.release(ctx.workspace.base, ctx.workspace.size); }
    CudaContext(const CudaContext&) = delete;
};

}  // namespace

TEST_SUITE("gemm") {
    TEST_CASE("plans of a layer are made once, from its shapes, and give the same bits from any context") {
        if (!usable_cuda()) return;
        CudaContext c;
        Layer layer(*usable_cuda()), again(*usable_cuda());
        for (Gemm g : layer.products()) {
            for (Tensor* t : {&g.c, &g.a, &g.b, &g.bias, &g.pre_activation, &g.gelu_input, &g.bias_gradient}) t->data = nullptr;
            CHECK(c.ctx.device.gemm.workspace_bytes(c.ctx, g) <= c.ctx.workspace.size);
        }
        const GemmPlanCounts planned = cuda_gemm_plans(c.ctx);
        CHECK(planned.fused + planned.unfused == 3);
        layer.run(c.ctx);
        CHECK(cuda_gemm_plans(c.ctx) == planned);
        check_layer(layer);

        CudaContext other;
        again.run(other.ctx);
        for (size_t i = 0; i < layer.results().size(); i++) CHECK(same_bits(*layer.results()[i], *again.results()[i]));
    }
    TEST_CASE("tensors that are less aligned get plans of their own") {
        if (!usable_cuda()) return;
        CudaContext c;
        Owned x = random_tensor(Dtype::bf16, {9, 24}, 1), w = random_tensor(Dtype::bf16, {16, 24}, 2), y(Dtype::bf16, {9, 16}), shifted(Dtype::bf16, {9 * 24 + 1});
        for (int64_t i = 0; i < x.t.count(); i++) shifted.set(i + 1, x.at(i));
        const auto multiply = [&](Tensor a) { c.ctx.device.gemm.run(c.ctx, {.c = y, .a = a, .b = w, .transpose_b = true}); };
        multiply(x);
        const std::vector<double> wanted = y.values();
        y.forget(*usable_cuda());
        multiply(Tensor(shifted.t.as<bf16>() + 1, Dtype::bf16, {9, 24}));
        CHECK(normalised_error(y.values(), wanted) <= 1e-5);
        const GemmPlanCounts plans = cuda_gemm_plans(c.ctx);
        CHECK(plans.unfused + plans.plain == 2);
    }
    TEST_CASE("f32 factors with a bf16 result, no rows, and no columns to sum over") {
        if (!usable_cuda()) return;
        CudaContext c;
        Owned x = random_tensor(Dtype::f32, {19, 21}, 1), w = random_tensor(Dtype::f32, {35, 21}, 2), y = unwritten(*usable_cuda(), Dtype::bf16, {19, 35});
        Owned exact = unwritten(*usable_cuda(), Dtype::f32, {19, 35}), db = random_tensor(Dtype::f32, {35}, 3);
        c.ctx.device.gemm.run(c.ctx, {.c = y, .a = x, .b = w, .transpose_b = true});
        CHECK(cuda_gemm_plans(c.ctx) == GemmPlanCounts{.plain = 1});
        c.ctx.device.gemm.run(c.ctx, {.c = exact, .a = x, .b = w, .transpose_b = true});
        CHECK(normalised_error(y.values(), exact.values()) <= 0x1p-8);
        const GemmPlanCounts before = cuda_gemm_plans(c.ctx);
        c.ctx.device.gemm.run(c.ctx, {.c = y.t.row_range(0, 0), .a = x.t.row_range(0, 0), .b = w, .transpose_b = true});
        CHECK(cuda_gemm_plans(c.ctx) == before);
        const std::vector<double> bias = db.values(), c_before = exact.values();
        Tensor none(x.t.data, Dtype::f32, {0, 19}), none_out(x.t.data, Dtype::f32, {0, 35});
        c.ctx.device.gemm.run(c.ctx, {.c = exact, .a = none, .b = none_out, .transpose_a = true, .accumulate = true});
        CHECK(exact.values() == c_before);
    }
#ifdef CLOVER_SIMT
    TEST_CASE("before sm_90 GeLU is not fused") {
        const int64_t fused = simt::cublaslt_products(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
        simt::options().capability = 80;
        {
            CudaContext c;
            Layer layer(*usable_cuda());
            layer.run(c.ctx);
            check_layer(layer);
            CHECK(cuda_gemm_plans(c.ctx) == GemmPlanCounts{.fused = 1, .unfused = 2});  // the bias gradient alone
        }
        simt::options().capability = 90;
        CHECK(simt::cublaslt_products(CUBLASLT_EPILOGUE_GELU_AUX_BIAS) == fused);
    }
    TEST_CASE("with fused epilogues, without, with no algorithm at all, and with one that wants too much: the same results") {
        struct Case {
            simt::CublasltOptions options;
            GemmPlanCounts plans;
            Dtype dtype = Dtype::bf16;
        };
        const Case cases[] = {{{}, {.fused = 3}},
                              {{.refused_epilogue = CUBLASLT_EPILOGUE_BGRADB}, {.fused = 2, .unfused = 1}},
                              {{.refuse_fused = true}, {.unfused = 2, .plain = 1}},  // the bias goes into the plain kernel
                              {{.refuse_all = true}, {.plain = 3}},
                              {{.beyond_workspace = true}, {.fused = 3}},
                              {{.algorithms = 1, .beyond_workspace = true}, {.plain = 3}},
                              {{}, {.fused = 1, .unfused = 2}, Dtype::f16},  // the bias gradient alone
                              {{.refuse_all = true}, {.plain = 3}, Dtype::f16}};
        for (const Case& each : cases) {
            CAPTURE(&each - cases);
            simt::cublaslt_options() = each.options;
            CudaContext c;
            Layer layer(*usable_cuda(), each.dtype);
            layer.run(c.ctx);
            CHECK(cuda_gemm_plans(c.ctx) == each.plans);
            check_layer(layer);
        }
        simt::cublaslt_options() = {};
    }
    TEST_CASE("the plain kernel: every layout against cuBLASLt, in any order of blocks, warps and lanes") {
        for (Dtype in : float_dtypes)
            for (bool ta : {false, true})
                for (bool tb : {false, true}) {
                    const int64_t m = 37, n = 18, k = 35;
                    Owned a = random_tensor(in, {ta ? k : m, ta ? m : k}, 1), b = random_tensor(in, {tb ? n : k, tb ? k : n}, 2);
                    const auto multiply = [&](bool plain) {
                        Owned c = random_tensor(Dtype::f32, {m, n}, 3);
                        simt::cublaslt_options().refuse_all = plain;
                        CudaContext own;
                        own.ctx.device.gemm.run(own.ctx, {.c = c, .a = a, .b = b, .transpose_a = ta, .transpose_b = tb, .accumulate = true});
                        CHECK(cuda_gemm_plans(own.ctx).plain == plain);
                        simt::cublaslt_options() = {};
                        return c;
                    };
                    const Owned wanted = multiply(false), first = multiply(true);
                    CHECK(normalised_error(first.values(), wanted.values()) <= 1e-6);
                    for (int seed = 0; seed < 20; seed++) {
                        const LaunchOrder order(*usable_cuda(), seed);
                        CHECK(same_bits(multiply(true), first));
                    }
                }
    }
#endif
}
