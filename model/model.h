// The whole model: embedding, blocks, final norm, head. Forward is a plain list of calls, backward its mirror.
//
// The head never holds the (B·T, V) logits: it walks over chunks of rows, and in training computes each chunk's loss, its
// gradient and the products of the gradient while the chunk is at hand.
#pragma once
#include <vector>

#include "block.h"

namespace clover {

struct ModelShape {
    int64_t batch;     // B: sequences of a micro-batch
    int64_t sequence;  // T: positions
    bool training;     // keep what backward needs
    int64_t cache = 0; // capacity of the key/value cache in tokens; 0: no cache
    bool documents = false;  // set_documents() may be called
};

/// The forward pass's memory for one shape, over shared parameters. Tensors are placed in `activations`, scratch is asked of
/// the caller (workspace_bytes).
class Model {
public:
    Model(const ModelConfig& config, const Parameters& parameters, ModelShape shape, Arena& activations);
    Model(const Model&) = delete;

    /// Fills the fixed tables; call once after the arena is committed.
    void prepare(Context& ctx);
    /// Scratch that any call below takes. Makes the matrix product plans as well, so that a step makes none.
    size_t workspace_bytes(Context& ctx) const;

    /// The documents in the rows of the next forward and backward. `attention`: it stays within each; `positions`: learned and sinusoidal positions begin
    /// anew at each. Needs ModelShape::documents.
    void set_documents(const std::vector<RowRange>& documents, bool attention, bool positions);
    /// ids (B·T) i32. Leaves the final norm's output for the head.
    void forward(Context& ctx, Tensor ids);
    /// With a cache: ids (B·Q), Q = 1 or T, new tokens of each sequence follow past[b] (B) i32 cached ones; their keys and values
    /// are added. Call start_generation() once before, whenever the parameters have changed.
    void forward_cached(Context& ctx, Tensor ids, Tensor past);
    void start_generation(Context& ctx);
    /// Negative log-likelihoods (B·T) f32 of targets (B·T) i32; 0 where the target is negative.
    void loss(Context& ctx, Tensor losses, Tensor targets);
    /// loss(), the gradients of the head, and the gradient of the stream entering it, for scale · Σ losses.
    void loss_backward(Context& ctx, Tensor losses, Tensor targets, float scale, bool fresh);
    /// The rest of backward; `ids` as in forward.
    void backward(Context& ctx, Tensor ids, bool fresh);
    /// Logits (R, V) f32 of rows [first, first + R) of the last forward.
    void logits(Context& ctx, Tensor logits, int64_t first);

    /// At the start of a step: zeroes the gradients that backward adds to even in the fresh micro-batch.
    void zero_gradients(Context& ctx);

    const ModelConfig& config() const { return config_; }
    const Parameters& parameters() const { return parameters_; }
    const ModelShape& shape() const { return shape_; }
    /// Rows of logits that the head holds at a time.
    int64_t head_rows() const { return head_rows_; }

private:
    const ModelConfig& config_;
    const Parameters& parameters_;
    ModelShape shape_;
    int64_t rows_, head_rows_;
    std::vector<RowRange> position_documents_;  // where positions begin anew; empty: with each sequence
    int64_t gradient_rows_;  // rows of dlogits at a time: in bf16 two chunks of logits fit where one in f32 does
    std::vector<BlockActivations> blocks_;
    std::vector<BlockCache> caches_;
    BlockShared shared_;
    Tensor embedding_, embedding_mean_, embedding_rstd_;  // before the embedding norm, where there is one
    Tensor final_input_, final_norm_, final_mean_, final_rstd_;
    Tensor logits_;            // (head_rows, V) f32
    Tensor dlogits_;           // (gradient_rows, V) bf16; absent in f32, where the gradient takes the place of the logits
    Tensor dfinal_;            // (N, C)

    void place_block(Arena& arena, BlockActivations& a);
    void embed(Context& ctx, Tensor ids, Tensor past);
    void embed_rows(Context& ctx, Tensor ids, Tensor past, RowRange rows, int64_t sequence);
    void final_norm(Context& ctx, Tensor middle, Tensor branch);
    NormBackward final_norm_backward() const;
    NormBackward embedding_norm_backward() const;
    EmbeddingBackward embedding_backward(Tensor ids) const;
    void embed_backward(Context& ctx, Tensor ids);
};

}  // namespace clover
