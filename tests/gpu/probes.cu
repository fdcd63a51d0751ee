// What documents leave open or only one source says, asked of the hardware: how a tensor core adds, where fragments lie, what a cast makes of
// NaN, what cuBLASLt fuses, how shared memory serves 8 bytes a lane.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "../../kernels/cublaslt.cuh"
#include "../../kernels/cuda.cuh"
#include "gpu.h"
#include "workloads.h"

namespace clover::gpu {
namespace {

std::string hex(uint32_t bits) {
    char s[16];
    std::snprintf(s, sizeof s, "0x%08x", bits);
    return s;
}
Probe judge(const std::string& name, bool passed, const std::string& said) {
    return {name, passed ? Probe::Outcome::pass : Probe::Outcome::fail, said};
}

/// Device memory for n values, read back by values().
template <class T>
struct Buffer {
    Memory memory;
    int64_t n;
    Tensor t;
    Buffer(Context& ctx, int64_t n_) : memory(ctx), n(n_), t(memory.zeros(dtype_of<T>, {n_})) {}
    T* data() { return t.as<T>(); }
    void write(const std::vector<T>& x) { memory.copy_from(t, x.data()); }
    std::vector<T> values() {
        std::vector<T> x(static_cast<size_t>(n));
        memory.context().device.memory.to_host(memory.context(), x.data(), t.data, t.bytes());
        return x;
    }
};

// ---- mma.m16n8k16 --------------------------------------------------------------------------------------------------------------

/// One warp: c += a b with the fragments as they lie in memory, lane by lane (a: 4 registers, b: 2, c: 4 floats).
__global__ void mma_kernel(float* c, const int32_t* a, const int32_t* b) {
    const int lane = int(threadIdx.x);
    uint32_t fa[4], fb[2];
    float fc[4];
    for (int i = 0; i < 4; i++) fa[i] = uint32_t(a[4 * lane + i]), fc[i] = c[4 * lane + i];
    for (int i = 0; i < 2; i++) fb[i] = uint32_t(b[2 * lane + i]);
    ptx::mma_m16n8k16(fc, fa, fb);
    for (int i = 0; i < 4; i++) c[4 * lane + i] = fc[i];
}

struct Fragments {
    std::vector<int32_t> a = std::vector<int32_t>(128), b = std::vector<int32_t>(64);
    std::vector<float> c = std::vector<float>(128);
};
std::vector<float> multiply(Context& ctx, const Fragments& f) {
    Buffer<int32_t> a(ctx, 128), b(ctx, 64);
    Buffer<float> c(ctx, 128);
    a.write(f.a), b.write(f.b), c.write(f.c);
    launch(ctx, {1, 32}, mma_kernel, c.data(), a.data(), b.data());
    return c.values();
}

int32_t packed(float low, float high) { return int32_t(uint32_t{to_bf16(low).bits} | uint32_t{to_bf16(high).bits} << 16); }

/// Row 0 of a and column 0 of b hold x and y at k; element (0, 0) of c starts at 1. Element k lies in the lane k/2 mod 4 of the first four,
/// register 2·(k/8) of a and k/8 of b, half k mod 2.
struct Addition {
    const char* name;
    struct Term {
        int k;
        float x, y;
    };
    std::vector<Term> terms;
    uint32_t sm80, sm90;  // the result, as the models of facts section 1.4 have it
};
Probe probe_addition(Context& ctx, const Addition& addition) {
    float row[16] = {}, column[16] = {};
    for (const Addition::Term& t : addition.terms) row[t.k] = t.x, column[t.k] = t.y;
    Fragments f;
    for (int lane = 0; lane < 4; lane++)
        for (int half = 0; half < 2; half++) {
            const int k = 2 * lane + 8 * half;
            f.a[size_t(4 * lane + 2 * half)] = packed(row[k], row[k + 1]);
            f.b[size_t(2 * lane + half)] = packed(column[k], column[k + 1]);
        }
    f.c[0] = 1;
    const uint32_t got = std::bit_cast<uint32_t>(multiply(ctx, f)[0]), wanted = cuda_state(ctx).capability >= 90 ? addition.sm90 : addition.sm80;
    return judge(text("mma adds ", addition.name), got == wanted, got == wanted ? hex(got) : text(hex(got), ", the model says ", hex(wanted)));
}
std::vector<Probe> probe_additions(Context& ctx) {
    constexpr float T = 0x1p-12f, H = 0x1p-13f;
    const Addition additions[] = {{"1 + T² + TH + TH (k 0, 1, 2)", {{0, T, T}, {1, T, H}, {2, T, H}}, 0x3f800000, 0x3f800001},
                                  {"1 + T² + T² (k 0, 8)", {{0, T, T}, {8, T, T}}, 0x3f800000, 0x3f800001},
                                  {"1 + T² + TH (k 0, 1)", {{0, T, T}, {1, T, H}}, 0x3f800000, 0x3f800000},
                                  {"1 + T² + T² (k 0, 1)", {{0, T, T}, {1, T, T}}, 0x3f800001, 0x3f800001}};
    std::vector<Probe> probes;
    for (const Addition& a : additions) probes.push_back(probe_addition(ctx, a));
    return probes;
}

// Registers of lane l hold x_i = 8 l + i: a register the pair (x_2r+1, x_2r), high half first as listed in facts section 1.1.
Probe probe_fragments(Context& ctx) {
    Fragments f;
    for (int lane = 0; lane < 32; lane++) {
        const auto x = [&](int i) { return float(8 * lane + i); };
        for (int r = 0; r < 4; r++) f.a[size_t(4 * lane + r)] = packed(x(2 * r + 1), x(2 * r)), f.c[size_t(4 * lane + r)] = x(r);
        for (int r = 0; r < 2; r++) f.b[size_t(2 * lane + r)] = packed(x(2 * r + 1), x(2 * r));
    }
    struct Wanted {
        size_t lane;
        float c[4];
    };
    const std::vector<float> got = multiply(ctx, f);
    bool same = true;
    for (const Wanted& w : {Wanted{0, {4448, 11873, 4882, 13331}}, {1, {19304, 26729, 21786, 30235}}, {31, {785752, 907865, 792330, 915467}}})
        for (size_t i = 0; i < 4; i++) same = same && got[4 * w.lane + i] == w.c[i];
    return judge("fragments of mma lie where the table says", same, text("lane 0: ", got[0], ", ", got[1], ", ", got[2], ", ", got[3]));
}

// ---- Casts ---------------------------------------------------------------------------------------------------------------------

__global__ void cast_kernel(int32_t* to, const int32_t* from) { to[threadIdx.x] = to_bf16(__int_as_float(from[threadIdx.x])).bits; }

std::vector<Probe> probe_casts(Context& ctx) {
    struct Case {
        const char* name;
        uint32_t from, wanted;
    };
    const Case cases[] = {{"quiet NaN", 0x7fc00000, 0x7fff},        {"signalling NaN", 0x7f800001, 0x7fff}, {"negative NaN", 0xffc00000, 0x7fff},
                          {"largest number", 0x7f7fffff, 0x7f80},  {"a tie, to even", 0x3f808000, 0x3f80}, {"smallest bf16 subnormal, rounded up", 0x00008001, 0x0001}};
    Buffer<int32_t> from(ctx, std::size(cases)), to(ctx, std::size(cases));
    std::vector<int32_t> bits;
    for (const Case& c : cases) bits.push_back(int32_t(c.from));
    from.write(bits);
    launch(ctx, {1, unsigned(std::size(cases))}, cast_kernel, to.data(), from.data());
    const std::vector<int32_t> got = to.values();
    std::vector<Probe> probes;
    for (size_t i = 0; i < std::size(cases); i++)
        probes.push_back(judge(text("cvt.rn.bf16.f32 of ", cases[i].name), uint32_t(got[i]) == cases[i].wanted, hex(uint32_t(got[i]))));
    return probes;
}

// ---- Shared memory -------------------------------------------------------------------------------------------------------------

/// Loads 8 bytes per lane, again and again, from word offset 2 · (lane · stride mod 256).
__global__ void load_8_bytes_kernel(float* out, int stride, int times) {
    float* shared = shared_memory<float>();
    for (int i = int(threadIdx.x); i < 512; i += 32) shared[i] = float(i);
    __syncwarp();
    float sum = 0;
    for (int t = 0; t < times; t++) {
        const Vector<float, 2> v = load_vector<2>(shared + 2 * ((int(threadIdx.x) * stride + t) & 255));
        sum += v[0] - v[1];
    }
    out[threadIdx.x] = sum;
}

// If half a warp is one phase, lanes 16 apart never meet: a stride of 1 is free. With stride 8 two lanes of a half meet in each bank, with
// 16 all of them do.
Probe probe_8_byte_phases(Context& ctx) {
    Buffer<float> out(ctx, 32);
    const auto seconds = [&](int stride) {
        std::vector<double> s = time_calls(ctx, [&] { launch(ctx, {1, 32, 2048}, load_8_bytes_kernel, out.data(), stride, 1 << 14); }, 5);
        return *std::min_element(s.begin(), s.end());
    };
    const double free = seconds(1);
    char said[100];
    std::snprintf(said, sizeof said, "time over that of stride 1: stride 2 %.2f, stride 4 %.2f, stride 8 %.2f, stride 16 %.2f", seconds(2) / free,
                  seconds(4) / free, seconds(8) / free, seconds(16) / free);
    return {"phases of 8-byte loads from shared memory", Probe::Outcome::value, said};
}

#ifndef CLOVER_SIMT
/// 64 KiB of static shared memory where ptxas takes it.
__global__ void static_shared_kernel(float* out) {
#if __CUDA_ARCH__ >= 900
    __shared__ float big[16384];
    big[threadIdx.x * 512] = float(threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = big[(31 - threadIdx.x) * 512];
#else
    out[threadIdx.x] = 31.0f - float(threadIdx.x);
#endif
}
Probe probe_static_shared(Context& ctx) {
    Buffer<float> out(ctx, 32);
    try {
        launch(ctx, {1, 32}, static_shared_kernel, out.data());
        return {"static shared memory of 64 KiB without opting in", Probe::Outcome::value, text("launches, out[0] ", out.values()[0])};
    } catch (const Error& e) {
        (void)cudaGetLastError();
        return {"static shared memory of 64 KiB without opting in", Probe::Outcome::value, e.what()};
    }
}
#endif

// ---- cuBLASLt ------------------------------------------------------------------------------------------------------------------

struct Epilogue {
    const char* name;
    cublasLtEpilogue_t value;
    cudaDataType in, out;
    int64_t n;  // rows of Lt's D: also the ld of the auxiliary matrix
    bool transpose_a, transpose_b;
};

// How many algorithms the heuristic has, or what it says.
std::string algorithms_for(const Epilogue& e) {
    const int64_t m = 512, n = e.n, k = 256;
    cublasLtHandle_t handle = nullptr;
    CLOVER_CUBLASLT(Create(&handle));
    const OwnedCublaslt<cublasLtHandle_t> owned_handle(handle);
    const auto layout = [](cudaDataType type, int64_t rows, int64_t columns, bool transposed) {
        if (transposed) std::swap(rows, columns);
        cublasLtMatrixLayout_t made = nullptr;
        CLOVER_CUBLASLT(MatrixLayoutCreate(&made, type, uint64_t(rows), uint64_t(columns), rows));
        return OwnedCublaslt<cublasLtMatrixLayout_t>(made);
    };
    cublasLtMatmulDesc_t product = nullptr;
    CLOVER_CUBLASLT(MatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const OwnedCublaslt<cublasLtMatmulDesc_t> owned_product(product);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) { CLOVER_CUBLASLT(MatmulDescSetAttribute(product, attribute, &value, sizeof value)); };
    set(CUBLASLT_MATMUL_DESC_TRANSA, e.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, e.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, e.value);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<void*>(uintptr_t{256}));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, reinterpret_cast<void*>(uintptr_t{256}));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, n);
    cublasLtMatmulPreference_t preference = nullptr;
    CLOVER_CUBLASLT(MatmulPreferenceCreate(&preference));
    const OwnedCublaslt<cublasLtMatmulPreference_t> owned_preference(preference);
    cublasLtMatmulHeuristicResult_t found[8];
    int count = 0;
    const auto a = layout(e.in, n, k, e.transpose_a), b = layout(e.in, k, m, e.transpose_b), d = layout(e.out, n, m, false);
    const cublasStatus_t status =
        cublaslt().MatmulAlgoGetHeuristic(handle, product, a.get(), b.get(), d.get(), d.get(), preference, int(std::size(found)), found, &count);
    return status == CUBLAS_STATUS_SUCCESS ? text(count, " algorithms") : std::string(cublaslt().GetStatusName(status));
}

std::vector<Probe> probe_epilogues() {
    constexpr cudaDataType f32 = CUDA_R_32F, bf16 = CUDA_R_16BF;
    const Epilogue epilogues[] = {{"GELU_AUX_BIAS, bf16", CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bf16, bf16, 512, true, false},
                                  {"GELU_AUX_BIAS, bf16, auxiliary ld 508", CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bf16, bf16, 508, true, false},
                                  {"GELU_AUX_BIAS, f32", CUBLASLT_EPILOGUE_GELU_AUX_BIAS, f32, f32, 512, true, false},
                                  {"DGELU, bf16", CUBLASLT_EPILOGUE_DGELU, bf16, bf16, 512, false, false},
                                  {"DGELU, bf16, auxiliary ld 508", CUBLASLT_EPILOGUE_DGELU, bf16, bf16, 508, false, false},
                                  {"BGRADB, bf16 to f32", CUBLASLT_EPILOGUE_BGRADB, bf16, f32, 512, false, true},
                                  {"BGRADB, f32", CUBLASLT_EPILOGUE_BGRADB, f32, f32, 512, false, true},
                                  {"BGRADB with op(B) = N, bf16 to f32", CUBLASLT_EPILOGUE_BGRADB, bf16, f32, 512, false, false},
                                  {"BIAS, bf16, 511 rows", CUBLASLT_EPILOGUE_BIAS, bf16, bf16, 511, true, false},
                                  {"DEFAULT, f32 to bf16", CUBLASLT_EPILOGUE_DEFAULT, f32, bf16, 512, true, false}};
    std::vector<Probe> probes;
    for (const Epilogue& e : epilogues) probes.push_back({text("cuBLASLt, ", e.name), Probe::Outcome::value, algorithms_for(e)});
    return probes;
}

/// The largest error of a fused GeLU over the largest value: x (256, 64) is the product of the identity.
Probe probe_gelu(Context& ctx) {
    const int64_t m = 256, n = 64;
    Memory memory(ctx);
    std::vector<bf16> identity(size_t(n * n)), values(size_t(m * n)), got(size_t(m * n));
    for (int64_t i = 0; i < n; i++) identity[size_t(i * n + i)] = to_bf16(1);
    for (int64_t i = 0; i < m * n; i++) values[size_t(i)] = to_bf16(float(i - m * n / 2) / float(m * n / 16));
    const Tensor a = memory.unwritten(Dtype::bf16, {m, n}), b = memory.unwritten(Dtype::bf16, {n, n}), y = memory.unwritten(Dtype::bf16, {m, n});
    memory.copy_from(a, values.data()), memory.copy_from(b, identity.data());
    const Gemm g{.c = y, .a = a, .b = b, .transpose_b = true, .pre_activation = memory.unwritten(Dtype::bf16, {m, n})};
    ctx.workspace.size = ctx.device.gemm.workspace_bytes(ctx, g);
    ctx.workspace.base = memory.unwritten(Dtype::f32, {int64_t(ctx.workspace.size / 4) + 1}).data;
    const int64_t before = cuda_gemm_plans(ctx).fused;
    ctx.device.gemm.run(ctx, g);
    ctx.device.memory.to_host(ctx, got.data(), y.data, y.bytes());
    ctx.workspace = {};
    double worst = 0;
    for (size_t i = 0; i < got.size(); i++) {
        const double x = to_float(values[i]), exact = 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
        worst = std::max(worst, std::abs(to_float(got[i]) - exact) / std::max(std::abs(exact), 1e-2));
    }
    return judge("GeLU behind a bf16 product", worst < 1.6e-2, text(cuda_gemm_plans(ctx).fused + before > 0 ? "fused" : "not fused", ", error at most ", worst));
}

// ---- cp.async ------------------------------------------------------------------------------------------------------------------

__global__ void read_nothing_kernel(float* out, const float* nowhere) {
    float* shared = shared_memory<float>();
    ptx::cp_async_16(shared + 4 * threadIdx.x, nowhere, 0);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    __syncthreads();
    out[threadIdx.x] = shared[4 * threadIdx.x];
}

}  // namespace

std::vector<Probe> run_probes(Context& ctx) {
    std::vector<Probe> all = probe_additions(ctx);
    all.push_back(probe_fragments(ctx));
    for (const std::vector<Probe>& some : {probe_casts(ctx), probe_epilogues()}) all.insert(all.end(), some.begin(), some.end());
    all.push_back(probe_gelu(ctx));
    all.push_back(probe_8_byte_phases(ctx));
#ifndef CLOVER_SIMT
    all.push_back(probe_static_shared(ctx));
#endif
    return all;
}

Probe run_dangerous_probe(Context& ctx) {
    const std::string name = "cp.async of 0 bytes from an unmapped address";
    try {
        Buffer<float> out(ctx, 32);
        launch(ctx, {1, 32, 512}, read_nothing_kernel, out.data(), reinterpret_cast<const float*>(uintptr_t{4096}));
        return {name, Probe::Outcome::value, text("no fault, out[0] ", out.values()[0])};
    } catch (const std::exception& e) {
        return {name, Probe::Outcome::value, e.what()};
    }
}

}  // namespace clover::gpu
