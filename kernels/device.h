// A device is a table of operations. This is the one place where work is directed to the CPU or to CUDA:
// `ctx.device.norm.forward(ctx, {...})` runs on whichever the context was made for.
#pragma once
#include <string>

#include "adafactor.h"
#include "adamw.h"
#include "attention.h"
#include "cross_entropy.h"
#include "elementwise.h"
#include "embedding.h"
#include "gelu.h"
#include "gemm.h"
#include "norm.h"

namespace clover {

struct MemoryOps {
    /// Bytes that can still be allocated.
    size_t (*available)();
    /// 256-byte aligned or better; all zero if `zeroed`, else not initialised. Throws Error with the size when there is not enough.
    void* (*allocate)(size_t bytes, bool zeroed);
    void (*release)(void* p, size_t bytes);
    /// Copies after everything that was asked of the context before. to_host returns when the data has arrived, from_host when
    /// the host's memory may be used again.
    void (*to_host)(Context&, void* host, const void* device, size_t bytes);
    void (*from_host)(Context&, void* device, const void* host, size_t bytes);
};

struct Device {
    const char* name;
    MemoryOps memory;
    GemmOps gemm;
    NormOps norm;
    GeluOps gelu;
    EmbeddingOps embedding;
    AttentionOps attention;
    CrossEntropyOps cross_entropy;
    ElementwiseOps elementwise;
    OptimizerOps optimizer;
    AdamwOps adamw;
    AdafactorOps adafactor;
};

/// "cpu", "cuda", or "auto": cuda where the build has it and the machine a GPU, else cpu. Throws InputError saying what is missing.
const Device& find_device(const std::string& name);

/// The CUDA device, or null with the reason in `why_not`: no driver, no GPU, or one that is too old. Defined in device.cu; a build
/// without CUDA lacks it, and the address of this function is null there.
__attribute__((weak)) const Device* cuda_device(std::string& why_not);

}  // namespace clover
