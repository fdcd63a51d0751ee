// The table of CUDA attention: the arguments are checked as on the CPU, and each call goes to the fastest kernels that take its shapes.
#include "attention_cuda.h"

namespace clover {
namespace {

size_t forward_workspace_bytes_plain(const AttentionForward& a) {
    attention::check(a);
    return 0;
}

}  // namespace

const AttentionOps attention_cuda_plain = {forward_workspace_bytes_plain,           attention_forward_plain,
                                           attention_backward_plain_workspace_bytes, attention_backward_plain,
                                           nullptr, nullptr};
const AttentionOps attention_cuda = attention_cuda_plain;

}  // namespace clover
