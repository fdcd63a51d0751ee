// The table of CUDA attention: each call goes to the fastest kernels that take its shapes. All of them check the arguments as the CPU does.
#include <algorithm>

#include "attention_cuda.h"

namespace clover {
namespace {

size_t plain_forward_workspace_bytes(const AttentionForward& a) {
    attention::check(a);
    return 0;
}

size_t forward_workspace_bytes(const AttentionForward& a) {
    attention::check(a);
    return fast_forward_supports(a) ? fast_forward_workspace_bytes(a) : plain_forward_workspace_bytes(a);
}
void forward(Context& ctx, const AttentionForward& a) {
    attention::check(a);
    fast_forward_supports(a) ? attention_forward_fast(ctx, a) : attention_forward_plain(ctx, a);
}

/// Memory that is not there yet may turn out to be aligned for the plain kernels alone.
size_t backward_workspace_bytes(const AttentionBackward& a) {
    const size_t plain = attention_backward_plain_workspace_bytes(a);
    return fast_backward_supports(a) ? std::max(plain, fast_backward_workspace_bytes(a)) : plain;
}
void backward(Context& ctx, const AttentionBackward& a) {
    attention::check(a);
    fast_backward_supports(a) ? attention_backward_fast(ctx, a) : attention_backward_plain(ctx, a);
}

}  // namespace

const AttentionOps attention_cuda = {forward_workspace_bytes,          forward,              backward_workspace_bytes, backward,
                                     attention_decode_workspace_bytes, attention_decode_cuda};
const AttentionOps attention_cuda_plain = {plain_forward_workspace_bytes,            attention_forward_plain,
                                           attention_backward_plain_workspace_bytes, attention_backward_plain,
                                           attention_decode_workspace_bytes,         attention_decode_cuda};

}  // namespace clover
