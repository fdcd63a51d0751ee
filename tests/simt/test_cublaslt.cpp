// The stand-in for cuBLASLt against the table of row-major products in facts: cuda.md, section 8, and against its refusals.
#include <cmath>
#include <random>

#include "../../kernels/bf16.h"
#include "buffer.h"
#include "cublasLt.h"

namespace {

using clover::to_bf16;
using clover::to_f16;
using clover::to_float;
using namespace simt::test;

// ---- Values --------------------------------------------------------------------------------------------------------------------

/// A matrix on the device, f32, bf16 or f16, its values known to the test in double. Row-major (rows, columns) is what we say; the library
/// is told (columns, rows) with the row length as leading dimension.
struct Values {
    cudaDataType type;
    std::vector<double> at;
    Buffer<char> memory;

    Values(cudaDataType t, size_t n) : type(t), at(n), memory(n * element()) {}
    Values(cudaDataType t, size_t n, uint32_t seed) : Values(t, n) {
        std::mt19937 random(seed);
        for (double& x : at) {
            const float f = float(random()) * 0x1p-31f - 1;
            x = type == CUDA_R_32F ? f : value(rounded(f));
        }
        upload();
    }
    size_t element() const { return type == CUDA_R_32F ? 4 : 2; }
    uint16_t rounded(float x) const { return type == CUDA_R_16F ? to_f16(x).bits : to_bf16(x).bits; }
    float value(uint16_t bits) const { return type == CUDA_R_16F ? to_float(clover::f16{bits}) : to_float(clover::bf16{bits}); }
    void upload() {
        std::vector<char> bytes(at.size() * element());
        for (size_t i = 0; i < at.size(); i++) {
            const float f = float(at[i]);
            const uint16_t h = rounded(f);
            std::memcpy(bytes.data() + i * element(), type == CUDA_R_32F ? static_cast<const void*>(&f) : &h, element());
        }
        memory.write(bytes);
    }
    std::vector<double> read() const {
        const std::vector<char> bytes = memory.values();
        std::vector<double> v(at.size());
        for (size_t i = 0; i < v.size(); i++) {
            float f = 0;
            uint16_t h = 0;
            std::memcpy(type == CUDA_R_32F ? static_cast<void*>(&f) : &h, bytes.data() + i * element(), element());
            v[i] = type == CUDA_R_32F ? f : value(h);
        }
        return v;
    }
    void* p() const { return memory.p; }
};

/// The error of each element is at most `relative` of it and a twentieth of the largest one: sums of either sign may cancel.
void check_near(const std::vector<double>& got, const std::vector<double>& want, double relative) {
    REQUIRE(got.size() == want.size());
    double scale = 0, worst = 0;
    for (double x : want) scale = std::max(scale, std::abs(x));
    for (size_t i = 0; i < want.size(); i++) {
        const double error = std::abs(got[i] - want[i]) / (std::abs(want[i]) + 0.05 * scale + 1e-30);
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    CHECK(worst <= relative);
}
double tolerance(cudaDataType type) { return type == CUDA_R_32F ? 5e-6 : type == CUDA_R_16F ? 0x1p-11 : 0x1p-8; }

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

// ---- The library, as a user calls it -------------------------------------------------------------------------------------------

struct Layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t ld;
};

struct Lt {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    cublasLtMatrixLayout_t layouts[4];
    float alpha = 1, beta = 0;
    const void *a = nullptr, *b = nullptr, *c = nullptr;
    void *d = nullptr, *workspace = nullptr;
    size_t workspace_bytes = 0;
    cudaStream_t stream = nullptr;
    std::vector<cublasLtMatmulHeuristicResult_t> found;

    Lt(Layout a, cublasOperation_t op_a, Layout b, cublasOperation_t op_b, Layout d) {
        REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
        REQUIRE(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
        REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
        const Layout all[] = {a, b, d, d};
        for (int i = 0; i < 4; i++)
            REQUIRE(cublasLtMatrixLayoutCreate(&layouts[i], all[i].type, all[i].rows, all[i].columns, all[i].ld) == CUBLAS_STATUS_SUCCESS);
        set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t(op_a));
        set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t(op_b));
    }
    ~Lt() {
        for (cublasLtMatrixLayout_t l : layouts) cublasLtMatrixLayoutDestroy(l);
        cublasLtMatmulPreferenceDestroy(preference);
        cublasLtMatmulDescDestroy(desc);
        cublasLtDestroy(handle);
    }
    Lt(const Lt&) = delete;
    template <class T>
    void set(cublasLtMatmulDescAttributes_t attribute, T value) {
        REQUIRE(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
    }
    template <class T>
    void prefer(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
        REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
    }
    template <class T>
    void set_layout(int which, cublasLtMatrixLayoutAttribute_t attribute, T value) {
        REQUIRE(cublasLtMatrixLayoutSetAttribute(layouts[which], attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
    }
    void epilogue(cublasLtEpilogue_t e) { set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(e)); }
    void bias(void* p) { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p); }
    void aux(void* p, int64_t ld) {
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p);
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
    }
    cublasStatus_t heuristic(int requested = 8) {
        found.resize(size_t(requested));
        int returned = 0;
        const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, desc, layouts[0], layouts[1], layouts[2], layouts[3], preference,
                                                                     requested, found.data(), &returned);
        found.resize(size_t(returned));
        return status;
    }
    cublasStatus_t matmul(const cublasLtMatmulAlgo_t* algo) {
        return cublasLtMatmul(handle, desc, &alpha, a, layouts[0], b, layouts[1], &beta, c ? c : d, layouts[2], d, layouts[3], algo, workspace,
                              workspace_bytes, stream);
    }
    void run(size_t which = 0) {
        const cublasStatus_t status = heuristic();
        REQUIRE_MESSAGE(status == CUBLAS_STATUS_SUCCESS, simt::cublaslt_refusal());
        REQUIRE(found.size() > which);
        REQUIRE(found[which].state == CUBLAS_STATUS_SUCCESS);
        const cublasStatus_t done = matmul(&found[which].algo);
        REQUIRE_MESSAGE(done == CUBLAS_STATUS_SUCCESS, simt::cublaslt_refusal());
        expect(cudaDeviceSynchronize());
    }
};

// The linear layer y (N, M) = x (N, K) wᵀ (K, M) in our row-major order.
constexpr int64_t N = 5, M = 24, K = 40;

struct Types {
    cudaDataType factor, result;
};
constexpr Types type_pairs[] = {{CUDA_R_16BF, CUDA_R_16BF}, {CUDA_R_16BF, CUDA_R_32F}, {CUDA_R_16F, CUDA_R_16F}, {CUDA_R_16F, CUDA_R_32F},
                                {CUDA_R_32F, CUDA_R_32F}};

struct Linear {
    Values x, w;
    explicit Linear(cudaDataType type) : x(type, size_t(N * K), 1), w(type, size_t(M * K), 2) {}
    Lt forward(cudaDataType result) const {
        return Lt({w.type, K, M, K}, CUBLAS_OP_T, {x.type, K, N, K}, CUBLAS_OP_N, {result, M, N, M});
    }
    std::vector<double> y(const std::vector<double>* bias = nullptr) const {
        std::vector<double> y(size_t(N * M));
        for (int64_t i = 0; i < N; i++)
            for (int64_t j = 0; j < M; j++) {
                double sum = bias ? (*bias)[size_t(j)] : 0;
                for (int64_t k = 0; k < K; k++) sum += x.at[size_t(i * K + k)] * w.at[size_t(j * K + k)];
                y[size_t(i * M + j)] = sum;
            }
        return y;
    }
};

struct WithOptions {
    ~WithOptions() { simt::cublaslt_options() = {}; }
};

}  // namespace

TEST_SUITE("simt cublaslt") {
    TEST_CASE("y = x wT + bias") {
        for (const Types& types : type_pairs) {
            const Linear l(types.factor);
            const Values bias(types.result, size_t(M), 3);
            Values y(types.result, size_t(N * M));
            Lt lt = l.forward(types.result);
            lt.a = l.w.p(), lt.b = l.x.p(), lt.d = y.p();
            lt.run();
            check_near(y.read(), l.y(), tolerance(types.result));
            lt.epilogue(CUBLASLT_EPILOGUE_BIAS);
            lt.bias(bias.p());
            lt.run();
            check_near(y.read(), l.y(&bias.at), tolerance(types.result));
        }
    }
    TEST_CASE("dx = dy w") {
        for (const Types& types : type_pairs) {
            const Linear l(types.factor);
            const Values dy(types.factor, size_t(N * M), 4);
            Values dx(types.result, size_t(N * K));
            Lt lt({l.w.type, K, M, K}, CUBLAS_OP_N, {dy.type, M, N, M}, CUBLAS_OP_N, {types.result, K, N, K});
            lt.a = l.w.p(), lt.b = dy.p(), lt.d = dx.p();
            lt.run();
            std::vector<double> want(size_t(N * K));
            for (int64_t i = 0; i < N; i++)
                for (int64_t k = 0; k < K; k++)
                    for (int64_t j = 0; j < M; j++) want[size_t(i * K + k)] += dy.at[size_t(i * M + j)] * l.w.at[size_t(j * K + k)];
            check_near(dx.read(), want, tolerance(types.result));
        }
    }
    TEST_CASE("dw = alpha dyT x + beta dw, with the column sums of dy that neither scales") {
        for (const Types& types : type_pairs) {
            const Linear l(types.factor);
            const Values dy(types.factor, size_t(N * M), 4);
            Values dw(types.result, size_t(M * K), 5), dbias(types.result, size_t(M), 6);
            Lt lt({l.x.type, K, N, K}, CUBLAS_OP_N, {dy.type, M, N, M}, CUBLAS_OP_T, {types.result, K, M, K});
            lt.a = l.x.p(), lt.b = dy.p(), lt.d = dw.p();
            lt.alpha = 0.5f, lt.beta = 1;
            lt.epilogue(CUBLASLT_EPILOGUE_BGRADB);
            lt.bias(dbias.p());
            lt.run();
            std::vector<double> want = dw.at, sums(static_cast<size_t>(M));
            for (int64_t j = 0; j < M; j++)
                for (int64_t i = 0; i < N; i++) {
                    sums[size_t(j)] += dy.at[size_t(i * M + j)];
                    for (int64_t k = 0; k < K; k++) want[size_t(j * K + k)] += 0.5 * dy.at[size_t(i * M + j)] * l.x.at[size_t(i * K + k)];
                }
            check_near(dw.read(), want, tolerance(types.result));
            check_near(dbias.read(), sums, tolerance(types.result));
        }
    }
    TEST_CASE("BGRADA sums op(A) over k") {
        const Linear l(CUDA_R_16BF);
        const Values dy(CUDA_R_16BF, size_t(N * M), 4);
        Values dwt(CUDA_R_32F, size_t(K * M)), dbias(CUDA_R_32F, size_t(M));
        Lt lt({dy.type, M, N, M}, CUBLAS_OP_N, {l.x.type, K, N, K}, CUBLAS_OP_T, {CUDA_R_32F, M, K, M});
        lt.a = dy.p(), lt.b = l.x.p(), lt.d = dwt.p();
        lt.epilogue(CUBLASLT_EPILOGUE_BGRADA);
        lt.bias(dbias.p());
        lt.run();
        std::vector<double> sums(static_cast<size_t>(M));
        for (int64_t j = 0; j < M; j++)
            for (int64_t i = 0; i < N; i++) sums[size_t(j)] += dy.at[size_t(i * M + j)];
        check_near(dbias.read(), sums, 1e-5);
    }
    TEST_CASE("GELU stores its input, DGELU reads it") {
        for (const Types& types : type_pairs) {
            const Linear l(types.factor);
            const Values bias(types.result, size_t(M), 3);
            constexpr int64_t aux_ld = M + 8;
            Values y(types.result, size_t(N * M)), aux(types.result, size_t(N * aux_ld), 9);
            Lt lt = l.forward(types.result);
            lt.a = l.w.p(), lt.b = l.x.p(), lt.d = y.p();
            lt.epilogue(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
            lt.bias(bias.p());
            lt.aux(aux.p(), aux_ld);
            lt.run();
            // Of bf16 the rounding and one ulp more; of f32 the error of the hardware's tanh; of f16 that and the rounding.
            const double gelu_tolerance = types.result == CUDA_R_32F ? 3e-4 : types.result == CUDA_R_16F ? 0x1p-10 : 0x1p-6;
            const std::vector<double> x = l.y(&bias.at), stored = aux.read();
            std::vector<double> want(x.size()), inner(x.size());
            for (size_t i = 0; i < x.size(); i++) want[i] = gelu(x[i]), inner[i] = stored[i / M * aux_ld + i % M];
            check_near(inner, x, tolerance(types.result));
            check_near(y.read(), want, gelu_tolerance);
            for (size_t i = 0; i < stored.size(); i++)
                if (int64_t(i) % aux_ld >= M) CHECK(stored[i] == aux.at[i]);  // nothing is written beyond m

            // The gradient of x given one of y whose own factor is dy = g w (N, M), g (N, K).
            Values dx(types.result, size_t(N * M)), dbias(types.result, size_t(M));
            Lt back = l.forward(types.result);
            back.a = l.w.p(), back.b = l.x.p(), back.d = dx.p();
            back.epilogue(CUBLASLT_EPILOGUE_DGELU);
            back.aux(aux.p(), aux_ld);
            back.run();
            const std::vector<double> dy = l.y();
            std::vector<double> sums(static_cast<size_t>(M));
            for (size_t i = 0; i < x.size(); i++) want[i] = dy[i] * gelu_slope(inner[i]), sums[i % M] += want[i];
            check_near(dx.read(), want, gelu_tolerance);
            back.epilogue(CUBLASLT_EPILOGUE_DGELU_BGRAD);
            back.bias(dbias.p());
            back.run();
            check_near(dx.read(), want, gelu_tolerance);
            check_near(dbias.read(), sums, 4 * gelu_tolerance);
        }
    }
    TEST_CASE("GELU is not the exact one, unless asked") {
        const WithOptions restore;
        const Linear l(CUDA_R_32F);
        Values y(CUDA_R_32F, size_t(N * M));
        Lt lt = l.forward(CUDA_R_32F);
        lt.a = l.w.p(), lt.b = l.x.p(), lt.d = y.p();
        lt.epilogue(CUBLASLT_EPILOGUE_GELU);
        std::vector<double> want = l.y();
        for (double& x : want) x = gelu(x);
        lt.run();
        double difference = 0;
        const std::vector<double> approximate = y.read();
        for (size_t i = 0; i < want.size(); i++) difference = std::max(difference, std::abs(approximate[i] / want[i] - 1));
        CHECK(difference > 5e-5);
        simt::cublaslt_options().approximate_gelu = false;
        lt.run();
        check_near(y.read(), want, 5e-6);
    }

    TEST_CASE("what the library refuses") {
        struct Case {
            const char* what;
            cublasStatus_t heuristic, matmul;  // statuses; the heuristic does not look at pointers
            std::function<void(Lt&, Values&)> change;
        };
        constexpr auto ok = CUBLAS_STATUS_SUCCESS;
        constexpr auto invalid = CUBLAS_STATUS_INVALID_VALUE, unsupported = CUBLAS_STATUS_NOT_SUPPORTED;
        const Case cases[] = {
            {"nothing wrong", ok, ok, [](Lt&, Values&) {}},
            {"BGRADB without op(B) = T", unsupported, unsupported, [](Lt& lt, Values& v) { lt.epilogue(CUBLASLT_EPILOGUE_BGRADB), lt.bias(v.p()); }},
            {"BGRADA with op(A) = T", unsupported, unsupported, [](Lt& lt, Values& v) { lt.epilogue(CUBLASLT_EPILOGUE_BGRADA), lt.bias(v.p()); }},
            {"ReLU", unsupported, unsupported, [](Lt& lt, Values&) { lt.epilogue(CUBLASLT_EPILOGUE_RELU); }},
            {"auxiliary ld below m", invalid, invalid, [](Lt& lt, Values& v) { lt.epilogue(CUBLASLT_EPILOGUE_GELU_AUX), lt.aux(v.p(), 16); }},
            {"auxiliary ld no multiple of 8", invalid, invalid, [](Lt& lt, Values& v) { lt.epilogue(CUBLASLT_EPILOGUE_GELU_AUX), lt.aux(v.p(), 28); }},
            {"no auxiliary ld", invalid, invalid, [](Lt& lt, Values& v) { lt.epilogue(CUBLASLT_EPILOGUE_GELU_AUX), lt.aux(v.p(), 0); }},
            {"auxiliary type", invalid, invalid, [](Lt& lt, Values& v) {
                 lt.epilogue(CUBLASLT_EPILOGUE_GELU_AUX), lt.aux(v.p(), M);
                 lt.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, int32_t(CUDA_R_32F));
             }},
            {"no auxiliary pointer", ok, invalid, [](Lt& lt, Values&) { lt.epilogue(CUBLASLT_EPILOGUE_GELU_AUX), lt.aux(nullptr, M); }},
            {"no bias pointer", ok, invalid, [](Lt& lt, Values&) { lt.epilogue(CUBLASLT_EPILOGUE_BIAS); }},
            {"bias type", unsupported, unsupported, [](Lt& lt, Values& v) {
                 lt.epilogue(CUBLASLT_EPILOGUE_BIAS), lt.bias(v.p());
                 lt.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(CUDA_R_32F));
             }},
            {"C and D of two types", unsupported, unsupported, [](Lt& lt, Values&) { lt.set_layout(2, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t(CUDA_R_32F)); }},
            {"A and B of two types", unsupported, unsupported, [](Lt& lt, Values&) { lt.set_layout(0, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t(CUDA_R_32F)); }},
            {"f64", unsupported, unsupported, [](Lt& lt, Values&) { lt.set_layout(0, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t(CUDA_R_64F)); }},
            {"a bf16 result of f16 factors", unsupported, unsupported, [](Lt& lt, Values&) {
                 for (int which : {0, 1}) lt.set_layout(which, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t(CUDA_R_16F));
             }},
            {"row-major order", unsupported, unsupported, [](Lt& lt, Values&) { lt.set_layout(1, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t(CUBLASLT_ORDER_ROW)); }},
            {"ld below the rows", invalid, invalid, [](Lt& lt, Values&) { lt.set_layout(3, CUBLASLT_MATRIX_LAYOUT_LD, int64_t(M - 1)); }},
            {"k of A and B", invalid, invalid, [](Lt& lt, Values&) { lt.set_layout(1, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t(K - 1)); }},
            {"rows and columns swapped", invalid, invalid, [](Lt& lt, Values&) { lt.set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t(CUBLAS_OP_N)); }},
            {"TF32 that nobody asked the test for", unsupported, unsupported,
             [](Lt& lt, Values&) { lt.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, int32_t(CUBLAS_COMPUTE_32F_FAST_TF32)); }},
            {"f16 accumulation", unsupported, unsupported, [](Lt& lt, Values&) { lt.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, int32_t(CUBLAS_COMPUTE_16F)); }},
            {"alpha on the device", unsupported, unsupported, [](Lt& lt, Values&) { lt.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t(1)); }},
            {"no A", ok, invalid, [](Lt& lt, Values&) { lt.a = nullptr; }},
            {"no D", ok, invalid, [](Lt& lt, Values&) { lt.d = nullptr; }},
            {"beta without C", ok, invalid, [](Lt& lt, Values&) { lt.beta = 1, lt.d = nullptr; }},
            {"C in place with another ld", ok, invalid, [](Lt& lt, Values&) { lt.set_layout(2, CUBLASLT_MATRIX_LAYOUT_LD, int64_t(M + 8)); }},
            {"a workspace that is not aligned", ok, invalid, [](Lt& lt, Values& v) { lt.workspace = static_cast<char*>(v.p()) + 128; }},
        };
        for (const Case& c : cases) {
            CAPTURE(c.what);
            const Linear l(CUDA_R_16BF);
            Values y(CUDA_R_16BF, size_t(N * M)), other(CUDA_R_16BF, 4096, 7);
            Lt lt = l.forward(CUDA_R_16BF);
            lt.a = l.w.p(), lt.b = l.x.p(), lt.d = y.p();
            c.change(lt, other);
            CHECK(lt.heuristic() == c.heuristic);
            CHECK(lt.found.empty() == (c.heuristic != ok));
            CHECK(lt.matmul(lt.found.empty() ? nullptr : &lt.found[0].algo) == c.matmul);
            CHECK(simt::cublaslt_refusal().empty() == (c.matmul == ok));
            expect(cudaDeviceSynchronize());
        }
    }
    TEST_CASE("descriptors keep their values, sizes and defaults") {
        Lt lt({CUDA_R_16BF, 8, 8, 8}, CUBLAS_OP_T, {CUDA_R_16BF, 8, 8, 8}, CUBLAS_OP_N, {CUDA_R_16BF, 8, 8, 8});
        int32_t value = 0;
        size_t written = 0;
        CHECK(cublasLtMatmulDescGetAttribute(lt.desc, CUBLASLT_MATMUL_DESC_TRANSA, &value, sizeof value, &written) == CUBLAS_STATUS_SUCCESS);
        CHECK(value == CUBLAS_OP_T);
        CHECK(written == 4);
        CHECK(cublasLtMatmulDescGetAttribute(lt.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr, 0, &written) == CUBLAS_STATUS_SUCCESS);
        CHECK(written == 8);
        CHECK(cublasLtMatmulDescSetAttribute(lt.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &value, 8) == CUBLAS_STATUS_INVALID_VALUE);
        CHECK(cublasLtMatmulDescSetAttribute(lt.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, nullptr, 4) == CUBLAS_STATUS_INVALID_VALUE);
        CHECK(cublasLtMatmulPreferenceGetAttribute(lt.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &value, 4, nullptr) ==
              CUBLAS_STATUS_SUCCESS);
        CHECK(value == 256);
        CHECK(cublasLtGetVersion() == 130100);
        CHECK(std::string(cublasLtGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED)) == "the requested functionality is not supported");
        CHECK(cublasLtMatmulAlgoGetHeuristic(nullptr, lt.desc, nullptr, nullptr, nullptr, nullptr, lt.preference, 1, nullptr, nullptr) ==
              CUBLAS_STATUS_NOT_INITIALIZED);
    }

    TEST_CASE("what would corrupt memory is a fault") {
        const Linear l(CUDA_R_16BF);
        Values big(CUDA_R_16BF, 4096, 7), never_written(CUDA_R_16BF, 4096);
        const auto fault = [&](const std::function<void(Lt&)>& change) {
            Lt lt = l.forward(CUDA_R_16BF);
            lt.a = l.w.p(), lt.b = l.x.p(), lt.d = big.p();
            change(lt);
            return fault_of([&] {
                const cublasStatus_t found = lt.heuristic();
                REQUIRE(found == CUBLAS_STATUS_SUCCESS);
                const cublasStatus_t done = lt.matmul(&lt.found[0].algo);
                REQUIRE(done == CUBLAS_STATUS_SUCCESS);
                expect(cudaDeviceSynchronize());
            });
        };
        const auto moved = [](void* p, int64_t bytes) { return static_cast<char*>(p) + bytes; };
        CHECK(fault([](Lt&) {}) == "");
        check_contains(fault([&](Lt& lt) { lt.d = moved(big.p(), 16); }), "256 bytes promised");
        CHECK(fault([&](Lt& lt) { lt.d = moved(big.p(), 16), lt.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(16)); }) == "");
        check_contains(fault([&](Lt& lt) { lt.d = l.x.p(); }), "overlap");
        check_contains(fault([&](Lt& lt) { lt.epilogue(CUBLASLT_EPILOGUE_GELU_AUX), lt.aux(big.p(), M); }), "overlap");
        check_contains(fault([&](Lt& lt) { lt.b = never_written.p(); }), "B");
        check_contains(fault([&](Lt& lt) { lt.set_layout(1, CUBLASLT_MATRIX_LAYOUT_LD, int64_t(K + 8)); }), "B");
        check_contains(fault([&](Lt& lt) { lt.set_layout(3, CUBLASLT_MATRIX_LAYOUT_LD, int64_t(2048)), lt.c = never_written.p(); }), "D");
        check_contains(fault([&](Lt& lt) { lt.epilogue(CUBLASLT_EPILOGUE_BIAS), lt.bias(never_written.p()); }), "bias");
        std::vector<float> host(size_t(N * M));
        CHECK(fault([&](Lt& lt) { lt.d = host.data(), lt.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(4)); }) != "");
    }
    TEST_CASE("D is written within m alone") {
        const Linear l(CUDA_R_16BF);
        Values y(CUDA_R_16BF, size_t(N * 32));
        Lt lt = l.forward(CUDA_R_16BF);
        for (int which : {2, 3}) lt.set_layout(which, CUBLASLT_MATRIX_LAYOUT_LD, int64_t(32));
        lt.a = l.w.p(), lt.b = l.x.p(), lt.d = y.p();
        lt.run();
        for (int64_t i = 0; i < N; i++) {
            const char* const row = static_cast<const char*>(y.p()) + i * 64;
            CHECK(simt::written(row, size_t(2 * M)));
            for (int64_t j = 2 * M; j < 64; j += 2) CHECK(!simt::written(row + j, 2));
        }
    }
    TEST_CASE("operands are read when the stream reaches the product") {
        const Linear l(CUDA_R_32F);
        Values x(CUDA_R_32F, size_t(N * K)), y(CUDA_R_32F, size_t(N * M));
        std::vector<float> first(size_t(N * K)), second(size_t(N * K), 100.0f);
        for (size_t i = 0; i < first.size(); i++) first[i] = float(l.x.at[i]);
        cudaStream_t stream;
        expect(cudaStreamCreate(&stream));
        Lt lt = l.forward(CUDA_R_32F);
        lt.a = l.w.p(), lt.b = x.p(), lt.d = y.p();
        lt.stream = stream;
        REQUIRE(lt.heuristic() == CUBLAS_STATUS_SUCCESS);
        expect(cudaMemcpyAsync(x.p(), first.data(), first.size() * 4, cudaMemcpyHostToDevice, stream));
        REQUIRE(lt.matmul(&lt.found[0].algo) == CUBLAS_STATUS_SUCCESS);
        expect(cudaMemcpyAsync(x.p(), second.data(), second.size() * 4, cudaMemcpyHostToDevice, stream));
        expect(cudaStreamSynchronize(stream));
        check_near(y.read(), l.y(), 5e-6);
        expect(cudaStreamDestroy(stream));
    }

    TEST_CASE("algorithms: their number, their workspace, their problem") {
        const WithOptions restore;
        const Linear l(CUDA_R_16BF);
        Values y(CUDA_R_16BF, size_t(N * M));
        constexpr size_t room = 1 << 16;
        Buffer<char> workspace(room);
        Lt lt = l.forward(CUDA_R_16BF);
        lt.a = l.w.p(), lt.b = l.x.p(), lt.d = y.p();
        REQUIRE(lt.heuristic() == CUBLAS_STATUS_SUCCESS);
        CHECK(lt.found.size() == 1);  // no workspace, no split sums
        CHECK(lt.found[0].workspaceSize == 0);

        lt.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(room));
        REQUIRE(lt.heuristic() == CUBLAS_STATUS_SUCCESS);
        CHECK(lt.found.size() == 3);
        REQUIRE(lt.found[0].workspaceSize > 0);
        CHECK(lt.found[0].workspaceSize <= room);
        CHECK(lt.matmul(&lt.found[0].algo) == CUBLAS_STATUS_INVALID_VALUE);
        lt.workspace = workspace.p, lt.workspace_bytes = lt.found[0].workspaceSize - 1;
        CHECK(lt.matmul(&lt.found[0].algo) == CUBLAS_STATUS_INVALID_VALUE);
        lt.workspace_bytes = room;
        for (size_t which : {0, 1, 2}) {
            lt.run(which);
            check_near(y.read(), l.y(), which == 2 ? 0.05 : 0x1p-8);  // the third sums halves in bf16
        }
        lt.prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
        REQUIRE(lt.heuristic() == CUBLAS_STATUS_SUCCESS);
        CHECK(lt.found.size() == 2);
        const cublasLtMatmulAlgo_t algo = lt.found[1].algo;
        lt.beta = 1;
        lt.c = l.y().empty() ? nullptr : y.p();
        CHECK(lt.matmul(&algo) == CUBLAS_STATUS_SUCCESS);  // beta is no part of the problem
        lt.set_layout(1, CUBLASLT_MATRIX_LAYOUT_COLS, uint64_t(N - 1));
        for (int which : {2, 3}) lt.set_layout(which, CUBLASLT_MATRIX_LAYOUT_COLS, uint64_t(N - 1));
        CHECK(lt.matmul(&algo) == CUBLAS_STATUS_INVALID_VALUE);
        const cublasLtMatmulAlgo_t garbage{};
        CHECK(lt.matmul(&garbage) == CUBLAS_STATUS_INVALID_VALUE);
    }
    TEST_CASE("what tests can ask of it") {
        const WithOptions restore;
        simt::CublasltOptions& options = simt::cublaslt_options();
        const Linear l(CUDA_R_16BF);
        Values y(CUDA_R_16BF, size_t(N * M)), bias(CUDA_R_16BF, size_t(M), 3);
        Lt lt = l.forward(CUDA_R_16BF);
        lt.a = l.w.p(), lt.b = l.x.p(), lt.d = y.p();
        lt.bias(bias.p());
        options.refused_epilogue = CUBLASLT_EPILOGUE_BIAS;
        CHECK(lt.heuristic() == CUBLAS_STATUS_SUCCESS);
        lt.epilogue(CUBLASLT_EPILOGUE_BIAS);
        CHECK(lt.heuristic() == CUBLAS_STATUS_NOT_SUPPORTED);
        lt.epilogue(CUBLASLT_EPILOGUE_GELU_BIAS);
        CHECK(lt.heuristic() == CUBLAS_STATUS_SUCCESS);
        options.refuse_fused = true;
        CHECK(lt.heuristic() == CUBLAS_STATUS_NOT_SUPPORTED);
        options = {};
        options.algorithms = 1;
        options.beyond_workspace = true;
        CHECK(lt.heuristic() == CUBLAS_STATUS_SUCCESS);
        REQUIRE(lt.found.size() == 1);
        CHECK(lt.found[0].state != CUBLAS_STATUS_SUCCESS);
        CHECK(lt.matmul(&lt.found[0].algo) == CUBLAS_STATUS_INVALID_VALUE);
        options.algorithms = 0;
        CHECK(lt.heuristic() == CUBLAS_STATUS_NOT_SUPPORTED);
    }
}
