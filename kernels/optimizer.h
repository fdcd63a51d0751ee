// What the optimizers share: which elements of the flat arenas are which parameter, and how a new value is stored.
//
// An optimizer adds to the master. Where the recipe has a copy, the forward pass reads that, and the master is f32. What is stored in bf16
// (the copy, or else the master) is rounded to nearest, or at random:
//   P(up) = (x − x↓) / (x↑ − x↓),  x↓ and x↑ the neighbours of x in bf16 (Gupta et al. 2015; Rae et al. 2021, appendix C.2),
// so that the mean of many is x. As bits: those of x plus a number drawn from 0 … 65535, the lower 16 then cut off. A value that bf16 holds never
// moves; NaN and ±∞ stay; a finite x stays finite. The number is half a word of random_bits(seed, rounding, key, step, e / 8), RoundingKey says which,
// for element e of the whole parameter: the same for every device, number of threads and mesh, and after a resume.
#pragma once
#include "context.h"

namespace clover {

enum class Rounding : uint8_t { nearest, stochastic };

/// A parameter, or the part of it that this rank updates.
struct Segment {
    int64_t first, count;      // elements [first, first + count) of the arenas
    float weight_decay = 0;
    uint32_t key = 0;          // stands for the parameter in random numbers
    int64_t element = 0;       // place of the first in the whole parameter, a multiple of 8
    int64_t columns = 0;       // of the whole parameter where it is a matrix, else 0
    uint32_t coarse = 0;       // 1: an f32 master holds only numbers of bf16, as if it were stored in that
    uint32_t index = 0;        // its place among the segments; the loops over them set it
};
static_assert(sizeof(Segment) == 48);
constexpr int64_t segment_words = sizeof(Segment) / sizeof(int32_t);

struct Weights {
    Tensor master;         // (n) f32 or bf16
    Tensor copy = {};      // (n) bf16 or f16, of an f32 master; absent: the forward pass reads the master
    Tensor segments;       // (S, segment_words) i32: S Segment in the device's memory, ascending, without overlap; elements between stay as they are
    Tensor changes = {};   // (S, 3) f32, or absent: receives of each segment the number of elements whose master is the same as before, Σ (Δw)², Σ w² (before); zeros where nothing changes at all
    Rounding rounding = Rounding::nearest;  // to bf16
    uint64_t seed = 0;     // of random rounding, as is the step
    int64_t step = 0;
};

/// All but the segments themselves, which lie in the device's memory.
inline void check(const Weights& w) {
    const int64_t n = w.master.count();
    CLOVER_CHECK(w.master.has_shape({n}) && (w.master.dtype == Dtype::f32 || w.master.dtype == Dtype::bf16), w.master.describe());
    if (w.copy.present()) CLOVER_CHECK(w.copy.has_shape({n}) && bytes_of(w.copy.dtype) == 2 && w.master.dtype == Dtype::f32, w.copy.describe());
    CLOVER_CHECK(w.segments.rank == 2 && w.segments.shape[1] == segment_words && w.segments.dtype == Dtype::i32, w.segments.describe());
    if (w.changes.present()) CLOVER_CHECK(w.changes.has_shape({w.segments.shape[0], 3}) && w.changes.dtype == Dtype::f32, w.changes.describe());
}
/// Whether a segment lies in arenas of n elements.
CLOVER_HD inline bool fits(const Segment& s, int64_t n) {
    return s.first >= 0 && s.count >= 0 && s.count <= n - s.first && s.element >= 0 && s.element % 8 == 0;
}

struct OptimizerOps {
    size_t (*refresh_workspace_bytes)(const Weights&);
    /// Stores the master anew as an update would that changes nothing: the copy is then what the update of that step left.
    void (*refresh)(Context&, const Weights&);
};
extern const OptimizerOps optimizer_cpu, optimizer_cuda;

/// by_dtype for what an optimizer keeps: f32 or bf16.
template <class F>
void by_storage(Dtype d, F&& f) {
    CLOVER_CHECK(d == Dtype::f32 || d == Dtype::bf16, "dtype ", name_of(d));
    d == Dtype::f32 ? f(float{}) : f(bf16{});
}

/// What a step did to a parameter, or to a part of it: a row of Weights::changes.
struct Change {
    float unchanged = 0, step_squares = 0, weight_squares = 0;
};

}  // namespace clover
