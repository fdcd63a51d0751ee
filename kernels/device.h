// A device is a table of operations. This is the one place where work is directed to the CPU or to CUDA:
// `ctx.device.norm.forward(ctx, {...})` runs on whichever the context was made for.
#pragma once
#include <string>

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
    /// Zeroed, 4096-byte aligned. Throws Error with the size when there is not enough.
    void* (*allocate)(size_t bytes);
    void (*release)(void* p, size_t bytes);
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
    AdamwOps adamw;
};

/// "cpu". Throws InputError naming the devices of this build for any other name.
const Device& find_device(const std::string& name);

}  // namespace clover
