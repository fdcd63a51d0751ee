#include "workloads.h"

#include <algorithm>
#include <cmath>

#include "../../kernels/alibi.h"
#include "../../kernels/random.h"

namespace clover::gpu {

// ---- Memory --------------------------------------------------------------------------------------------------------------------

Memory::~Memory() {
    for (const auto& [p, bytes] : blocks_) ctx_.device.memory.release(p, bytes);
}
Tensor Memory::take(Dtype dtype, std::initializer_list<int64_t> shape, bool zeroed) {
    Tensor t(nullptr, dtype, shape);
    t.data = ctx_.device.memory.allocate(t.bytes(), zeroed);
    blocks_.emplace_back(t.data, t.bytes());
    return t;
}
Tensor Memory::zeros(Dtype dtype, std::initializer_list<int64_t> shape) { return take(dtype, shape, true); }
Tensor Memory::unwritten(Dtype dtype, std::initializer_list<int64_t> shape) { return take(dtype, shape, false); }
void Memory::copy_from(Tensor to, const void* host) { ctx_.device.memory.from_host(ctx_, to.data, host, to.bytes()); }

// A stretch of numbers, repeated: products and transfers of real numbers take the GPU other power than those of zeros.
// Not inlined: GCC 12 would warn of a read past the shape that does not happen.
[[gnu::noinline]] Tensor Memory::random(Dtype dtype, std::initializer_list<int64_t> shape, double scale) {
    const Tensor t = take(dtype, shape, false);
    constexpr int64_t stretch = 1000003;  // a prime, so that rows differ
    by_dtype(dtype, [&](auto element) {
        using T = decltype(element);
        std::vector<T> values(size_t(std::min(stretch, t.count())));
        for (size_t i = 0; i < values.size(); i++) values[i] = from_float<T>(float(scale * normal(random_bits(1, Stream::initialisation, 0, 0, i))));
        for (int64_t first = 0; first < t.count(); first += stretch) {
            const int64_t n = std::min(stretch, t.count() - first);
            ctx_.device.memory.from_host(ctx_, static_cast<T*>(t.data) + first, values.data(), size_t(n) * sizeof(T));
        }
    });
    return t;
}
Tensor Memory::ids(int64_t n, int64_t limit) {
    const Tensor t = take(Dtype::i32, {n}, false);
    std::vector<int32_t> values(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; i++) values[size_t(i)] = int32_t(i * 7919 % limit);
    copy_from(t, values.data());
    return t;
}

void with_workload(Context& ctx, const NamedWorkload& named, const Sizes& sizes, const std::function<void(const Workload&)>& f) {
    Memory memory(ctx);
    const Workload w = named.make(memory, sizes);
    ctx.workspace = {};
    ctx.workspace.size = w.workspace;
    ctx.workspace.base = memory.unwritten(Dtype::f32, {int64_t(w.workspace / 4) + 1}).data;
    f(w);
    ctx.workspace = {};
}

// ---- The operations ------------------------------------------------------------------------------------------------------------

namespace {

double bytes(std::initializer_list<Tensor> tensors) {
    double sum = 0;
    for (const Tensor& t : tensors) sum += t.present() ? double(t.bytes()) : 0;
    return sum;
}

Workload norm_forward(Memory& m, const Sizes& s, NormKind kind, bool with_delta) {
    NormForward n{.kind = kind, .eps = 1e-5f, .y = m.unwritten(Dtype::bf16, {s.rows, s.columns}), .rstd = m.unwritten(Dtype::f32, {s.rows}),
                  .x = m.random(Dtype::bf16, {s.rows, s.columns}), .weight = m.random(Dtype::bf16, {s.columns})};
    if (kind == NormKind::layernorm) n.mean = m.unwritten(Dtype::f32, {s.rows}), n.bias = m.random(Dtype::bf16, {s.columns});
    if (with_delta) n.delta = m.random(Dtype::bf16, {s.rows, s.columns}), n.sum = m.unwritten(Dtype::bf16, {s.rows, s.columns});
    return {.bytes = bytes({n.y, n.sum, n.mean, n.rstd, n.x, n.delta, n.weight, n.bias}), .run = [=](Context& c) { c.device.norm.forward(c, n); }};
}

Workload norm_backward(Memory& m, const Sizes& s, NormKind kind) {
    NormBackward n{.kind = kind, .dx = m.zeros(Dtype::bf16, {s.rows, s.columns}), .accumulate_dx = true, .dweight = m.zeros(Dtype::f32, {s.columns}),
                   .dy = m.random(Dtype::bf16, {s.rows, s.columns}), .x = m.random(Dtype::bf16, {s.rows, s.columns}),
                   .weight = m.random(Dtype::bf16, {s.columns}), .rstd = m.random(Dtype::f32, {s.rows})};
    if (kind == NormKind::layernorm) n.dbias = m.zeros(Dtype::f32, {s.columns}), n.mean = m.random(Dtype::f32, {s.rows});
    return {.bytes = bytes({n.dx, n.dx, n.dweight, n.dweight, n.dbias, n.dbias, n.dy, n.x, n.weight, n.mean, n.rstd}),
            .workspace = m.context().device.norm.backward_workspace_bytes(n), .run = [=](Context& c) { c.device.norm.backward(c, n); }};
}

Workload gelu_forward(Memory& m, const Sizes& s) {
    const GeluForward g{.y = m.unwritten(Dtype::bf16, {s.rows, s.columns}), .x = m.random(Dtype::bf16, {s.rows, s.columns})};
    return {.bytes = bytes({g.y, g.x}), .run = [=](Context& c) { c.device.gelu.forward(c, g); }};
}
Workload gelu_backward(Memory& m, const Sizes& s) {
    const GeluBackward g{.dx = m.unwritten(Dtype::bf16, {s.rows, s.columns}), .dy = m.random(Dtype::bf16, {s.rows, s.columns}),
                         .x = m.random(Dtype::bf16, {s.rows, s.columns})};
    return {.bytes = bytes({g.dx, g.dy, g.x}), .run = [=](Context& c) { c.device.gelu.backward(c, g); }};
}

// Row k of the table is read or written once where it is the row of some token.
double distinct_rows(const Sizes& s, int64_t tokens, size_t element) { return double(std::min(tokens, s.vocab)) * double(s.columns) * double(element); }

Workload embedding_forward(Memory& m, const Sizes& s) {
    const EmbeddingForward e{.out = m.unwritten(Dtype::bf16, {s.rows, s.columns}), .ids = m.ids(s.rows, s.vocab),
                             .table = m.random(Dtype::bf16, {s.vocab, s.columns}), .sequence = s.rows};
    return {.bytes = bytes({e.out, e.ids}) + distinct_rows(s, s.rows, 2), .run = [=](Context& c) { c.device.embedding.forward(c, e); }};
}
Workload embedding_backward(Memory& m, const Sizes& s) {
    const EmbeddingBackward e{.dtable = m.zeros(Dtype::f32, {s.vocab, s.columns}), .dout = m.random(Dtype::bf16, {s.rows, s.columns}),
                              .ids = m.ids(s.rows, s.vocab), .sequence = s.rows};
    return {.bytes = bytes({e.dout, e.ids}) + 2 * distinct_rows(s, s.rows, 4), .workspace = m.context().device.embedding.backward_workspace_bytes(e),
            .run = [=](Context& c) { c.device.embedding.backward(c, e); }};
}

Workload cross_entropy(Memory& m, const Sizes& s) {
    const CrossEntropy e{.loss = m.unwritten(Dtype::f32, {s.logit_rows}), .dlogits = m.unwritten(Dtype::bf16, {s.logit_rows, s.vocab}),
                         .logits = m.random(Dtype::f32, {s.logit_rows, s.vocab}), .targets = m.ids(s.logit_rows, s.vocab), .scale = 1e-3f};
    return {.bytes = bytes({e.loss, e.dlogits, e.logits, e.targets}), .run = [=](Context& c) { c.device.cross_entropy.run(c, e); }};
}

// The two calls of a rank that holds all of the vocabulary.
Workload cross_entropy_shard(Memory& m, const Sizes& s) {
    CrossEntropyShard e{.loss = m.unwritten(Dtype::f32, {s.logit_rows}), .dlogits = m.unwritten(Dtype::bf16, {s.logit_rows, s.vocab}),
                        .logits = m.random(Dtype::f32, {s.logit_rows, s.vocab}), .targets = m.ids(s.logit_rows, s.vocab), .scale = 1e-3f,
                        .maximum = m.unwritten(Dtype::f32, {s.logit_rows}), .sum = m.unwritten(Dtype::f32, {s.logit_rows}),
                        .target = m.unwritten(Dtype::f32, {s.logit_rows})};
    return {.bytes = bytes({e.loss, e.dlogits, e.logits, e.logits, e.targets, e.targets, e.maximum, e.maximum, e.sum, e.sum, e.target, e.target}),
            .run = [=](Context& c) { c.device.cross_entropy.statistics(c, e), c.device.cross_entropy.finish(c, e); }};
}

Workload adamw(Memory& m, const Sizes& s) {
    const int64_t n = s.parameters;
    const Segment all{0, n, 0.1f};
    Tensor segments = m.unwritten(Dtype::i32, {1, segment_words}), scale = m.unwritten(Dtype::f32, {1});
    const float one = 1;
    m.copy_from(segments, &all), m.copy_from(scale, &one);
    const Weights w{.master = m.random(Dtype::f32, {n}), .copy = m.unwritten(Dtype::bf16, {n}), .segments = segments};
    const Adamw a{.weights = w, .m = m.zeros(Dtype::f32, {n}), .v = m.zeros(Dtype::f32, {n}), .grad = m.random(Dtype::f32, {n}), .grad_scale = scale,
                  .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .t = 1};
    return {.bytes = bytes({w.master, w.master, w.copy, a.m, a.m, a.v, a.v, a.grad}), .run = [=](Context& c) { c.device.adamw.update(c, a); }};
}

Workload add(Memory& m, const Sizes& s) {
    const Tensor out = m.unwritten(Dtype::bf16, {s.rows, s.columns}), a = m.random(Dtype::bf16, {s.rows, s.columns}), b = m.random(Dtype::bf16, {s.rows, s.columns});
    return {.bytes = bytes({out, a, b}), .run = [=](Context& c) { c.device.elementwise.add(c, out, a, b); }};
}
Workload cast(Memory& m, const Sizes& s) {
    const Tensor to = m.unwritten(Dtype::bf16, {s.parameters}), from = m.random(Dtype::f32, {s.parameters});
    return {.bytes = bytes({to, from}), .run = [=](Context& c) { c.device.elementwise.cast(c, to, from); }};
}
Workload fill(Memory& m, const Sizes& s) {
    const Tensor out = m.unwritten(Dtype::f32, {s.parameters});
    return {.bytes = bytes({out}), .run = [=](Context& c) { c.device.elementwise.fill(c, out, 0); }};
}
Workload column_sum(Memory& m, const Sizes& s) {
    const Tensor sums = m.zeros(Dtype::f32, {s.columns}), x = m.random(Dtype::bf16, {s.rows, s.columns});
    return {.bytes = bytes({sums, sums, x}), .workspace = m.context().device.elementwise.column_sum_workspace_bytes(x),
            .run = [=](Context& c) { c.device.elementwise.column_sum(c, sums, x); }};
}
Workload sum_of_squares(Memory& m, const Sizes& s) {
    const Tensor result = m.unwritten(Dtype::f32, {1}), x = m.random(Dtype::f32, {s.parameters});
    return {.bytes = bytes({result, x}), .workspace = m.context().device.elementwise.sum_of_squares_workspace_bytes(x),
            .run = [=](Context& c) { c.device.elementwise.sum_of_squares(c, result, x); }};
}

// Square products. The three of a linear layer differ in their layouts and in what is done besides.
enum class Product : uint8_t { forward, forward_gelu, input_gradient, input_gradient_gelu, weight_gradient };
Workload product(Memory& m, const Sizes& s, Dtype dtype, Product which) {
    const int64_t n = s.product;
    Gemm g{.c = m.unwritten(dtype, {n, n}), .a = m.random(dtype, {n, n}), .b = m.random(dtype, {n, n}, 1 / std::sqrt(double(n)))};
    if (which == Product::forward || which == Product::forward_gelu) g.transpose_b = true, g.bias = m.random(dtype, {n});
    if (which == Product::forward_gelu) g.pre_activation = m.unwritten(dtype, {n, n});
    if (which == Product::input_gradient_gelu) g.gelu_input = m.random(dtype, {n, n});
    if (which == Product::weight_gradient)
        g.transpose_a = g.accumulate = true, g.c = m.zeros(Dtype::f32, {n, n}), g.bias_gradient = m.zeros(Dtype::f32, {n});
    return {.flops = 2 * double(n) * double(n) * double(n), .workspace = m.context().device.gemm.workspace_bytes(m.context(), g),
            .run = [=](Context& c) { c.device.gemm.run(c, g); }};
}

// f32 factors with a bf16 result are left to the plain kernel.
Workload plain_product(Memory& m, const Sizes& s) {
    const int64_t n = s.product / 4;
    const Gemm g{.c = m.unwritten(Dtype::bf16, {n, n}), .a = m.random(Dtype::f32, {n, n}), .b = m.random(Dtype::f32, {n, n})};
    return {.flops = 2 * double(n) * double(n) * double(n), .workspace = m.context().device.gemm.workspace_bytes(m.context(), g),
            .run = [=](Context& c) { c.device.gemm.run(c, g); }};
}

PositionTerm position_term(Memory& m, const Sizes& s, AttentionPosition kind, int64_t head_size, int64_t distances) {
    PositionTerm p{.kind = kind};
    if (kind == AttentionPosition::alibi) {
        std::vector<float> slopes(size_t(s.heads));
        alibi_slopes(s.heads, slopes.data());
        p.slopes = m.unwritten(Dtype::f32, {s.heads});
        m.copy_from(p.slopes, slopes.data());
    }
    if (kind == AttentionPosition::relative) {
        p.r = m.random(Dtype::bf16, {distances, s.heads * head_size});
        p.content_bias = m.random(Dtype::bf16, {s.heads, head_size}, 0.1), p.position_bias = m.random(Dtype::bf16, {s.heads, head_size}, 0.1);
    }
    return p;
}
// The convention of the FlashAttention papers: 4·B·H·T²·D, half of it for the causal mask; backward 2.5 times that.
double attention_flops(const Sizes& s, int64_t head_size) {
    return 2 * double(s.batch * s.heads) * double(s.sequence) * double(s.sequence) * double(head_size);
}
AttentionForward attention_arguments(Memory& m, const Sizes& s, AttentionPosition kind, int64_t head_size) {
    const int64_t rows = s.batch * s.sequence, width = s.heads * head_size;
    return {.out = m.unwritten(Dtype::bf16, {rows, width}), .lse = m.unwritten(Dtype::f32, {s.batch, s.heads, s.sequence}),
            .qkv = m.random(Dtype::bf16, {rows, 3 * width}), .position = position_term(m, s, kind, head_size, s.sequence)};
}
Workload attention_forward(Memory& m, const Sizes& s, AttentionPosition kind, int64_t head_size) {
    const AttentionForward a = attention_arguments(m, s, kind, head_size);
    return {.flops = attention_flops(s, head_size), .workspace = m.context().device.attention.forward_workspace_bytes(a),
            .run = [=](Context& c) { c.device.attention.forward(c, a); }};
}
Workload attention_backward(Memory& m, const Sizes& s, AttentionPosition kind, int64_t head_size) {
    const AttentionForward a = attention_arguments(m, s, kind, head_size);
    AttentionBackward b{.dqkv = m.unwritten(Dtype::bf16, {s.batch * s.sequence, 3 * s.heads * head_size}),
                        .dout = m.random(Dtype::bf16, {s.batch * s.sequence, s.heads * head_size}), .out = a.out, .lse = a.lse, .qkv = a.qkv, .position = a.position};
    if (kind == AttentionPosition::relative) {
        b.dr = m.unwritten(Dtype::f32, {s.sequence, s.heads * head_size});
        b.dcontent_bias = m.zeros(Dtype::f32, {s.heads, head_size}), b.dposition_bias = m.zeros(Dtype::f32, {s.heads, head_size});
    }
    Context& ctx = m.context();
    ctx.workspace = {};
    ctx.workspace.size = ctx.device.attention.forward_workspace_bytes(a);
    ctx.workspace.base = m.unwritten(Dtype::f32, {int64_t(ctx.workspace.size / 4) + 1}).data;
    ctx.device.attention.forward(ctx, a);  // out and lse
    return {.flops = 2.5 * attention_flops(s, head_size), .workspace = ctx.device.attention.backward_workspace_bytes(b),
            .run = [=](Context& c) { c.device.attention.backward(c, b); }};
}

// One token for each of 8 sequences; what counts is the cache that it reads.
Workload attention_decode(Memory& m, const Sizes& s, AttentionPosition kind, int64_t head_size) {
    const int64_t sequences = 8, width = s.heads * head_size;
    const std::vector<int32_t> past(size_t(sequences), int32_t(s.cached));
    AttentionDecode d{.out = m.unwritten(Dtype::bf16, {sequences, width}), .keys = m.random(Dtype::bf16, {sequences, s.heads, s.cached + 1, head_size}),
                      .values = m.random(Dtype::bf16, {sequences, s.heads, s.cached + 1, head_size}), .qkv = m.random(Dtype::bf16, {sequences, 3 * width}),
                      .past = m.unwritten(Dtype::i32, {sequences}), .position = position_term(m, s, kind, head_size, s.cached + 1)};
    m.copy_from(d.past, past.data());
    return {.bytes = bytes({d.out, d.keys, d.values, d.qkv, d.position.r}), .workspace = m.context().device.attention.decode_workspace_bytes(d),
            .run = [=](Context& c) { c.device.attention.decode(c, d); }};
}

std::vector<NamedWorkload> make_workloads() {
    using M = Memory&;
    using S = const Sizes&;
    std::vector<NamedWorkload> all{
        {"layernorm forward", [](M m, S s) { return norm_forward(m, s, NormKind::layernorm, false); }},
        {"layernorm forward, after a sum", [](M m, S s) { return norm_forward(m, s, NormKind::layernorm, true); }},
        {"layernorm backward", [](M m, S s) { return norm_backward(m, s, NormKind::layernorm); }},
        {"rmsnorm forward, after a sum", [](M m, S s) { return norm_forward(m, s, NormKind::rmsnorm, true); }},
        {"rmsnorm backward", [](M m, S s) { return norm_backward(m, s, NormKind::rmsnorm); }},
        {"gelu forward", gelu_forward},
        {"gelu backward", gelu_backward},
        {"embedding forward", embedding_forward},
        {"embedding backward", embedding_backward},
        {"cross-entropy with gradient", cross_entropy},
        {"cross-entropy in two calls", cross_entropy_shard},
        {"adamw", adamw},
        {"add", add},
        {"cast f32 to bf16", cast},
        {"fill", fill},
        {"column sum", column_sum},
        {"sum of squares", sum_of_squares},
        {"product f32", [](M m, S s) { return product(m, s, Dtype::f32, Product::forward); }},
        {"product bf16, bias", [](M m, S s) { return product(m, s, Dtype::bf16, Product::forward); }},
        {"product bf16, bias, GeLU", [](M m, S s) { return product(m, s, Dtype::bf16, Product::forward_gelu); }},
        {"product bf16, dx", [](M m, S s) { return product(m, s, Dtype::bf16, Product::input_gradient); }},
        {"product bf16, dx, GeLU", [](M m, S s) { return product(m, s, Dtype::bf16, Product::input_gradient_gelu); }},
        {"product bf16, dW += and bias gradient", [](M m, S s) { return product(m, s, Dtype::bf16, Product::weight_gradient); }},
        {"product by the plain kernel", plain_product},
    };
    struct Scheme {
        const char* name;
        AttentionPosition kind;
    };
    for (const Scheme& scheme : {Scheme{"no positions", AttentionPosition::none}, {"ALiBi", AttentionPosition::alibi}, {"relative", AttentionPosition::relative}})
        for (int64_t head_size : {64, 128}) {
            const AttentionPosition kind = scheme.kind;
            const std::string what = text(", ", scheme.name, ", D ", head_size);
            all.push_back({"attention forward" + what, [=](M m, S s) { return attention_forward(m, s, kind, head_size); }});
            all.push_back({"attention backward" + what, [=](M m, S s) { return attention_backward(m, s, kind, head_size); }});
            all.push_back({"attention decode" + what, [=](M m, S s) { return attention_decode(m, s, kind, head_size); }});
        }
    return all;
}

}  // namespace

const std::vector<NamedWorkload>& workloads() {
    static const std::vector<NamedWorkload> all = make_workloads();
    return all;
}

}  // namespace clover::gpu
