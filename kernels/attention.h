// Causal self-attention without a (T, T) matrix in memory: tiles with an online softmax (Dao et al. 2022), f32 inside.
//
//   S_ij = q_i·k_j / √D + position_ij   for j <= i;     P = softmax_j(S);     O_i = Σ_j P_ij v_j;     lse_i = log Σ_j exp(S_ij)
//   none      position_ij = 0                                     (learned or sinusoidal positions are added to the embedding)
//   alibi     position_ij = slope_h · (j − i)                     (Press et al. 2022)
//   relative  position_ij = (u·k_j + (q_i + v)·r_{i−j}) / √D      (Transformer-XL, Dai et al. 2019, section 3.3)
//             r_d = W_k,R R_d is row d of r: d is the distance i − j, ascending.
// Backward, with D_i = Σ_c dO_ic O_ic and G_ij = P_ij (dO_i·v_j − D_i) / √D:
//   dv_j = Σ_i P_ij dO_i      dq_i = Σ_j G_ij (k_j + r_{i−j})      dk_j = Σ_i G_ij (q_i + u)
//   dr_d = Σ_i G_i,i−d (q_i + v)      du = Σ_ij G_ij k_j      dv_bias = Σ_ij G_ij r_{i−j}
// The rows of qkv are [head][q, k, v][D], as BLOOM stores them. D <= 256. Results are the same bits for any number of threads.
#pragma once
#include "context.h"

namespace clover {

enum class AttentionPosition : uint8_t { none, alibi, relative };

/// What the position term needs; the members of the other schemes are absent.
struct PositionTerm {
    AttentionPosition kind = AttentionPosition::none;
    Tensor slopes = {};         // alibi: (H) f32
    Tensor r = {};              // relative: (T or more, H·D) activation dtype, row d is distance d
    Tensor content_bias = {};   // relative: u (H, D) f32, bf16 or f16
    Tensor position_bias = {};  // relative: v (H, D), dtype of u
};

struct AttentionForward {
    Tensor out;  // (B·T, H·D) activation dtype
    Tensor lse;  // (B, H, T) f32
    Tensor qkv;  // (B·T, H·3·D) activation dtype
    PositionTerm position = {};
};

struct AttentionBackward {
    Tensor dqkv;            // (B·T, H·3·D) activation dtype, overwritten
    Tensor dr = {};              // relative: (T, H·D) f32, overwritten: summed over the batch
    Tensor dcontent_bias = {};   // relative: (H, D) f32, accumulated
    Tensor dposition_bias = {};  // relative: (H, D) f32, accumulated
    Tensor dout;            // (B·T, H·D) activation dtype
    Tensor out;             // the forward's result
    Tensor lse;
    Tensor qkv;
    PositionTerm position = {};
};

/// Q new tokens per sequence after past[b] cached ones; Q > 1 is the prompt. New keys and values are appended to the cache.
/// Row n of sequence b attends to cached positions 0 … past[b] + n. Same numbers as AttentionForward up to rounding.
struct AttentionDecode {
    Tensor out;    // (B·Q, H·D) activation dtype
    Tensor keys;   // (B, H, capacity, D) activation dtype: the cache
    Tensor values; // (B, H, capacity, D)
    Tensor qkv;    // (B·Q, H·3·D)
    Tensor past;   // (B) i32; past[b] + Q <= capacity
    PositionTerm position = {};  // relative: r has at least max(past) + Q rows
};

struct AttentionOps {
    size_t (*forward_workspace_bytes)(const AttentionForward&);
    void (*forward)(Context&, const AttentionForward&);
    size_t (*backward_workspace_bytes)(const AttentionBackward&);
    void (*backward)(Context&, const AttentionBackward&);
    size_t (*decode_workspace_bytes)(const AttentionDecode&);
    void (*decode)(Context&, const AttentionDecode&);
};
extern const AttentionOps attention_cpu, attention_cuda;

}  // namespace clover
