// What the files of CUDA attention share: the fast kernels behind the table of operations (attention.cu), and the precomputed scalars
// of relative positions.
#pragma once
#include "attention_checks.h"

namespace clover {

/// Relative positions: S_ij = (q_i·k_j + q_i·r_d + c_j + e_d) / √D with c_j = u·k_j and e_d = v·r_d in f32, so that Q needs no second and
/// third form with u and v added. Rows of `pitch` floats, T rounded up to a multiple of 64; zero from T on.
struct RelativeScalars {
    const float* c;  // (B, H, pitch)
    const float* e;  // (H, pitch)
    int64_t pitch;
};
/// bf16 activations, D a multiple of 8 up to 128. The memory is the workspace's, until the caller's scope ends (attention_scalars.cu).
size_t relative_scalars_bytes(const attention::Sizes& n);
RelativeScalars relative_scalars(Context& ctx, const attention::Sizes& n, const Tensor& qkv, const PositionTerm& position);

/// Tensor cores, tiles of 64 queries and keys (attention_forward.cu): bf16, D = 32, 64, 80, 96 or 128, 16-byte aligned memory.
bool fast_forward_supports(const AttentionForward& a);
size_t fast_forward_workspace_bytes(const AttentionForward& a);
void attention_forward_fast(Context& ctx, const AttentionForward& a);

/// Tensor cores (attention_backward.cu): at least one token, else as for the forward.
bool fast_backward_supports(const AttentionBackward& a);
size_t fast_backward_workspace_bytes(const AttentionBackward& a);
void attention_backward_fast(Context& ctx, const AttentionBackward& a);

/// The readable versions, for every shape (attention_plain.cu, attention_plain_backward.cu).
void attention_forward_plain(Context& ctx, const AttentionForward& a);
size_t attention_backward_plain_workspace_bytes(const AttentionBackward& a);
void attention_backward_plain(Context& ctx, const AttentionBackward& a);
/// The new tokens' attention when their keys and values are in the cache already: the forward in tiles.
void attention_prompt_plain(Context& ctx, const AttentionDecode& a);

/// Attention over a cache, for every shape (attention_decode.cu).
size_t attention_decode_workspace_bytes(const AttentionDecode& a);
void attention_decode_cuda(Context& ctx, const AttentionDecode& a);

/// The table that uses nothing else: tests run it on every shape.
extern const AttentionOps attention_cuda_plain;

}  // namespace clover
