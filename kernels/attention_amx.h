// Heads of bf16 activations by AMX: bf16 operands, f32 sums, P and G rounded to bf16 as flash attention does on GPUs.
// The same functions as attention_head.h and attention_backward.h, of about the same structure.
#pragma once
#include "attention_backward.h"

namespace clover::attention::amx {

/// The program was compiled for AMX-BF16 and the kernel lets this process use it.
bool available();

size_t forward_scratch_bytes(const HeadShape&);
void forward_head(const Head<bf16>&, void* scratch, const HeadOutput<bf16>&);
size_t backward_scratch_bytes(const HeadShape&);
void backward_head(const Head<bf16>&, void* scratch, const HeadGradients<bf16>&);

}  // namespace clover::attention::amx

namespace clover::attention {

/// Which of the two works on a call's heads.
enum class Path : uint8_t { f32, amx };

/// Heads of no more than 1024 elements are cheaper without padding to tiles of 32 × 32.
inline Path path_of(Dtype activation, int64_t keys, int64_t size, bool portable) {
    return activation == Dtype::bf16 && keys * size > 1024 && !portable && amx::available() ? Path::amx : Path::f32;
}

inline size_t forward_scratch_bytes(Path path, const HeadShape& s) {
    return path == Path::amx ? amx::forward_scratch_bytes(s) : forward_scratch_bytes(s);
}
inline size_t backward_scratch_bytes(Path path, const HeadShape& s) {
    return path == Path::amx ? amx::backward_scratch_bytes(s) : backward_scratch_bytes(s);
}
template <class T>
void forward_head(Path path, const Head<T>& head, void* scratch, const HeadOutput<T>& to) {
    if constexpr (dtype_of<T> == Dtype::bf16)
        if (path == Path::amx) return amx::forward_head(head, scratch, to);
    forward_head(head, scratch, to);
}
template <class T>
void backward_head(Path path, const Head<T>& head, void* scratch, const HeadGradients<T>& grad) {
    if constexpr (dtype_of<T> == Dtype::bf16)
        if (path == Path::amx) return amx::backward_head(head, scratch, grad);
    backward_head(head, scratch, grad);
}

}  // namespace clover::attention
