// The stand-in for cuBLASLt (cublasLt.h). With column-major matrices, m x n results and op() as the descriptor says:
//   x = alpha op(A) op(B) + beta C,   D = epilogue(x)
//   BIAS adds a vector over the rows of D to x; GELU is 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), with AUX storing x;
//   DGELU multiplies x by the slope of GELU at the AUX matrix, DGELU_BGRAD also sums D over its columns into the bias vector;
//   BGRADA sums op(A), BGRADB op(B), over k into the bias vector, without alpha, overwriting it.
// An algorithm is one order of summation in f32: a chain over k, or two halves of k that meet in the workspace, in f32 or, where the
// preference allows it, in the output type. It remembers the problem it was chosen for and the alignments it was
// promised, and holds the caller to both.
#include "cublasLt.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "internal.h"

// ---- Descriptors ---------------------------------------------------------------------------------------------------------------

namespace {

struct Attribute {
    int id;
    size_t bytes;
    int64_t initial;
};
// Sizes and initial values are those that the real library reports.
constexpr Attribute layout_attributes[] = {
    {CUBLASLT_MATRIX_LAYOUT_TYPE, 4, 0},
    {CUBLASLT_MATRIX_LAYOUT_ORDER, 4, CUBLASLT_ORDER_COL},
    {CUBLASLT_MATRIX_LAYOUT_ROWS, 8, 0},
    {CUBLASLT_MATRIX_LAYOUT_COLS, 8, 0},
    {CUBLASLT_MATRIX_LAYOUT_LD, 8, 0},
    {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 4, 1},
    {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8, 0},
};
constexpr Attribute desc_attributes[] = {
    {CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 4, CUBLAS_COMPUTE_32F},
    {CUBLASLT_MATMUL_DESC_SCALE_TYPE, 4, CUDA_R_32F},
    {CUBLASLT_MATMUL_DESC_POINTER_MODE, 4, CUBLASLT_POINTER_MODE_HOST},
    {CUBLASLT_MATMUL_DESC_TRANSA, 4, CUBLAS_OP_N},
    {CUBLASLT_MATMUL_DESC_TRANSB, 4, CUBLAS_OP_N},
    {CUBLASLT_MATMUL_DESC_TRANSC, 4, CUBLAS_OP_N},
    {CUBLASLT_MATMUL_DESC_EPILOGUE, 4, CUBLASLT_EPILOGUE_DEFAULT},
    {CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8, 0},
    {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 8, 0},
    {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 8, 0},
    {CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, 4, 0},
    {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, 4, -1},
    {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 4, -1},
};
constexpr Attribute preference_attributes[] = {
    {CUBLASLT_MATMUL_PREF_SEARCH_MODE, 4, CUBLASLT_SEARCH_BEST_FIT},
    {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 8, 0},
    {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 4, CUBLASLT_REDUCTION_SCHEME_MASK},
    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4, 256},
    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4, 256},
    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 4, 256},
    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 4, 256},
    {CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, 4, 0},
    {CUBLASLT_MATMUL_PREF_IMPL_MASK, 8, -1},
};

/// Values by attribute, of 4 or 8 bytes; those of 4 are kept sign-extended.
template <const auto& table>
struct Attributes {
    int64_t values[std::size(table)];

    Attributes() {
        for (size_t i = 0; i < std::size(table); i++) values[i] = table[i].initial;
    }
    static const Attribute* find(int id) {
        for (const Attribute& a : table)
            if (a.id == id) return &a;
        return nullptr;
    }
    int64_t& operator[](int id) { return values[find(id) - table]; }
    int64_t operator[](int id) const { return values[find(id) - table]; }
    template <class T>
    T* pointer(int id) const { return std::bit_cast<T*>((*this)[id]); }

    cublasStatus_t set(int id, const void* value, size_t bytes) {
        const Attribute* a = find(id);
        if (!a) return CUBLAS_STATUS_NOT_SUPPORTED;  // the real library may have it; nothing here acts on it
        if (!value || bytes != a->bytes) return CUBLAS_STATUS_INVALID_VALUE;
        int32_t narrow;
        if (bytes == 4) std::memcpy(&narrow, value, 4), (*this)[id] = narrow;
        if (bytes == 8) std::memcpy(&(*this)[id], value, 8);
        return CUBLAS_STATUS_SUCCESS;
    }
    cublasStatus_t get(int id, void* value, size_t bytes, size_t* written) const {
        const Attribute* a = find(id);
        if (!a || (bytes == 0 && !written) || (bytes != 0 && (!value || bytes != a->bytes))) return CUBLAS_STATUS_INVALID_VALUE;
        if (written) *written = a->bytes;
        if (bytes != 0) std::memcpy(value, &values[a - table], bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
};

}  // namespace

struct cublasLtContext {};
struct cublasLtMatrixLayoutValues : Attributes<layout_attributes> {};
struct cublasLtMatmulDescValues : Attributes<desc_attributes> {};
struct cublasLtMatmulPreferenceValues : Attributes<preference_attributes> {};

namespace simt {
namespace {

CublasltOptions the_options;
thread_local std::string the_refusal;

std::mutex products_mutex;
std::map<uint32_t, int64_t> products;

template <class... Parts>
std::string message(const Parts&... parts) {
    std::ostringstream s;
    (s << ... << parts);
    return s.str();
}

// ---- The problem that the descriptors state ------------------------------------------------------------------------------------

struct Matrix {
    int64_t type, rows, columns, ld;
    size_t element() const { return type == CUDA_R_32F ? 4 : 2; }
    bool operator==(const Matrix&) const = default;
};
std::ostream& operator<<(std::ostream& s, const Matrix& m) {
    return s << (m.type == CUDA_R_32F ? "f32" : m.type == CUDA_R_16F ? "f16" : "bf16") << " " << m.rows << "x" << m.columns << " ld " << m.ld;
}

/// All that an algorithm is chosen for; no pointers, and neither alpha nor beta.
struct Problem {
    Matrix a, b, c, d;
    bool transpose_a, transpose_b;
    int64_t compute, epilogue, bias_type, aux_type, aux_ld;

    int64_t m() const { return d.rows; }
    int64_t n() const { return d.columns; }
    int64_t k() const { return transpose_a ? a.rows : a.columns; }
    bool has_gelu() const { return epilogue & CUBLASLT_EPILOGUE_GELU; }
    bool has_dgelu() const { return epilogue & 64; }
    bool writes_aux() const { return has_gelu() && (epilogue & 128); }
    bool adds_bias() const { return epilogue & CUBLASLT_EPILOGUE_BIAS; }
    bool sums_columns() const { return epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD; }
    bool uses_bias() const { return adds_bias() || sums_columns() || epilogue >= CUBLASLT_EPILOGUE_BGRADA; }
    bool uses_aux() const { return writes_aux() || has_dgelu(); }
    int64_t bias_length() const { return epilogue == CUBLASLT_EPILOGUE_BGRADB ? n() : m(); }
    Matrix aux() const { return {aux_type, d.rows, d.columns, aux_ld}; }
    uint64_t hash() const {
        uint64_t h = 0;
        for (int64_t x : {a.type, a.rows, a.columns, a.ld, b.rows, b.columns, b.ld, c.type, c.ld, d.rows, d.columns, d.ld, int64_t(transpose_a),
                          int64_t(transpose_b), compute, epilogue, bias_type, aux_type, aux_ld})
            h = (h ^ uint64_t(x)) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
        return h;
    }
};

struct Refused {
    cublasStatus_t status;
    std::string why;
};
template <class... Parts>
void refuse_if(bool condition, cublasStatus_t status, const Parts&... why) {
    if (condition) throw Refused{status, message(why...)};
}

Matrix matrix(const char* name, cublasLtMatrixLayout_t layout) {
    refuse_if(!layout, CUBLAS_STATUS_INVALID_VALUE, name, " has no layout");
    const auto& l = *layout;
    const Matrix m{l[CUBLASLT_MATRIX_LAYOUT_TYPE], l[CUBLASLT_MATRIX_LAYOUT_ROWS], l[CUBLASLT_MATRIX_LAYOUT_COLS], l[CUBLASLT_MATRIX_LAYOUT_LD]};
    refuse_if(m.type != CUDA_R_32F && m.type != CUDA_R_16BF && m.type != CUDA_R_16F, CUBLAS_STATUS_NOT_SUPPORTED, name, " has type ", m.type);
    refuse_if(l[CUBLASLT_MATRIX_LAYOUT_ORDER] != CUBLASLT_ORDER_COL, CUBLAS_STATUS_NOT_SUPPORTED, name, " is not column-major");
    refuse_if(l[CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT] != 1, CUBLAS_STATUS_NOT_SUPPORTED, name, " is a batch");
    refuse_if(m.rows <= 0 || m.columns <= 0 || m.ld < m.rows, CUBLAS_STATUS_INVALID_VALUE, name, " is ", m);
    return m;
}

void check_types(const Problem& p, const cublasLtMatmulDescValues& desc) {
    const bool asks_tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    refuse_if(asks_tf32 && !the_options.tf32, CUBLAS_STATUS_NOT_SUPPORTED, "TF32 would round the inputs to 10 bits");
    refuse_if(!asks_tf32 && p.compute != CUBLAS_COMPUTE_32F && p.compute != CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_STATUS_NOT_SUPPORTED,
              "compute type ", p.compute);
    refuse_if(desc[CUBLASLT_MATMUL_DESC_SCALE_TYPE] != CUDA_R_32F, CUBLAS_STATUS_NOT_SUPPORTED, "alpha and beta are not float");
    refuse_if(desc[CUBLASLT_MATMUL_DESC_POINTER_MODE] != CUBLASLT_POINTER_MODE_HOST, CUBLAS_STATUS_NOT_SUPPORTED, "alpha is not on the host");
    refuse_if(desc[CUBLASLT_MATMUL_DESC_TRANSC] != CUBLAS_OP_N, CUBLAS_STATUS_NOT_SUPPORTED, "C is transposed");
    refuse_if(p.a.type != p.b.type, CUBLAS_STATUS_NOT_SUPPORTED, "A is ", p.a, ", B is ", p.b);
    refuse_if(p.c.type != p.d.type, CUBLAS_STATUS_NOT_SUPPORTED, "C is ", p.c, ", D is ", p.d);
    refuse_if(p.d.type != CUDA_R_32F && p.d.type != p.a.type, CUBLAS_STATUS_NOT_SUPPORTED, "A is ", p.a, ", D is ", p.d);
}

void check_shapes(const Problem& p) {
    const auto [bk, bn] = p.transpose_b ? std::pair(p.b.columns, p.b.rows) : std::pair(p.b.rows, p.b.columns);
    const int64_t am = p.transpose_a ? p.a.columns : p.a.rows;
    refuse_if(am != p.m() || bn != p.n() || bk != p.k() || p.c.rows != p.m() || p.c.columns != p.n(), CUBLAS_STATUS_INVALID_VALUE, "D (", p.d,
              ") = A (", p.a, p.transpose_a ? ", T" : ", N", ") B (", p.b, p.transpose_b ? ", T" : ", N", ") + C (", p.c, ")");
}

void check_epilogue(const Problem& p) {
    constexpr int64_t known[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS,
                                 CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
                                 CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB};
    refuse_if(std::ranges::find(known, p.epilogue) == std::end(known), CUBLAS_STATUS_NOT_SUPPORTED, "epilogue ", p.epilogue);
    refuse_if(p.epilogue == CUBLASLT_EPILOGUE_BGRADA && p.transpose_a, CUBLAS_STATUS_NOT_SUPPORTED, "BGRADA with op(A) = T");
    refuse_if(p.epilogue == CUBLASLT_EPILOGUE_BGRADB && !p.transpose_b, CUBLAS_STATUS_NOT_SUPPORTED, "BGRADB with op(B) = N");
    refuse_if(p.uses_bias() && p.bias_type != p.d.type, CUBLAS_STATUS_NOT_SUPPORTED, "a bias of type ", p.bias_type, " with D ", p.d);
    if (!p.uses_aux()) return;
    refuse_if(p.aux_type != p.d.type, CUBLAS_STATUS_INVALID_VALUE, "an auxiliary matrix of type ", p.aux_type, " with D ", p.d);
    refuse_if(p.aux_ld < p.m(), CUBLAS_STATUS_INVALID_VALUE, "the auxiliary matrix has ld ", p.aux_ld, " for ", p.m(), " rows");
    refuse_if(p.aux_ld % 8 != 0, CUBLAS_STATUS_INVALID_VALUE, "the auxiliary matrix has ld ", p.aux_ld, ", no multiple of 8");
}

Problem stated_problem(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                       cublasLtMatrixLayout_t d) {
    refuse_if(!desc, CUBLAS_STATUS_INVALID_VALUE, "no descriptor of the product");
    const auto operation = [&](int id) {
        const int64_t op = (*desc)[id];
        refuse_if(op < CUBLAS_OP_N || op > CUBLAS_OP_C, CUBLAS_STATUS_INVALID_VALUE, "operation ", op);
        return op != CUBLAS_OP_N;
    };
    Problem p{matrix("A", a), matrix("B", b), matrix("C", c), matrix("D", d), operation(CUBLASLT_MATMUL_DESC_TRANSA),
              operation(CUBLASLT_MATMUL_DESC_TRANSB), (*desc)[CUBLASLT_MATMUL_DESC_COMPUTE_TYPE], (*desc)[CUBLASLT_MATMUL_DESC_EPILOGUE],
              (*desc)[CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE], (*desc)[CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE],
              (*desc)[CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD]};
    if (p.bias_type == -1) p.bias_type = p.d.type;
    if (p.aux_type == -1) p.aux_type = p.d.type;
    check_types(p, *desc);
    check_shapes(p);
    check_epilogue(p);
    refuse_if(the_options.refuse_all || (the_options.refuse_fused && p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) ||
                  (the_options.refused_epilogue != 0 && p.epilogue == the_options.refused_epilogue),
              CUBLAS_STATUS_NOT_SUPPORTED, "the test forbids epilogue ", p.epilogue);
    return p;
}

// ---- Algorithms ----------------------------------------------------------------------------------------------------------------

enum class Summation : uint32_t { chain, halves_in_f32, halves_in_output_type };

/// What a cublasLtMatmulAlgo_t holds.
struct Algorithm {
    uint64_t magic, problem;
    Summation summation;
    uint32_t alignment[4];  // promised for A, B, C, D
    uint32_t bias_alignment, aux_alignment;
    uint64_t workspace;
    static constexpr uint64_t valid = 0x436c6f7665724c74u;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

// The alignment of a bias or auxiliary pointer that an algorithm may rely on. None set yet promises 16 bytes.
uint32_t vector_alignment(const void* p) {
    uint32_t alignment = 16;
    while (reinterpret_cast<uintptr_t>(p) % alignment != 0) alignment /= 2;
    return alignment;
}

bool allowed(Summation s, const Problem& p, int64_t schemes, uint64_t workspace) {
    if (s == Summation::chain) return true;
    if (p.k() < 2 || workspace < 2 * size_t(p.m() * p.n()) * p.d.element()) return false;
    const int64_t inplace_or_output = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    if (s == Summation::halves_in_output_type) return p.d.type != CUDA_R_32F && (schemes & inplace_or_output);
    return workspace >= 2 * size_t(p.m() * p.n()) * 4 && (schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

cublasLtMatmulHeuristicResult_t result_for(const Algorithm& a, cublasStatus_t state) {
    cublasLtMatmulHeuristicResult_t r{};
    std::memcpy(&r.algo, &a, sizeof a);
    r.workspaceSize = a.workspace;
    r.state = state;
    r.wavesCount = 1;
    return r;
}

int find_algorithms(const Problem& p, const cublasLtMatmulDescValues& desc, const cublasLtMatmulPreferenceValues& preference, int requested,
                    cublasLtMatmulHeuristicResult_t* results) {
    const uint64_t most = uint64_t(preference[CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES]);
    Algorithm a{Algorithm::valid, p.hash(), Summation::chain, {}, 16, 16, 0};
    for (int i = 0; i < 4; i++) {
        const int64_t promised = preference[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i];
        refuse_if(promised <= 0 || (promised & (promised - 1)), CUBLAS_STATUS_INVALID_VALUE, "an alignment of ", promised);
        a.alignment[i] = uint32_t(promised);
    }
    a.bias_alignment = vector_alignment(desc.pointer<void>(CUBLASLT_MATMUL_DESC_BIAS_POINTER));
    a.aux_alignment = vector_alignment(desc.pointer<void>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER));
    const int wanted = std::min(requested, the_options.algorithms);
    int found = 0;
    if (the_options.beyond_workspace && found < wanted) {
        a.workspace = most + 256;
        results[found++] = result_for(a, CUBLAS_STATUS_NOT_SUPPORTED);
    }
    for (Summation s : {Summation::halves_in_f32, Summation::chain, Summation::halves_in_output_type}) {
        if (found == wanted || !allowed(s, p, preference[CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK], most)) continue;
        a.summation = s;
        a.workspace = s == Summation::chain ? 0 : 2 * size_t(p.m() * p.n()) * (s == Summation::halves_in_f32 ? 4 : p.d.element());
        results[found++] = result_for(a, CUBLAS_STATUS_SUCCESS);
    }
    return found;
}

// ---- Arithmetic ----------------------------------------------------------------------------------------------------------------

struct Operands {
    float alpha, beta;
    const void *a, *b, *c;
    void *d, *bias, *aux;
    void* workspace;
};

float bf16_value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
uint16_t round_to_bf16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    return std::isnan(x) ? 0x7fff : uint16_t((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
float f16_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    const float magnitude = exponent == 31 ? (fraction ? NAN : INFINITY) : std::ldexp(float(exponent ? 1024 + fraction : fraction), std::max(exponent, 1) - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}
uint16_t round_to_f16(float x) {
    if (std::isnan(x)) return 0x7fff;
    const int sign = std::signbit(x) ? 0x8000 : 0, exponent = std::max(std::ilogb(x), -14);
    if (std::abs(x) >= 65520) return uint16_t(sign | 0x7c00);
    return uint16_t(sign | ((exponent + 14) * 1024 + int(std::nearbyint(std::ldexp(std::abs(x), 10 - exponent)))));
}
float load_element(const void* p, int64_t type, int64_t i) {
    if (type == CUDA_R_32F) return static_cast<const float*>(p)[i];
    const uint16_t bits = static_cast<const uint16_t*>(p)[i];
    return type == CUDA_R_16F ? f16_value(bits) : bf16_value(bits);
}
void store_element(void* p, int64_t type, int64_t i, float x) {
    if (type == CUDA_R_32F)
        static_cast<float*>(p)[i] = x;
    else
        static_cast<uint16_t*>(p)[i] = type == CUDA_R_16F ? round_to_f16(x) : round_to_bf16(x);
}

/// A factor in f32 with k as the slow index: at [k · size + i].
std::vector<float> k_major(const void* p, const Matrix& m, bool k_is_column, bool tf32) {
    const int64_t K = k_is_column ? m.columns : m.rows, size = k_is_column ? m.rows : m.columns;
    std::vector<float> packed(size_t(K * size));
    for (int64_t k = 0; k < K; k++)
        for (int64_t i = 0; i < size; i++) {
            const float x = load_element(p, m.type, k_is_column ? k * m.ld + i : i * m.ld + k);
            packed[size_t(k * size + i)] = tf32 ? std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000u) & ~0x1fffu) : x;
        }
    return packed;
}

// x (m, n) column-major = Σ over first … last - 1 of a_ki b_kj, each element a chain over k in f32.
void multiply(float* x, const float* a, const float* b, int64_t m, int64_t n, int64_t first, int64_t last) {
    constexpr int64_t rows = 32, columns = 4;
    for (int64_t j = 0; j < n; j += columns)
        for (int64_t i = 0; i < m; i += rows) {
            const int64_t height = std::min(rows, m - i), width = std::min(columns, n - j);
            float sum[columns][rows] = {};
            if (height == rows && width == columns)
                for (int64_t k = first; k < last; k++)
                    for (int64_t w = 0; w < columns; w++)
                        for (int64_t h = 0; h < rows; h++) sum[w][h] += a[k * m + i + h] * b[k * n + j + w];
            else
                for (int64_t k = first; k < last; k++)
                    for (int64_t w = 0; w < width; w++)
                        for (int64_t h = 0; h < height; h++) sum[w][h] += a[k * m + i + h] * b[k * n + j + w];
            for (int64_t w = 0; w < width; w++) std::copy_n(sum[w], height, x + (j + w) * m + i);
        }
}

std::vector<float> product(const Problem& p, const Operands& o, const std::vector<float>& a, const std::vector<float>& b, Summation s) {
    const int64_t count = p.m() * p.n(), K = p.k(), half = s == Summation::chain ? K : (K + 1) / 2;
    std::vector<float> x(static_cast<size_t>(count));
    multiply(x.data(), a.data(), b.data(), p.m(), p.n(), 0, half);
    if (s == Summation::chain) return x;
    std::vector<float> second(static_cast<size_t>(count));
    multiply(second.data(), a.data(), b.data(), p.m(), p.n(), half, K);
    const int64_t type = s == Summation::halves_in_f32 ? int64_t(CUDA_R_32F) : p.d.type;
    for (int64_t i = 0; i < count; i++) {
        store_element(o.workspace, type, i, x[size_t(i)]);
        store_element(o.workspace, type, count + i, second[size_t(i)]);
        x[size_t(i)] = load_element(o.workspace, type, i) + load_element(o.workspace, type, count + i);
    }
    return x;
}

constexpr float root = 0.7978845608028654f, cubic = 0.044715f;  // √(2/π)
float gelu(float x) { return 0.5f * x * (1 + std::tanh(root * (x + cubic * x * x * x))); }
float gelu_slope(float x) {
    const float t = std::tanh(root * (x + cubic * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * root * (1 + 3 * cubic * x * x);
}

// The hardware's tanh is approximate. What it does to f32, and before the rounding to f16, is up to 2e-4 of the value, to bf16 up to one more ulp.
float approximated(float x, int64_t type) {
    if (!the_options.approximate_gelu || !std::isfinite(x)) return x;
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t random = (bits ^ bits >> 15) * 0x9e3779b1u >> 8;
    if (type != CUDA_R_16BF) return x * (1 + 2e-4f * (float(random) * 0x1p-23f - 1));
    const uint16_t rounded = round_to_bf16(x);
    const bool movable = (rounded & 0x7fffu) > 0 && (rounded & 0x7fffu) < 0x7f7fu;
    return bf16_value(uint16_t(rounded + (movable ? int(random % 3) - 1 : 0)));
}

void finish(const Problem& p, const Operands& o, std::vector<float>& x) {
    const Matrix aux = p.aux();
    std::vector<float> row_sums(size_t(p.m()), 0.0f);
    for (int64_t j = 0; j < p.n(); j++)
        for (int64_t i = 0; i < p.m(); i++) {
            float v = o.alpha * x[size_t(j * p.m() + i)];
            if (o.beta != 0) v += o.beta * load_element(o.c, p.c.type, j * p.c.ld + i);
            if (p.adds_bias()) v += load_element(o.bias, p.bias_type, i);
            if (p.writes_aux()) store_element(o.aux, aux.type, j * aux.ld + i, v);
            if (p.has_gelu()) v = approximated(gelu(v), p.d.type);
            if (p.has_dgelu()) v = approximated(v * gelu_slope(load_element(o.aux, aux.type, j * aux.ld + i)), p.d.type);
            row_sums[size_t(i)] += v;
            store_element(o.d, p.d.type, j * p.d.ld + i, v);
        }
    if (p.sums_columns())
        for (int64_t i = 0; i < p.m(); i++) store_element(o.bias, p.bias_type, i, row_sums[size_t(i)]);
}

void store_sums_over_k(const Problem& p, void* bias, const std::vector<float>& factor, int64_t size) {
    std::vector<float> sums(size_t(size), 0.0f);
    for (int64_t k = 0; k < p.k(); k++)
        for (int64_t i = 0; i < size; i++) sums[size_t(i)] += factor[size_t(k * size + i)];
    for (int64_t i = 0; i < size; i++) store_element(bias, p.bias_type, i, sums[size_t(i)]);
}

void compute(const Problem& p, const Operands& o, Summation summation) {
    const bool tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const std::vector<float> a = k_major(o.a, p.a, !p.transpose_a, tf32), b = k_major(o.b, p.b, p.transpose_b, tf32);
    std::vector<float> x = product(p, o, a, b, summation);
    finish(p, o, x);
    if (p.epilogue == CUBLASLT_EPILOGUE_BGRADA) store_sums_over_k(p, o.bias, a, p.m());
    if (p.epilogue == CUBLASLT_EPILOGUE_BGRADB) store_sums_over_k(p, o.bias, b, p.n());
}

// ---- Memory --------------------------------------------------------------------------------------------------------------------

struct Span {
    const char* name;
    const void* p;
    int64_t pieces, stride;  // pieces of `bytes`, `stride` bytes apart
    int64_t bytes;
    bool write;
    const char* begin() const { return static_cast<const char*>(p); }
    const char* end() const { return begin() + (pieces - 1) * stride + bytes; }
};
Span span(const char* name, const void* p, const Matrix& m, bool write) {
    const int64_t element = int64_t(m.element());
    if (m.ld == m.rows) return {name, p, 1, 0, m.rows * m.columns * element, write};
    return {name, p, m.columns, m.ld * element, m.rows * element, write};
}

std::vector<Span> spans(const Problem& p, const Operands& o, uint64_t workspace) {
    std::vector<Span> all = {span("A", o.a, p.a, false), span("B", o.b, p.b, false)};
    if (o.beta != 0) all.push_back(span("C", o.c, p.c, false));
    all.push_back(span("D", o.d, p.d, true));
    if (p.uses_aux()) all.push_back(span("the auxiliary matrix", o.aux, p.aux(), p.writes_aux()));
    if (p.uses_bias()) all.push_back(span("the bias", o.bias, {p.bias_type, p.bias_length(), 1, p.bias_length()}, !p.adds_bias()));
    if (workspace > 0) all.push_back({"the workspace", o.workspace, 1, 0, int64_t(workspace), true});
    return all;
}

// What is written may overlap nothing else, but D may be C where both are laid out alike.
void check_overlap(const std::vector<Span>& all) {
    for (const Span& w : all)
        for (const Span& other : all) {
            const bool in_place = w.name[0] == 'D' && other.name[0] == 'C' && w.p == other.p;
            if (w.write && &w != &other && !in_place && w.begin() < other.end() && other.begin() < w.end())
                fault(message("cublasLtMatmul: ", w.name, " at ", w.p, " overlaps ", other.name, " at ", other.p));
        }
}

void check_memory(const std::vector<Span>& all) {
    for (const Span& s : all)
        for (int64_t i = 0; i < s.pieces; i++)
            library_access(message("cublasLtMatmul: ", s.name).c_str(), s.begin() + i * s.stride, size_t(s.bytes), s.write);
}

void check_alignment(const Algorithm& a, const Problem& p, const Operands& o) {
    const auto check = [](const char* name, const void* pointer, uint32_t promised) {
        if (reinterpret_cast<uintptr_t>(pointer) % promised != 0)
            fault(message("cublasLtMatmul: ", name, " at ", pointer, " is less aligned than the ", promised, " bytes promised to the heuristic"));
    };
    check("A", o.a, a.alignment[0]);
    check("B", o.b, a.alignment[1]);
    if (o.beta != 0) check("C", o.c, a.alignment[2]);
    check("D", o.d, a.alignment[3]);
    if (p.uses_bias()) check("the bias", o.bias, a.bias_alignment);
    if (p.uses_aux()) check("the auxiliary matrix", o.aux, a.aux_alignment);
}

// ---- One product ---------------------------------------------------------------------------------------------------------------

void check_operands(const Problem& p, const Operands& o, const void* c) {
    refuse_if(!o.a || !o.b || !o.d, CUBLAS_STATUS_INVALID_VALUE, "A, B or D is null");
    refuse_if(o.beta != 0 && !c, CUBLAS_STATUS_INVALID_VALUE, "beta is ", o.beta, " and C is null");
    refuse_if(c == o.d && !(p.c == p.d), CUBLAS_STATUS_INVALID_VALUE, "C and D are one matrix of two layouts: ", p.c, ", ", p.d);
    refuse_if(p.uses_bias() && !o.bias, CUBLAS_STATUS_INVALID_VALUE, "the bias pointer is null");
    refuse_if(p.uses_aux() && !o.aux, CUBLAS_STATUS_INVALID_VALUE, "the pointer of the auxiliary matrix is null");
}

Algorithm chosen_algorithm(const cublasLtMatmulAlgo_t* algo, const Problem& p, const void* workspace, size_t workspace_bytes) {
    refuse_if(reinterpret_cast<uintptr_t>(workspace) % 256 != 0, CUBLAS_STATUS_INVALID_VALUE, "the workspace is not aligned to 256 bytes");
    Algorithm a;
    if (!algo) {  // the library then asks its own heuristic, with the default preference and no workspace
        cublasLtMatmulHeuristicResult_t result;
        find_algorithms(p, {}, {}, 1, &result);
        std::memcpy(&a, &result.algo, sizeof a);
        return a;
    }
    std::memcpy(&a, algo, sizeof a);
    refuse_if(a.magic != Algorithm::valid, CUBLAS_STATUS_INVALID_VALUE, "the algorithm is not one that the heuristic returned");
    refuse_if(a.problem != p.hash(), CUBLAS_STATUS_INVALID_VALUE, "the algorithm was chosen for another problem");
    refuse_if(a.workspace > workspace_bytes || (a.workspace > 0 && !workspace), CUBLAS_STATUS_INVALID_VALUE, "the algorithm needs ", a.workspace,
              " bytes of workspace, not ", workspace_bytes);
    return a;
}

template <class Call>
cublasStatus_t answer(cublasLtHandle_t handle, Call&& call) {
    the_refusal.clear();
    try {
        refuse_if(!handle, CUBLAS_STATUS_NOT_INITIALIZED, "no handle");
        call();
        return CUBLAS_STATUS_SUCCESS;
    } catch (const Refused& r) {
        the_refusal = r.why;
        return r.status;
    }
}

}  // namespace

CublasltOptions& cublaslt_options() { return the_options; }
std::string cublaslt_refusal() { return the_refusal; }
int64_t cublaslt_products(uint32_t epilogue) {
    const std::lock_guard lock(products_mutex);
    return products[epilogue];
}

}  // namespace simt

// ---- The library's functions ---------------------------------------------------------------------------------------------------

using namespace simt;

namespace {
struct StatusText {
    cublasStatus_t status;
    const char *name, *text;
};
constexpr StatusText status_texts[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE", "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the requested functionality is not supported"},
};
const StatusText& status_text(cublasStatus_t status) {
    for (const StatusText& t : status_texts)
        if (t.status == status) return t;
    static constexpr StatusText unknown = {CUBLAS_STATUS_INTERNAL_ERROR, "unrecognized status", "unrecognized status"};
    return unknown;
}

template <class Values>
cublasStatus_t create(Values** made) {
    if (!made) return CUBLAS_STATUS_INVALID_VALUE;
    *made = new Values;
    return CUBLAS_STATUS_SUCCESS;
}
template <class Values>
cublasStatus_t destroy(Values* made) {
    delete made;
    return CUBLAS_STATUS_SUCCESS;
}
}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return create(handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy(handle); }
const char* cublasLtGetStatusName(cublasStatus_t status) { return status_text(status).name; }
const char* cublasLtGetStatusString(cublasStatus_t status) { return status_text(status).text; }
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld) {
    if (const cublasStatus_t status = create(layout); status != CUBLAS_STATUS_SUCCESS) return status;
    cublasLtMatrixLayoutValues& l = **layout;
    l[CUBLASLT_MATRIX_LAYOUT_TYPE] = type;
    l[CUBLASLT_MATRIX_LAYOUT_ROWS] = int64_t(rows);
    l[CUBLASLT_MATRIX_LAYOUT_COLS] = int64_t(columns);
    l[CUBLASLT_MATRIX_LAYOUT_LD] = ld;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy(layout); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
    return layout ? layout->set(attribute, value, bytes) : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, void* value,
                                                size_t bytes, size_t* written) {
    return layout ? layout->get(attribute, value, bytes, written) : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType scale) {
    if (const cublasStatus_t status = create(desc); status != CUBLAS_STATUS_SUCCESS) return status;
    (**desc)[CUBLASLT_MATMUL_DESC_COMPUTE_TYPE] = compute;
    (**desc)[CUBLASLT_MATMUL_DESC_SCALE_TYPE] = scale;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy(desc); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
    return desc ? desc->set(attribute, value, bytes) : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, void* value,
                                              size_t bytes, size_t* written) {
    return desc ? desc->get(attribute, value, bytes, written) : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) { return create(preference); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { return destroy(preference); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
    return preference ? preference->set(attribute, value, bytes) : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                                                    void* value, size_t bytes, size_t* written) {
    return preference ? preference->get(attribute, value, bytes, written) : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
    if (returned) *returned = 0;
    return answer(handle, [&] {
        refuse_if(!preference || !results || !returned || requested <= 0, CUBLAS_STATUS_INVALID_VALUE, "the heuristic was asked for ", requested);
        const Problem p = stated_problem(desc, a, b, c, d);
        *returned = find_algorithms(p, *desc, *preference, requested, results);
        refuse_if(*returned == 0, CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm");
    });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    return answer(handle, [&] {
        const Problem p = stated_problem(desc, a_layout, b_layout, c_layout, d_layout);
        refuse_if(!alpha || !beta, CUBLAS_STATUS_INVALID_VALUE, "alpha or beta is null");
        const Operands o{*static_cast<const float*>(alpha), *static_cast<const float*>(beta), a, b, c, d,
                         desc->pointer<void>(CUBLASLT_MATMUL_DESC_BIAS_POINTER), desc->pointer<void>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER),
                         workspace};
        check_operands(p, o, c);
        const Algorithm algorithm = chosen_algorithm(algo, p, workspace, workspace_bytes);
        check_alignment(algorithm, p, o);
        check_overlap(spans(p, o, algorithm.workspace));
        enqueue(stream, "cublasLtMatmul", [p, o, algorithm] {
            check_memory(spans(p, o, algorithm.workspace));
            compute(p, o, algorithm.summation);
            const std::lock_guard lock(products_mutex);
            products[uint32_t(p.epilogue)]++;
            return true;
        });
    });
}

}  // extern "C"
