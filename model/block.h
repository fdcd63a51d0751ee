// One transformer block of BLOOM or Gopher (pre-norm, as GPT-2), forward and backward:
//   x      = x + delta                       the residual stream, with what the block before adds to it
//   middle = x + dense(attention(qkv(norm1(x))))
//   out    = middle + down(gelu(up(norm2(middle))))
// The last addition is left to the next norm, which does it in the same pass: a block takes (x, delta) and leaves (middle, branch).
//
// Where attention must not cross the end of a document, it is computed for one document after the other, each as a sequence of its own: the documents of a
// micro-batch lie one behind the other in all its rows, so nothing is copied and no kernel knows of it.
#pragma once
#include "../data/examples.h"
#include "parameters.h"

namespace clover {

/// What one block keeps from forward for backward. N = B·T rows, I = heads · head_size.
struct BlockActivations {
    Tensor input;                // (N, C) the residual stream that entered
    Tensor norm1, mean1, rstd1;  // (N, C), (N), (N)
    Tensor qkv;                  // (N, 3·I)
    Tensor relative;             // (T, I): r_d = W_k,R R_d; relative positions only
    Tensor attention, lse;       // (N, I), (B, H, T)
    Tensor middle;               // (N, C) the residual stream after attention
    Tensor norm2, mean2, rstd2;
    Tensor ffn_pre, ffn;         // (N, F) before and after GeLU
};

/// The keys and values of the tokens so far, of one block, for generation.
struct BlockCache {
    Tensor keys, values;  // (B, H, capacity, D)
    Tensor relative;      // (capacity, I), filled once
};

/// What the blocks of a model share.
struct BlockShared {
    const ModelConfig& config;
    const Parameters& parameters;
    int64_t batch, sequence;
    Tensor slopes = {};     // alibi: (H) f32
    Tensor sinusoids = {};  // relative: (T, C) R_d; sinusoidal: the same table, added to the embedding
    Tensor branch = {};     // (N, C) what the block adds to the stream last
    std::vector<RowRange> documents = {};  // that attention stays within, in order and without a gap; empty: all sequences at once
    // Backward only:
    Tensor dstream = {};         // (N, C) gradient of the residual stream
    Tensor dnorm = {};           // (N, C) gradient of a norm's output
    Tensor dattention = {};      // (N, I)
    Tensor dqkv = {};            // (N, 3·I)
    Tensor dffn = {};            // (N, F)
    Tensor drelative = {};       // (T, I) f32
    Tensor drelative_part = {};  // (T, I) f32: of one document; present where documents may be given
    Tensor drelative_cast = {};  // (T, I) activation dtype
};

/// `delta` is absent for the first block, whose activations' `input` already holds x. With a cache the T new tokens follow
/// past[b] (B) cached ones.
void block_forward(Context& ctx, const BlockShared& s, int64_t layer, BlockActivations& a, Tensor x, Tensor delta,
                   const BlockCache* cache = nullptr, Tensor past = {});

/// s.dstream comes in as the gradient of the block's output and leaves as that of its input. `fresh`: the first micro-batch of
/// the step, when weight gradients are overwritten rather than added to.
void block_backward(Context& ctx, const BlockShared& s, int64_t layer, const BlockActivations& a, bool fresh);

/// The same memory, used for the first `rows` rows only.
BlockActivations first_rows(const BlockActivations& a, int64_t rows);

/// Scratch for forward (decoding, if there is a cache) and, in training, backward.
size_t block_workspace_bytes(Context& ctx, const BlockShared& s, const BlockActivations& a, bool training, const BlockCache* cache = nullptr);

}  // namespace clover
