#include "block.h"

#include <algorithm>
#include <optional>

#include "linear.h"

namespace clover {
namespace {

PositionTerm position_term(const BlockShared& s, int64_t layer, Tensor relative) {
    switch (s.config.position) {
        case Position::alibi: return {.kind = AttentionPosition::alibi, .slopes = s.slopes};
        case Position::relative:
            return {.kind = AttentionPosition::relative,
                    .r = relative,
                    .content_bias = s.parameters.value(Role::content_bias, layer),
                    .position_bias = s.parameters.value(Role::position_bias, layer)};
        default: return {};
    }
}

float eps_of(const BlockShared& s) { return float(s.config.norm_eps); }

/// The part of (B, H, T) that belongs to the rows of a document; its own layout is (1, H, rows).
Tensor lse_of(const Tensor& lse, RowRange rows) {
    const int64_t heads = lse.shape[1];
    return lse.reshaped({lse.count(), 1}).row_range(rows.first * heads, rows.count * heads).reshaped({1, heads, rows.count});
}

AttentionForward attention_arguments(const BlockShared& s, int64_t layer, const BlockActivations& a) {
    return {.out = a.attention, .lse = a.lse, .qkv = a.qkv, .position = position_term(s, layer, a.relative)};
}

void attention_forward(Context& ctx, const BlockShared& s, const AttentionForward& all) {
    if (s.documents.empty()) return ctx.device.attention.forward(ctx, all);
    for (RowRange rows : s.documents) {
        AttentionForward one = all;
        one.out = all.out.row_range(rows.first, rows.count);
        one.lse = lse_of(all.lse, rows);
        one.qkv = all.qkv.row_range(rows.first, rows.count);
        ctx.device.attention.forward(ctx, one);
    }
}

void attention_backward(Context& ctx, const BlockShared& s, const AttentionBackward& all) {
    if (s.documents.empty()) return ctx.device.attention.backward(ctx, all);
    if (all.dr.present()) ctx.device.elementwise.fill(ctx, all.dr, 0);
    for (RowRange rows : s.documents) {
        AttentionBackward one = all;
        for (Tensor AttentionBackward::*t : {&AttentionBackward::dqkv, &AttentionBackward::dout, &AttentionBackward::out, &AttentionBackward::qkv})
            one.*t = (all.*t).row_range(rows.first, rows.count);
        one.lse = lse_of(all.lse, rows);
        if (all.dr.present()) one.dr = s.drelative_part.row_range(0, rows.count);
        ctx.device.attention.backward(ctx, one);
        if (!all.dr.present()) continue;
        const Tensor sum = all.dr.row_range(0, rows.count);
        ctx.device.elementwise.add(ctx, sum, sum, one.dr);
    }
}

AttentionBackward attention_backward_arguments(const BlockShared& s, int64_t layer, const BlockActivations& a) {
    return {.dqkv = s.dqkv,
            .dr = s.drelative,
            .dcontent_bias = s.parameters.gradient(Role::content_bias, layer),
            .dposition_bias = s.parameters.gradient(Role::position_bias, layer),
            .dout = s.dattention,
            .out = a.attention,
            .lse = a.lse,
            .qkv = a.qkv,
            .position = position_term(s, layer, a.relative)};
}

AttentionDecode decode_arguments(const BlockShared& s, int64_t layer, const BlockActivations& a, const BlockCache& cache, Tensor past) {
    return {.out = a.attention, .keys = cache.keys, .values = cache.values, .qkv = a.qkv, .past = past,
            .position = position_term(s, layer, cache.relative)};
}

}  // namespace

void block_forward(Context& ctx, const BlockShared& s, int64_t layer, BlockActivations& a, Tensor x, Tensor delta, const BlockCache* cache,
                   Tensor past) {
    const Device& k = ctx.device;
    const auto w = [&](Role role) { return s.parameters.value(role, layer); };

    k.norm.forward(ctx, {.kind = s.config.norm, .eps = eps_of(s), .y = a.norm1, .sum = delta.present() ? a.input : Tensor{}, .mean = a.mean1,
                         .rstd = a.rstd1, .x = x, .delta = delta, .weight = w(Role::norm1_weight), .bias = w(Role::norm1_bias)});
    linear_forward(ctx, a.qkv, a.norm1, w(Role::qkv_weight), w(Role::qkv_bias));
    if (cache) {
        k.attention.decode(ctx, decode_arguments(s, layer, a, *cache, past));
    } else {
        if (a.relative.present()) linear_forward(ctx, a.relative, s.sinusoids, w(Role::relative_weight), {});
        attention_forward(ctx, s, attention_arguments(s, layer, a));
    }
    linear_forward(ctx, s.branch, a.attention, w(Role::attention_out_weight), w(Role::attention_out_bias));
    k.norm.forward(ctx, {.kind = s.config.norm, .eps = eps_of(s), .y = a.norm2, .sum = a.middle, .mean = a.mean2, .rstd = a.rstd2,
                         .x = a.input, .delta = s.branch, .weight = w(Role::norm2_weight), .bias = w(Role::norm2_bias)});
    linear_forward(ctx, a.ffn, a.norm2, w(Role::ffn_up_weight), w(Role::ffn_up_bias), a.ffn_pre);
    linear_forward(ctx, s.branch, a.ffn, w(Role::ffn_down_weight), w(Role::ffn_down_bias));
}

void block_backward(Context& ctx, const BlockShared& s, int64_t layer, const BlockActivations& a, bool fresh) {
    const Device& k = ctx.device;
    const auto w = [&](Role role) { return s.parameters.value(role, layer); };
    const auto d = [&](Role role) { return s.parameters.gradient(role, layer); };

    // linear_forward(branch, ffn, ffn_down_weight, ffn_down_bias)
    linear_backward(ctx, {.dx = s.dffn, .dw = d(Role::ffn_down_weight), .dbias = d(Role::ffn_down_bias), .dy = s.dstream, .x = a.ffn,
                          .w = w(Role::ffn_down_weight), .fresh = fresh, .gelu_input = a.ffn_pre});
    // linear_forward(ffn, norm2, ffn_up_weight, ffn_up_bias, ffn_pre): dffn is the gradient of ffn_pre
    linear_backward(ctx, {.dx = s.dnorm, .dw = d(Role::ffn_up_weight), .dbias = d(Role::ffn_up_bias), .dy = s.dffn, .x = a.norm2,
                          .w = w(Role::ffn_up_weight), .fresh = fresh});
    // norm.forward(norm2, middle = input + branch)
    k.norm.backward(ctx, {.kind = s.config.norm, .dx = s.dstream, .accumulate_dx = true, .dweight = d(Role::norm2_weight),
                          .dbias = d(Role::norm2_bias), .dy = s.dnorm, .x = a.middle, .weight = w(Role::norm2_weight), .mean = a.mean2,
                          .rstd = a.rstd2});
    // linear_forward(branch, attention, attention_out_weight, attention_out_bias)
    linear_backward(ctx, {.dx = s.dattention, .dw = d(Role::attention_out_weight), .dbias = d(Role::attention_out_bias), .dy = s.dstream,
                          .x = a.attention, .w = w(Role::attention_out_weight), .fresh = fresh});
    // attention.forward(attention, lse, qkv, relative)
    attention_backward(ctx, s, attention_backward_arguments(s, layer, a));
    // linear_forward(relative, sinusoids, relative_weight): the sinusoids are fixed
    if (a.relative.present()) {
        k.elementwise.cast(ctx, s.drelative_cast, s.drelative);
        linear_backward(ctx, {.dw = d(Role::relative_weight), .dy = s.drelative_cast, .x = s.sinusoids,
                              .w = w(Role::relative_weight), .fresh = fresh});
    }
    // linear_forward(qkv, norm1, qkv_weight, qkv_bias)
    linear_backward(ctx, {.dx = s.dnorm, .dw = d(Role::qkv_weight), .dbias = d(Role::qkv_bias), .dy = s.dqkv, .x = a.norm1,
                          .w = w(Role::qkv_weight), .fresh = fresh});
    // norm.forward(norm1, input = x + delta)
    k.norm.backward(ctx, {.kind = s.config.norm, .dx = s.dstream, .accumulate_dx = true, .dweight = d(Role::norm1_weight),
                          .dbias = d(Role::norm1_bias), .dy = s.dnorm, .x = a.input, .weight = w(Role::norm1_weight), .mean = a.mean1,
                          .rstd = a.rstd1});
}

BlockActivations first_rows(const BlockActivations& a, int64_t rows) {
    const auto rows_of = [&](Tensor t) { return t.present() ? t.row_range(0, rows) : t; };
    const auto values_of = [&](Tensor t) { return t.present() ? t.reshaped({t.count(), 1}).row_range(0, rows).reshaped({rows}) : t; };
    BlockActivations b = a;
    for (Tensor BlockActivations::*t : {&BlockActivations::input, &BlockActivations::norm1, &BlockActivations::qkv, &BlockActivations::attention,
                                        &BlockActivations::middle, &BlockActivations::norm2, &BlockActivations::ffn_pre, &BlockActivations::ffn})
        b.*t = rows_of(a.*t);
    for (Tensor BlockActivations::*t : {&BlockActivations::mean1, &BlockActivations::rstd1, &BlockActivations::mean2, &BlockActivations::rstd2})
        b.*t = values_of(a.*t);
    return b;
}

size_t block_workspace_bytes(Context& ctx, const BlockShared& s, const BlockActivations& a, bool training, const BlockCache* cache) {
    const Device& k = ctx.device;
    const auto w = [&](Role role) { return s.parameters.value(role, 0); };
    size_t most = cache ? k.attention.decode_workspace_bytes(decode_arguments(s, 0, a, *cache, Tensor(nullptr, Dtype::i32, {s.batch})))
                        : k.attention.forward_workspace_bytes(attention_arguments(s, 0, a));
    struct Layer {
        Tensor y, x;
        Role weight;
        std::optional<Role> bias;
        Tensor dx, pre_activation = {}, gelu_input = {};
    };
    const auto linear = [&](const Layer& l) {
        const Tensor bias = l.bias ? w(*l.bias) : Tensor{}, dbias = l.bias && training ? s.parameters.gradient(*l.bias, 0) : Tensor{};
        most = std::max(most, k.gemm.workspace_bytes(ctx, linear_product(l.y, l.x, w(l.weight), bias, l.pre_activation)));
        if (training)
            most = std::max(most, linear_backward_workspace_bytes(ctx, {.dx = l.dx, .dw = s.parameters.gradient(l.weight, 0), .dbias = dbias,
                                                                        .dy = l.y, .x = l.x, .w = w(l.weight), .fresh = true,
                                                                        .gelu_input = l.gelu_input}));
    };
    linear({a.qkv, a.norm1, Role::qkv_weight, Role::qkv_bias, s.dnorm});
    linear({s.branch, a.attention, Role::attention_out_weight, Role::attention_out_bias, s.dattention});
    linear({.y = a.ffn, .x = a.norm2, .weight = Role::ffn_up_weight, .bias = Role::ffn_up_bias, .dx = s.dnorm, .pre_activation = a.ffn_pre});
    linear({.y = s.branch, .x = a.ffn, .weight = Role::ffn_down_weight, .bias = Role::ffn_down_bias, .dx = s.dffn, .gelu_input = a.ffn_pre});
    if (a.relative.present()) linear({a.relative, s.sinusoids, Role::relative_weight, {}, {}});
    if (!training) return most;
    most = std::max(most, k.attention.backward_workspace_bytes(attention_backward_arguments(s, 0, a)));
    return std::max(most, k.norm.backward_workspace_bytes({.kind = s.config.norm, .dx = s.dstream, .dweight = s.parameters.gradient(Role::norm1_weight, 0),
                                                           .dbias = s.parameters.gradient(Role::norm1_bias, 0), .dy = s.dnorm, .x = a.input,
                                                           .weight = w(Role::norm1_weight), .mean = a.mean1, .rstd = a.rstd1}));
}

}  // namespace clover
