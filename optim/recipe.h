// Precision recipes: which dtype each class of tensor is stored in (Gopher, appendix C.2; BLOOM's BF16 optimizer).
//
//   recipe       parameters   forward copies                        activations
//   fp32         f32          none: the parameters themselves       f32
//   mixed        f32          bf16 of matrices, for the products    bf16         Gopher below 7.1B
//   bf16-master  f32 master   bf16 of everything                    bf16         BLOOM
//
// Always f32: softmax, cross-entropy, norm statistics, Adam's moments, gradient accumulation and the gradient norm.
#pragma once
#include "../kernels/tensor.h"

namespace clover {

enum class Recipe : uint8_t { fp32, mixed, bf16_master };

struct Precision {
    Dtype matrix;      // weight matrices and embeddings as the forward pass reads them
    Dtype vector;      // norm gains, biases, u and v as the forward pass reads them
    Dtype activation;  // activations and their gradients
};

inline Precision precision_of(Recipe recipe) {
    switch (recipe) {
        case Recipe::fp32: return {Dtype::f32, Dtype::f32, Dtype::f32};
        case Recipe::mixed: return {Dtype::bf16, Dtype::f32, Dtype::bf16};
        case Recipe::bf16_master: return {Dtype::bf16, Dtype::bf16, Dtype::bf16};
    }
    throw Error("unknown recipe");
}

}  // namespace clover
