// Precision recipes: which dtype each class of tensor is stored in, and how new parameters are rounded (Gopher, appendix C.2; BLOOM's BF16 optimizer).
//
//   recipe          parameters   the optimizer keeps   the forward pass reads                   activations
//   fp32            f32          -                     the parameters                           f32           Gopher (1)
//   mixed           f32          -                     a bf16 copy of matrices for the products bf16          Gopher below 7.1B
//   bf16            bf16         -                     the parameters                           bf16          Gopher (2): updates rounded to nearest
//   bf16-sr         bf16         -                     the parameters                           bf16          Gopher (3): updates rounded at random
//   bf16-master-sr  bf16         an f32 copy           its bf16, rounded at random              bf16          Gopher (4)
//   bf16-master     bf16         an f32 copy           its bf16, rounded to nearest             bf16          BLOOM
//   fp16            f16          an f32 copy           its f16, rounded to nearest              f16           with a dynamic loss scale
//
// Always f32: softmax, cross-entropy, norm statistics and the gradient norm; if not asked otherwise also Adam's moments, gradient accumulation
// over micro-batches and the reduction over data-parallel ranks.
#pragma once
#include "../kernels/optimizer.h"
#include "loss_scale.h"

namespace clover {

enum class Recipe : uint8_t { fp32, mixed, bf16, bf16_sr, bf16_master_sr, bf16_master, fp16 };
enum class Storage : uint8_t { f32, bf16 };
/// Classes of parameters. `embedding`: of tokens and positions; `gains`: of norms; `biases`: also those of norms and relative attention's u and v.
enum class ParameterClass : uint8_t { embedding, gains, biases, matrices };
constexpr int parameter_classes = 4;
enum class Only : uint8_t { all, embedding, gains, biases, matrices };

struct PrecisionConfig {
    Recipe recipe = Recipe::fp32;
    Storage accumulate = Storage::f32, reduce = Storage::f32, moments = Storage::f32;
    LossScaleConfig loss_scale = {};  // of recipe fp16
    Only only = Only::all;  // of recipes bf16 and bf16-sr: the class that follows them; the others follow bf16-master-sr
};

struct Precision {
    Dtype master;      // what the optimizer adds to
    Dtype copy;        // what the forward pass reads where that is not the master; the master's dtype: there is no copy
    Dtype matrix;      // weight matrices and embeddings as the forward pass reads them
    Dtype vector;      // norm gains, biases, u and v as the forward pass reads them
    Dtype activation;  // activations and their gradients
    Rounding rounding = Rounding::nearest;
    bool has_copy() const { return copy != master; }
    /// Its least numbers are too large for gradients: the loss is scaled.
    bool scales_loss() const { return activation == Dtype::f16; }
};

inline Dtype dtype_of_storage(Storage s) { return s == Storage::f32 ? Dtype::f32 : Dtype::bf16; }

inline Precision precision_of(const PrecisionConfig& c) {
    constexpr Dtype f32 = Dtype::f32, low = Dtype::bf16;
    const Dtype master = c.only == Only::all ? low : f32;  // of the recipes without an f32 copy
    switch (c.recipe) {
        case Recipe::fp32: return {f32, f32, f32, f32, f32};
        case Recipe::mixed: return {f32, low, low, f32, low};
        case Recipe::bf16: return {master, low, low, low, low};
        case Recipe::bf16_sr: return {master, low, low, low, low, Rounding::stochastic};
        case Recipe::bf16_master_sr: return {f32, low, low, low, low, Rounding::stochastic};
        case Recipe::bf16_master: return {f32, low, low, low, low};
        case Recipe::fp16: return {f32, Dtype::f16, Dtype::f16, Dtype::f16, Dtype::f16};
    }
    throw Error("unknown recipe");
}

/// Whether the f32 master of a parameter of this class holds only numbers of bf16.
inline bool is_coarse(const PrecisionConfig& c, ParameterClass of) { return c.only != Only::all && int(c.only) == int(of) + 1; }

}  // namespace clover
