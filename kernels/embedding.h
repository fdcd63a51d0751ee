// Embedding lookup: out[n] = table[ids[n]] (+ positions[past[n div T] + n mod T]), and the norm of out where one follows.
// Backward sums the rows of dout into dtable (and dpositions) in the order of n, for every number of threads the same.
#pragma once
#include "norm.h"

namespace clover {

struct EmbeddingForward {
    Tensor out;        // (B·T, C) activation dtype
    Tensor ids;        // (B·T) i32, each in [0, V); anything else throws Error with the place and the id (CUDA: stops the kernel)
    Tensor table;      // (V, C) f32, bf16 or f16
    Tensor positions = {};  // (P, C) f32, bf16 or f16, past[b] + T <= P; or absent
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

/// All but the values of ids and past, which lie in the device's memory.
inline void check(const EmbeddingForward& e) {
    CLOVER_CHECK(e.out.rank == 2 && e.table.rank == 2, e.out.describe(), " from ", e.table.describe());
    const int64_t N = e.out.shape[0], C = e.out.shape[1];
    CLOVER_CHECK(e.table.shape[1] == C, e.out.describe(), " from ", e.table.describe());
    CLOVER_CHECK(e.sequence > 0 && N % e.sequence == 0, N, " rows in sequences of ", e.sequence);
    CLOVER_CHECK(e.ids.has_shape({N}) && e.ids.dtype == Dtype::i32, e.ids.describe());
    if (e.past.present()) CLOVER_CHECK(e.past.has_shape({N / e.sequence}) && e.past.dtype == Dtype::i32, e.past.describe());
    if (e.positions.present()) CLOVER_CHECK(e.positions.rank == 2 && e.positions.shape[1] == C, e.positions.describe());
    if (e.positions.present() && !e.past.present())
        CLOVER_CHECK(e.sequence <= e.positions.shape[0], "sequences of ", e.sequence, " and ", e.positions.describe());
    if (e.norm) CLOVER_CHECK(e.norm->x.data == e.out.data && !e.norm->delta.present(), e.norm->x.describe());
}
inline void check(const EmbeddingBackward& e) {
    CLOVER_CHECK(e.dout.rank == 2, e.dout.describe());
    const int64_t N = e.dout.shape[0], C = e.dout.shape[1];
    CLOVER_CHECK(e.dtable.rank == 2 && e.dtable.shape[1] == C && e.dtable.dtype == Dtype::f32, e.dtable.describe());
    CLOVER_CHECK(e.sequence > 0 && N % e.sequence == 0, N, " rows in sequences of ", e.sequence);
    CLOVER_CHECK(e.ids.has_shape({N}) && e.ids.dtype == Dtype::i32, e.ids.describe());
    if (!e.dpositions.present()) return;
    CLOVER_CHECK(e.dpositions.rank == 2 && e.dpositions.shape[1] == C && e.dpositions.dtype == Dtype::f32, e.dpositions.describe());
    CLOVER_CHECK(e.sequence <= e.dpositions.shape[0], "sequences of ", e.sequence, " and ", e.dpositions.describe());
}

struct EmbeddingOps {
    void (*forward)(Context&, const EmbeddingForward&);
    size_t (*backward_workspace_bytes)(const EmbeddingBackward&);
    void (*backward)(Context&, const EmbeddingBackward&);
};
extern const EmbeddingOps embedding_cpu, embedding_cuda;

}  // namespace clover
