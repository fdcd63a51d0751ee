// The backward of one head; see attention_backward.cpp.
#pragma once
#include "attention_head.h"

namespace clover::attention {

template <class T>
struct HeadGradients {
    Rows<T> dout, out;  // (T, D)
    const float* lse;   // (T)
    T *dq, *dk, *dv;    // (T, D), the rows `stride` apart
    int64_t stride;
    // Relative: this head's and sequence's part, overwritten.
    float* dr;            // (T, D)
    float *du, *dv_bias;  // (D)
};

size_t backward_scratch_bytes(const HeadShape&);
template <class T>
void backward_head(const Head<T>&, void* scratch, const HeadGradients<T>&);

}  // namespace clover::attention
