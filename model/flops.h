// Floating point operations that a model asks for, and the matrix product peak they are compared with.
//
// Forward, per micro-batch of B sequences of T tokens (as Megatron-LM and Hoffmann et al. 2022, appendix F, count):
//   linear layers  2·B·T·L·(3·C·I + I·C + 2·C·F)      I = heads · head_size
//   attention      2·B·T·L·(2·T·I)                     QKᵀ and PV over all T keys, not only the causal half, as both sources count
//   relative       2·B·T·L·(T·I)                       q·r
//   logits         2·B·T·C·V
// Backward takes twice as much. The relative scheme's R W_k,R, once for the micro-batch, takes 2·T·L·C·I forward and the same
// backward, because R is fixed. Recomputation, norms, softmax and the optimizer do not count.
#pragma once
#include <memory>

#include "arena.h"
#include "config.h"

namespace clover {

double training_flops(const ModelConfig& c, int64_t batch, int64_t sequence);

/// The speed of a square product of random numbers, in the dtype of its inputs, f32 sums: of size 2048 on the CPU (50 MB), 8192 on a
/// GPU (0.4 to 0.8 GB), or smaller where that would take long.
class MatmulPeak {
public:
    MatmulPeak(const Device& device, Dtype dtype);
    /// FLOP/s, the median of `runs` products after two that do not count.
    double measure(int runs);
    size_t bytes() const;
    int64_t size() const;
    ~MatmulPeak();

private:
    struct Product;
    std::unique_ptr<Product> product_;
};

}  // namespace clover
