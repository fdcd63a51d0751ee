#include "model.h"

#include <algorithm>

#include "../kernels/alibi.h"
#include "../kernels/sinusoid.h"
#include "linear.h"

namespace clover {
namespace {

// A chunk of logits in f32 may take this much, but has at least 256 rows: each chunk reads the whole head weight, which pays only
// over many rows.
constexpr int64_t logits_chunk_bytes = int64_t{64} << 20;

int64_t choose_head_rows(int64_t rows, int64_t vocab) {
    const int64_t fit = logits_chunk_bytes / (4 * vocab), most = std::max<int64_t>(256, fit);
    const int64_t chunks = std::max<int64_t>((rows + most - 1) / most, rows > fit ? 2 : 1);
    return std::min(rows, ((rows + chunks - 1) / chunks + 15) / 16 * 16);
}

Tensor values_at(Tensor t, int64_t first, int64_t n) { return t.reshaped({t.count(), 1}).row_range(first, n).reshaped({n}); }
Tensor first_values(Tensor t, int64_t n) { return t.present() ? values_at(t, 0, n) : t; }

}  // namespace

Model::Model(const ModelConfig& config, const Parameters& parameters, ModelShape shape, Arena& arena)
    : config_(config), parameters_(parameters), shape_(shape), rows_(shape.batch * shape.sequence),
      head_rows_(shape.cache ? 1 : choose_head_rows(rows_, config.vocab)),
      gradient_rows_(parameters.precision.activation == Dtype::f32 ? head_rows_ : std::min(rows_, 2 * head_rows_)),
      blocks_(size_t(config.layers)), caches_(size_t(shape.cache ? config.layers : 0)),
      shared_{.config = config, .parameters = parameters, .batch = shape.batch, .sequence = shape.sequence} {
    const Dtype act = parameters.precision.activation;
    const int64_t n = rows_, c = config.hidden, inner = config.heads * config.head_size;
    if (shape.documents) {  // so that no step allocates
        shared_.documents.reserve(size_t(rows_));
        position_documents_.reserve(size_t(rows_));
    }
    // Without backward every block may use the memory of the first.
    place_block(arena, blocks_[0]);
    for (size_t l = 1; shape.training && l < blocks_.size(); l++) place_block(arena, blocks_[l]);
    for (BlockCache& cache : caches_) {
        arena.place(cache.keys, act, {shape.batch, config.heads, shape.cache, config.head_size});
        arena.place(cache.values, act, {shape.batch, config.heads, shape.cache, config.head_size});
        if (config.position == Position::relative) arena.place(cache.relative, act, {shape.cache, inner});
    }
    if (config.position == Position::alibi) arena.place(shared_.slopes, Dtype::f32, {config.heads});
    if (config.position == Position::relative || config.position == Position::sinusoidal)
        arena.place(shared_.sinusoids, act, {std::max(shape.sequence, shape.cache), c});
    if (config.embedding_norm) {
        arena.place(embedding_, act, {n, c});
        if (config.norm == NormKind::layernorm) arena.place(embedding_mean_, Dtype::f32, {n});
        arena.place(embedding_rstd_, Dtype::f32, {n});
    }
    arena.place(shared_.branch, act, {n, c});
    arena.place(final_input_, act, {n, c});
    arena.place(final_norm_, act, {n, c});
    if (config.norm == NormKind::layernorm) arena.place(final_mean_, Dtype::f32, {n});
    arena.place(final_rstd_, Dtype::f32, {n});
    arena.place(logits_, Dtype::f32, {head_rows_, config.vocab});
    if (!shape.training) return;
    if (act != Dtype::f32) arena.place(dlogits_, act, {gradient_rows_, config.vocab});
    arena.place(dfinal_, act, {n, c});
    arena.place(shared_.dstream, act, {n, c});
    arena.place(shared_.dnorm, act, {n, c});
    arena.place(shared_.dattention, act, {n, inner});
    arena.place(shared_.dqkv, act, {n, 3 * inner});
    arena.place(shared_.dffn, act, {n, config.ffn});
    if (config.position == Position::relative) {
        arena.place(shared_.drelative, Dtype::f32, {shape.sequence, inner});
        arena.place(shared_.drelative_cast, act, {shape.sequence, inner});
        if (shape.documents) arena.place(shared_.drelative_part, Dtype::f32, {shape.sequence, inner});
    }
}

void Model::place_block(Arena& arena, BlockActivations& a) {
    const Dtype act = parameters_.precision.activation;
    const int64_t n = rows_, c = config_.hidden, inner = config_.heads * config_.head_size;
    const bool mean = config_.norm == NormKind::layernorm;
    arena.place(a.input, act, {n, c});
    arena.place(a.norm1, act, {n, c});
    if (mean) arena.place(a.mean1, Dtype::f32, {n});
    arena.place(a.rstd1, Dtype::f32, {n});
    arena.place(a.qkv, act, {n, 3 * inner});
    if (config_.position == Position::relative && shape_.cache == 0) arena.place(a.relative, act, {shape_.sequence, inner});
    arena.place(a.attention, act, {n, inner});
    arena.place(a.lse, Dtype::f32, {shape_.batch, config_.heads, shape_.sequence});
    arena.place(a.middle, act, {n, c});
    arena.place(a.norm2, act, {n, c});
    if (mean) arena.place(a.mean2, Dtype::f32, {n});
    arena.place(a.rstd2, Dtype::f32, {n});
    arena.place(a.ffn_pre, act, {n, config_.ffn});
    arena.place(a.ffn, act, {n, config_.ffn});
}

void Model::prepare(Context& ctx) {
    const Device& k = ctx.device;
    for (size_t l = 1; !shape_.training && l < blocks_.size(); l++) blocks_[l] = blocks_[0];
    if (shared_.slopes.present()) {
        std::vector<float> host(size_t(config_.heads));
        alibi_slopes(config_.heads, host.data());
        k.memory.from_host(ctx, shared_.slopes.data, host.data(), host.size() * sizeof(float));
    }
    if (shared_.sinusoids.present()) {
        const Tensor t = shared_.sinusoids;
        std::vector<float> host(size_t(t.count()));
        sinusoid(t.rows(), t.columns(), host.data());
        upload_rounded(ctx, t, host.data());
    }
}

size_t Model::workspace_bytes(Context& ctx) const {
    const Device& k = ctx.device;
    const BlockCache* cache = caches_.empty() ? nullptr : &caches_[0];
    size_t most = block_workspace_bytes(ctx, shared_, blocks_[0], shape_.training, cache);
    if (cache) {
        BlockShared one = shared_;
        one.branch = shared_.branch.row_range(0, shape_.batch);
        most = std::max(most, block_workspace_bytes(ctx, one, first_rows(blocks_[0], shape_.batch), false, cache));
        if (cache->relative.present())
            most = std::max(most, k.gemm.workspace_bytes(ctx, {.c = cache->relative, .a = shared_.sinusoids.row_range(0, shape_.cache),
                                                               .b = parameters_.value(Role::relative_weight, 0), .transpose_b = true}));
    }
    const Tensor w = parameters_.value(Role::head_weight);
    for (int64_t r : {head_rows_, rows_ % head_rows_, int64_t{1}})
        if (r > 0)
            most = std::max(most, k.gemm.workspace_bytes(ctx, {.c = logits_.row_range(0, r), .a = final_norm_.row_range(0, r), .b = w,
                                                               .transpose_b = true}));
    for (int64_t r : {gradient_rows_, rows_ % gradient_rows_}) {
        if (r == 0 || !shape_.training) continue;
        const Tensor x = final_norm_.row_range(0, r), dy = dlogits_.present() ? dlogits_.row_range(0, r) : logits_.row_range(0, r);
        most = std::max(most, k.gemm.workspace_bytes(ctx, {.c = x, .a = dy, .b = w}));
        for (bool accumulate : {false, true})
            most = std::max(most, k.gemm.workspace_bytes(ctx, {.c = parameters_.gradient(Role::head_weight), .a = dy, .b = x,
                                                               .transpose_a = true, .accumulate = accumulate}));
    }
    if (!shape_.training) return most;
    most = std::max(most, k.norm.backward_workspace_bytes(final_norm_backward()));
    most = std::max(most, k.embedding.backward_workspace_bytes(embedding_backward(Tensor(nullptr, Dtype::i32, {rows_}))));
    return std::max(most, k.elementwise.sum_of_squares_workspace_bytes(parameters_.grad));
}

void Model::embed(Context& ctx, Tensor ids, Tensor past) {
    if (position_documents_.empty()) return embed_rows(ctx, ids, past, {0, ids.count()}, ids.count() / shape_.batch);
    for (RowRange rows : position_documents_) embed_rows(ctx, ids, past, rows, rows.count);
}

void Model::embed_rows(Context& ctx, Tensor ids, Tensor past, RowRange rows, int64_t sequence) {
    const Tensor positions = config_.position == Position::sinusoidal ? shared_.sinusoids : parameters_.value(Role::position_embedding);
    const Tensor x = blocks_[0].input.row_range(rows.first, rows.count);
    EmbeddingForward lookup{.out = x, .ids = values_at(ids, rows.first, rows.count), .table = parameters_.value(Role::token_embedding), .positions = positions,
                            .sequence = sequence, .past = past};
    if (!config_.embedding_norm) return ctx.device.embedding.forward(ctx, lookup);
    const Tensor mean = embedding_mean_.present() ? values_at(embedding_mean_, rows.first, rows.count) : embedding_mean_;
    const NormForward norm{.kind = config_.norm, .eps = float(config_.norm_eps), .y = x, .mean = mean,
                           .rstd = values_at(embedding_rstd_, rows.first, rows.count), .x = embedding_.row_range(rows.first, rows.count),
                           .weight = parameters_.value(Role::embedding_norm_weight), .bias = parameters_.value(Role::embedding_norm_bias)};
    lookup.out = norm.x, lookup.norm = &norm;
    ctx.device.embedding.forward(ctx, lookup);
}

void Model::final_norm(Context& ctx, Tensor middle, Tensor branch) {
    const int64_t n = middle.rows();
    ctx.device.norm.forward(ctx, {.kind = config_.norm, .eps = float(config_.norm_eps), .y = final_norm_.row_range(0, n),
                                  .sum = final_input_.row_range(0, n), .mean = first_values(final_mean_, n),
                                  .rstd = first_values(final_rstd_, n), .x = middle, .delta = branch,
                                  .weight = parameters_.value(Role::final_norm_weight), .bias = parameters_.value(Role::final_norm_bias)});
}

void Model::set_documents(const std::vector<RowRange>& documents, bool attention, bool positions) {
    CLOVER_CHECK(shape_.documents || documents.empty());
    shared_.documents.clear();
    position_documents_.clear();
    if (attention) shared_.documents.assign(documents.begin(), documents.end());
    if (positions) position_documents_.assign(documents.begin(), documents.end());
}

void Model::forward(Context& ctx, Tensor ids) {
    embed(ctx, ids, {});
    block_forward(ctx, shared_, 0, blocks_[0], blocks_[0].input, {});
    for (size_t l = 1; l < blocks_.size(); l++) block_forward(ctx, shared_, int64_t(l), blocks_[l], blocks_[l - 1].middle, shared_.branch);
    final_norm(ctx, blocks_.back().middle, shared_.branch);
}

void Model::start_generation(Context& ctx) {
    for (size_t l = 0; l < caches_.size(); l++)
        if (caches_[l].relative.present())
            linear_forward(ctx, caches_[l].relative, shared_.sinusoids.row_range(0, shape_.cache),
                           parameters_.value(Role::relative_weight, int64_t(l)), {});
}

void Model::forward_cached(Context& ctx, Tensor ids, Tensor past) {
    CLOVER_CHECK(!caches_.empty() && !shape_.training);
    // All blocks share one set of activations; of it the first rows are used.
    BlockActivations a = first_rows(blocks_[0], ids.count());
    BlockShared s = shared_;
    s.branch = shared_.branch.row_range(0, ids.count());
    embed(ctx, ids, past);
    block_forward(ctx, s, 0, a, a.input, {}, &caches_[0], past);
    for (size_t l = 1; l < blocks_.size(); l++) block_forward(ctx, s, int64_t(l), a, a.middle, s.branch, &caches_[l], past);
    final_norm(ctx, a.middle, s.branch);
}

void Model::logits(Context& ctx, Tensor out, int64_t first) {
    linear_forward(ctx, out, final_norm_.row_range(first, out.rows()), parameters_.value(Role::head_weight), {});
}

void Model::loss(Context& ctx, Tensor losses, Tensor targets) {
    for (int64_t first = 0; first < rows_; first += head_rows_) {
        const int64_t r = std::min(head_rows_, rows_ - first);
        const Tensor y = logits_.row_range(0, r);
        logits(ctx, y, first);
        ctx.device.cross_entropy.run(ctx, {.loss = values_at(losses, first, r), .logits = y,
                                           .targets = values_at(targets, first, r)});
    }
}

void Model::loss_backward(Context& ctx, Tensor losses, Tensor targets, float scale, bool fresh) {
    const Tensor w = parameters_.value(Role::head_weight), dw = parameters_.gradient(Role::head_weight);
    for (int64_t first = 0; first < rows_; first += gradient_rows_) {
        const int64_t n = std::min(gradient_rows_, rows_ - first);
        for (int64_t done = 0; done < n; done += head_rows_) {
            const int64_t r = std::min(head_rows_, n - done);
            const Tensor y = logits_.row_range(0, r);
            logits(ctx, y, first + done);
            ctx.device.cross_entropy.run(ctx, {.loss = values_at(losses, first + done, r), .dlogits = dlogits_.present() ? dlogits_.row_range(done, r) : y,
                                               .logits = y, .targets = values_at(targets, first + done, r), .scale = scale});
        }
        linear_backward(ctx, {.dx = dfinal_.row_range(first, n), .dw = dw, .dy = (dlogits_.present() ? dlogits_ : logits_).row_range(0, n),
                              .x = final_norm_.row_range(first, n), .w = w, .fresh = fresh && first == 0});
    }
    ctx.device.norm.backward(ctx, final_norm_backward());
}

NormBackward Model::final_norm_backward() const {
    return {.kind = config_.norm, .dx = shared_.dstream, .dweight = parameters_.gradient(Role::final_norm_weight),
            .dbias = parameters_.gradient(Role::final_norm_bias), .dy = dfinal_, .x = final_input_,
            .weight = parameters_.value(Role::final_norm_weight), .mean = final_mean_, .rstd = final_rstd_};
}

NormBackward Model::embedding_norm_backward() const {
    return {.kind = config_.norm, .dx = shared_.dnorm, .dweight = parameters_.gradient(Role::embedding_norm_weight),
            .dbias = parameters_.gradient(Role::embedding_norm_bias), .dy = shared_.dstream, .x = embedding_,
            .weight = parameters_.value(Role::embedding_norm_weight), .mean = embedding_mean_, .rstd = embedding_rstd_};
}

EmbeddingBackward Model::embedding_backward(Tensor ids) const {
    return {.dtable = parameters_.gradient(Role::token_embedding), .dpositions = parameters_.gradient(Role::position_embedding),
            .dout = config_.embedding_norm ? shared_.dnorm : shared_.dstream, .ids = ids, .sequence = shape_.sequence};
}

void Model::backward(Context& ctx, Tensor ids, bool fresh) {
    for (size_t l = blocks_.size(); l-- > 0;) block_backward(ctx, shared_, int64_t(l), blocks_[l], fresh);
    if (config_.embedding_norm) ctx.device.norm.backward(ctx, embedding_norm_backward());
    embed_backward(ctx, ids);
}

void Model::embed_backward(Context& ctx, Tensor ids) {
    const EmbeddingBackward all = embedding_backward(ids);
    if (position_documents_.empty()) return ctx.device.embedding.backward(ctx, all);
    for (RowRange rows : position_documents_) {
        EmbeddingBackward one = all;
        one.dout = all.dout.row_range(rows.first, rows.count);
        one.ids = values_at(ids, rows.first, rows.count);
        one.sequence = rows.count;
        ctx.device.embedding.backward(ctx, one);
    }
}

void Model::zero_gradients(Context& ctx) {
    for (const Parameter& p : parameters_.table.all()) {
        // The first product into a weight's gradient overwrites it; a tied embedding's is the head's.
        const bool overwritten = p.role == Role::token_embedding ? config_.tie_embeddings : p.matrix && p.role != Role::position_embedding;
        if (!overwritten) ctx.device.elementwise.fill(ctx, Parameters::slice(parameters_.grad, p), 0);
    }
}

}  // namespace clover
