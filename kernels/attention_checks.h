// What attention asks of its arguments, on every device, and the sizes they give.
#pragma once
#include "attention.h"

namespace clover::attention {

/// B sequences of T tokens, H heads of size D.
struct Sizes {
    int64_t B, T, H, D;
};
/// Q new tokens after those in a cache of `capacity`.
struct DecodeSizes {
    int64_t B, Q, H, D, capacity;
};

/// Checks the position's tensors; relative: `distances` is how many rows r must have.
inline void check_position(const PositionTerm& p, Dtype activation, int64_t H, int64_t D, int64_t distances) {
    if (p.kind == AttentionPosition::alibi)
        CLOVER_CHECK(p.slopes.dtype == Dtype::f32 && p.slopes.has_shape({H}), p.slopes.describe());
    if (p.kind != AttentionPosition::relative) return;
    CLOVER_CHECK(p.r.dtype == activation && p.r.rank == 2 && p.r.shape[0] >= distances && p.r.shape[1] == H * D, p.r.describe(), " for ",
                 distances, " distances");
    CLOVER_CHECK(p.content_bias.has_shape({H, D}) && p.position_bias.has_shape({H, D}), p.content_bias.describe(), ", ",
                 p.position_bias.describe());
    CLOVER_CHECK(p.content_bias.dtype != Dtype::i32 && p.content_bias.dtype == p.position_bias.dtype);
}

/// The sizes that `lse` (B, H, T) and `out` (B·T, H·D) give, checked against each other and qkv.
inline Sizes sizes_of(const Tensor& out, const Tensor& lse, const Tensor& qkv) {
    CLOVER_CHECK(lse.rank == 3 && lse.dtype == Dtype::f32, lse.describe());
    const int64_t B = lse.shape[0], H = lse.shape[1], T = lse.shape[2];
    CLOVER_CHECK(out.rank == 2 && H > 0 && out.shape[1] % H == 0, out.describe());
    const int64_t D = out.shape[1] / H;
    CLOVER_CHECK(D >= 1 && D <= 256, "head size ", D);
    CLOVER_CHECK(out.shape[0] == B * T && out.dtype != Dtype::i32, out.describe(), ", lse ", lse.describe());
    CLOVER_CHECK(qkv.dtype == out.dtype && qkv.has_shape({B * T, H * 3 * D}), qkv.describe());
    return {B, T, H, D};
}

inline Sizes check(const AttentionForward& a) {
    const Sizes n = sizes_of(a.out, a.lse, a.qkv);
    check_position(a.position, a.qkv.dtype, n.H, n.D, n.T);
    return n;
}

inline Sizes check(const AttentionBackward& a) {
    const Sizes n = sizes_of(a.out, a.lse, a.qkv);
    check_position(a.position, a.qkv.dtype, n.H, n.D, n.T);
    CLOVER_CHECK(a.dqkv.dtype == a.qkv.dtype && a.dqkv.has_shape({n.B * n.T, n.H * 3 * n.D}), a.dqkv.describe());
    CLOVER_CHECK(a.dout.dtype == a.out.dtype && a.dout.has_shape({n.B * n.T, n.H * n.D}), a.dout.describe());
    if (a.position.kind == AttentionPosition::relative) {
        CLOVER_CHECK(a.dr.dtype == Dtype::f32 && a.dr.has_shape({n.T, n.H * n.D}), a.dr.describe());
        for (const Tensor& bias : {a.dcontent_bias, a.dposition_bias})
            CLOVER_CHECK(bias.dtype == Dtype::f32 && bias.has_shape({n.H, n.D}), bias.describe());
    }
    return n;
}

/// All but the contents of `past`, which lie in the device's memory.
inline DecodeSizes check(const AttentionDecode& a) {
    CLOVER_CHECK(a.keys.rank == 4 && a.keys.dtype != Dtype::i32, a.keys.describe());
    const int64_t B = a.keys.shape[0], H = a.keys.shape[1], capacity = a.keys.shape[2], D = a.keys.shape[3];
    CLOVER_CHECK(D >= 1 && D <= 256, "head size ", D);
    CLOVER_CHECK(a.values.dtype == a.keys.dtype && a.values.has_shape({B, H, capacity, D}), a.values.describe());
    CLOVER_CHECK(a.past.dtype == Dtype::i32 && a.past.has_shape({B}), a.past.describe());
    CLOVER_CHECK(a.out.rank == 2 && a.out.dtype == a.keys.dtype && (B == 0 || a.out.shape[0] % B == 0), a.out.describe());
    const int64_t Q = B == 0 ? 0 : a.out.shape[0] / B;
    CLOVER_CHECK(a.out.shape[1] == H * D && Q <= capacity, a.out.describe(), ", keys ", a.keys.describe());
    CLOVER_CHECK(a.qkv.dtype == a.keys.dtype && a.qkv.has_shape({B * Q, H * 3 * D}), a.qkv.describe());
    check_position(a.position, a.keys.dtype, H, D, Q);
    return {B, Q, H, D, capacity};
}

}  // namespace clover::attention
