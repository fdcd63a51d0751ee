// Embedding lookup: out[n] = table[ids[n]] (+ positions[past[n div T] + n mod T]), and the norm of out where one follows.
// Backward sums the rows of dout into dtable (and dpositions) in the order of n, for every number of threads the same.
#pragma once
#include "norm.h"

namespace clover {

struct EmbeddingForward {
    Tensor out;        // (B·T, C) activation dtype
    Tensor ids;        // (B·T) i32, each in [0, V); anything else throws Error with the place and the id (CUDA: stops the kernel)
    Tensor table;      // (V, C) f32 or bf16
    Tensor positions = {};  // (P, C) f32 or bf16, past[b] + T <= P; or absent
    int64_t sequence;  // T
    Tensor past = {};       // (B) i32: tokens of each sequence that came before these; absent: none
    const NormForward* norm = nullptr;  // a norm to apply to out: its x is out, it has no delta; CUDA does both in one pass
};
struct EmbeddingBackward {
    Tensor dtable;      // (V, C) f32, accumulated
    Tensor dpositions = {};  // (P, C) f32, accumulated; or absent
    Tensor dout;        // (B·T, C) activation dtype
    Tensor ids;         // (B·T) i32
    int64_t sequence;   // T
};

struct EmbeddingOps {
    void (*forward)(Context&, const EmbeddingForward&);
    size_t (*backward_workspace_bytes)(const EmbeddingBackward&);
    void (*backward)(Context&, const EmbeddingBackward&);
};
extern const EmbeddingOps embedding_cpu, embedding_cuda;

}  // namespace clover
