// cuBLASLt, loaded by the first context that multiplies matrices on a GPU, and its descriptors as objects that destroy themselves.
//
// The library is half a gigabyte, and mapping it takes a tenth of a second: who trains on the CPU should not wait for it, nor need it to
// be installed. The functions are therefore found by name when they are first wanted.
#pragma once
#include <cublasLt.h>
#include <dlfcn.h>

#include <memory>

#include "context.h"

namespace clover {

// What is used of it, without the prefix cublasLt.
#define CLOVER_CUBLASLT_FUNCTIONS(F)                                                                                                       \
    F(Create) F(Destroy) F(GetStatusName) F(Matmul) F(MatmulAlgoGetHeuristic) F(MatmulDescCreate) F(MatmulDescDestroy)                     \
    F(MatmulDescSetAttribute) F(MatrixLayoutCreate) F(MatrixLayoutDestroy) F(MatmulPreferenceCreate) F(MatmulPreferenceDestroy)            \
    F(MatmulPreferenceSetAttribute)

struct Cublaslt {
#define CLOVER_MEMBER(name) decltype(&::cublasLt##name) name;
    CLOVER_CUBLASLT_FUNCTIONS(CLOVER_MEMBER)
#undef CLOVER_MEMBER
};

#ifdef CLOVER_SIMT
#define CLOVER_FIND(name) &::cublasLt##name,
inline Cublaslt load_cublaslt() { return {CLOVER_CUBLASLT_FUNCTIONS(CLOVER_FIND)}; }
#else
#define CLOVER_FIND(name) reinterpret_cast<decltype(&::cublasLt##name)>(dlsym(library, "cublasLt" #name)),
inline Cublaslt load_cublaslt() {
    const std::string file = text("libcublasLt.so.", CUBLAS_VER_MAJOR);
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw Error(text("cuBLASLt cannot be loaded: ", dlerror(), "; add its folder to LD_LIBRARY_PATH"));
    return {CLOVER_CUBLASLT_FUNCTIONS(CLOVER_FIND)};
}
#endif
#undef CLOVER_FIND

inline const Cublaslt& cublaslt() {
    static const Cublaslt functions = load_cublaslt();
    return functions;
}

/// Throws Error naming `what` unless the call succeeded.
inline void check_cublaslt(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS) throw Error(text("cuBLASLt: ", what, ": ", cublaslt().GetStatusName(status)));
}
#define CLOVER_CUBLASLT(call) ::clover::check_cublaslt(::clover::cublaslt().call, "cublasLt" #call)

struct DestroyCublaslt {
    void operator()(cublasLtHandle_t p) const { cublaslt().Destroy(p); }
    void operator()(cublasLtMatmulDesc_t p) const { cublaslt().MatmulDescDestroy(p); }
    void operator()(cublasLtMatrixLayout_t p) const { cublaslt().MatrixLayoutDestroy(p); }
    void operator()(cublasLtMatmulPreference_t p) const { cublaslt().MatmulPreferenceDestroy(p); }
};
/// Owns a handle or descriptor: OwnedCublaslt<cublasLtHandle_t>.
template <class Pointer>
using OwnedCublaslt = std::unique_ptr<std::remove_pointer_t<Pointer>, DestroyCublaslt>;

/// Plans that a context has made for its products: with a fused epilogue, with none but the bias, and for the plain kernel, for which
/// cuBLASLt had no algorithm. Defined in gemm.cu, for tests and reports.
struct GemmPlanCounts {
    int64_t fused = 0, unfused = 0, plain = 0;
    bool operator==(const GemmPlanCounts&) const = default;
};
GemmPlanCounts cuda_gemm_plans(Context& ctx);

}  // namespace clover
