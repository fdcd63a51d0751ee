// The parameter table: each parameter of a model described once. Allocation, initialisation, the optimizer, the gradient norm,
// checkpoints and the printed summary walk it.
//
// All parameters lie in one flat space of elements: parameter p is elements [p.offset, p.offset + p.count) of every arena
// (f32 values, bf16 copies, gradients, moments). Offsets are multiples of 64 elements; the padding between stays zero.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "../kernels/device.h"
#include "arena.h"
#include "config.h"

namespace clover {

enum class Role : uint8_t {
    token_embedding, position_embedding, embedding_norm_weight, embedding_norm_bias,
    norm1_weight, norm1_bias, qkv_weight, qkv_bias, relative_weight, content_bias, position_bias,
    attention_out_weight, attention_out_bias, norm2_weight, norm2_bias, ffn_up_weight, ffn_up_bias, ffn_down_weight, ffn_down_bias,
    final_norm_weight, final_norm_bias, head_weight,
};

enum class Initial : uint8_t { zeros, ones, normal, residual, embedding };

struct Parameter {
    Role role;
    int64_t layer;               // -1 outside the blocks
    std::string name;            // Hugging Face's, without "transformer."
    std::vector<int64_t> shape;  // matrices (out, in)
    int tensor_axis;             // split over tensor-parallel ranks along this axis; -1: replicated
    Initial initial;
    bool matrix;                 // of the matrix class of the recipes: weight matrices and embeddings
    bool decay;                  // weight decay applies: to all but biases and norm gains
    ParameterClass kind;         // the same, finer: for what the run log tells and precision.only
    int64_t offset = 0, count = 0;
};

class ParameterTable {
public:
    explicit ParameterTable(const ModelConfig& config);
    const std::vector<Parameter>& all() const { return all_; }
    /// Null where the model has no such parameter. With tied embeddings Role::head_weight is the token embedding.
    const Parameter* find(Role role, int64_t layer = -1) const;
    /// Number of parameters, without padding; a tied embedding counts once.
    int64_t parameter_count() const { return parameters_; }
    /// Elements of the flat space, with padding.
    int64_t element_count() const { return elements_; }

private:
    static constexpr int roles = int(Role::head_weight) + 1;
    std::vector<Parameter> all_;
    std::vector<int> by_role_;  // [layer + 1][role], -1: none
    int64_t parameters_ = 0, elements_ = 0;
    bool tied_;
};

/// A parameter, or what the optimizer keeps of one, under the name that checkpoints store it by.
struct NamedTensor {
    std::string name;
    Tensor values;  // of the parameter's shape
};

/// The arenas of one rank over the flat space.
class Parameters {
public:
    /// Places the arenas: values always; gradients and moments only for training.
    Parameters(const ParameterTable& table, const Config& config, bool training, Arena& parameters, Arena& gradients, Arena& optimizer);

    const ParameterTable& table;
    const Precision precision;
    Tensor master;    // (elements) f32 or bf16: what the optimizer updates
    Tensor copy;      // (elements) bf16 or f16: what the forward pass reads where the recipe says so, else absent
    Tensor grad;      // (elements) f32
    Tensor low_grad;  // (elements) bf16: sums over micro-batches, or what ranks exchange, where precision.accumulate or .reduce says so, else absent
    Tensor m, v;      // (elements) f32 or bf16: Adam's moments; adafactor has m with optimizer.momentum alone
    /// Of adafactor (kernels/adafactor.h), else absent.
    struct Factored {
        std::optional<AdafactorLayout> layout;
        Tensor factors, tiles, state, sums, squares;
    } factored;
    Tensor changes;   // (parameters, 3) f32: what the last step that was asked for it did to each (kernels/optimizer.h)

    /// Master and copy as the optimizer takes them at `step`.
    Weights weights(int64_t step) const;
    /// What a checkpoint stores, once the arenas have their memory.
    std::vector<NamedTensor> values() const;
    std::vector<NamedTensor> optimizer_state() const;

    /// What forward and backward read; an absent tensor if the model has no such parameter.
    Tensor value(Role role, int64_t layer = -1) const;
    Tensor gradient(Role role, int64_t layer = -1) const;
    static Tensor slice(const Tensor& arena, const Parameter& p);

    /// Draws every parameter from (seed, name, element): the same for every mesh and device.
    void initialise(Context& ctx, const ModelConfig& config, uint64_t seed);
    /// The copy as the update of `step` left it (0: the initial one), after the master was written by other means.
    void refresh(Context& ctx, int64_t step);

private:
    Tensor segments_;  // (parameters, segment_words) i32
    std::vector<Segment> host_segments_;
    uint64_t seed_;
    std::vector<NamedTensor> named(const std::string& prefix, const Tensor& arena) const;
    void place_optimizer(const Config& config, Arena& optimizer);
    void append_factored_state(std::vector<NamedTensor>& to) const;
};

/// Copies values (to.count()) to the device's tensor, rounded to its dtype.
void upload_rounded(Context& ctx, Tensor to, const float* values);

}  // namespace clover
