// Adafactor (Shazeer & Stern 2018), as its authors' code has it (tensor2tensor utils/adafactor.py, Mesh-TensorFlow, T5X), over all parameters at once.
// Of a matrix only the row and column means of the second moment are kept. With g = grad · *grad_scale and β2 = 1 − t^−decay_exponent, so that the first
// step needs no bias correction:
//   matrix   R_i = β2 R_i + (1 − β2) mean_j (g_ij² + eps1),   C_j = β2 C_j + (1 − β2) mean_i (g_ij² + eps1)
//            u_ij = g_ij / √(R_i C_j / mean(R))
//   else     V = β2 V + (1 − β2) (g² + eps1),   u = g / √V
//   α = lr, with parameter_scale lr · max(eps2, rms(w))
//   s = α u / max(1, rms(u) / clip)                 rms over the whole parameter
//   m = β1 m + (1 − β1) s,  s = m                   if there is a momentum
//   w = w − s − lr · decay · w                      (T5X decays without lr; here as AdamW does)
// in f32, whatever the weights are stored in. A matrix is factored if both sides have min_factored elements; 0: every matrix, as tensor2tensor does.
//
// Ranks that each own parts of the parameters (ZeRO) have segments for all of them, some empty, and add up over ranks, between the three calls
//   statistics → sums → squares → squares → update
// what the one before the arrow left in the tensor between them. One rank calls them one after the other. R and C are then the same on every rank, V and m are
// those of its own elements. Sums are added in an order that the sizes alone decide.
// Where *grad_scale is not a number nothing changes, as with AdamW.
#pragma once
#include <cmath>
#include <vector>

#include "optimizer.h"

namespace clover {

/// Where the statistics of a segment lie, and how a factored one is cut for its sums: into tiles of `tile_rows` rows and at most 1024 columns. A tile's row sums
/// lie at partials + slab · covered_rows + its place among the rows, its column sums at partials + slabs · covered_rows + row tile · columns + column.
struct Factors {
    int64_t total;                         // elements of the whole parameter
    int64_t state;                         // place in Adafactor::state of R (rows) and C (columns), or of V (count)
    int64_t rows = 0, columns = 0;         // of the whole parameter where it is factored, else 0
    int64_t sums = 0;                      // place in Adafactor::sums of what its rows and columns sum up to, later of their factors in u; ascending
    int64_t first_row = 0, covered_rows = 0;  // that the segment reaches into
    int64_t row_tiles = 0, slabs = 0, partials = 0;

    static constexpr int64_t slab = 1024, tile_elements = 32768;
    CLOVER_HD bool factored() const { return columns > 0; }
    CLOVER_HD int64_t tile_rows() const { return tile_elements / (columns < slab ? columns : slab); }
};
static_assert(sizeof(Factors) == 80);
constexpr int64_t factors_words = sizeof(Factors) / sizeof(int32_t);

/// A place where Σ over elements is cut.
struct FactorTile {
    int32_t segment, row_tile, slab, unused = 0;
};
constexpr int64_t tile_words = sizeof(FactorTile) / sizeof(int32_t);

/// What follows from the segments and the sizes of the whole parameters.
struct AdafactorLayout {
    std::vector<Factors> factors;  // of each segment
    std::vector<FactorTile> tiles;
    int64_t state = 0, sums = 0, partials = 0;  // elements of these arenas
    /// totals: elements of each segment's whole parameter.
    AdafactorLayout(const std::vector<Segment>& segments, const std::vector<int64_t>& totals, int64_t min_factored);
};

struct Adafactor {
    Weights weights;    // n elements: w
    Tensor factors;     // (S, factors_words) i32: the layout's, in the device's memory, as are its tiles
    Tensor tiles;       // (tiles, tile_words) i32, or absent where nothing is factored
    Tensor state;       // (layout.state) f32: R and C, or V
    Tensor m;           // (n) f32, or absent: no momentum
    Tensor sums;        // (layout.sums) f32, or absent where nothing is factored
    Tensor squares;     // (S, 3) f32: of each segment unused, Σ u², Σ w²
    Tensor grad;        // (n) f32
    Tensor grad_scale;  // (1) f32: the factor of gradient clipping
    int64_t partials;   // the layout's
    float lr;
    int64_t t;          // step number, from 1
    bool parameter_scale = false;
    float beta1 = 0, decay_exponent = 0.8f, eps1 = 1e-30f, eps2 = 1e-3f, clip = 1;
};

void check(const Adafactor& a);

struct AdafactorOps {
    size_t (*workspace_bytes)(const Adafactor&);
    void (*statistics)(Context&, const Adafactor&);
    void (*squares)(Context&, const Adafactor&);
    void (*update)(Context&, const Adafactor&);
};
extern const AdafactorOps adafactor_cpu, adafactor_cuda;

/// The authors' rate where none is given: min(0.01, 1 / √t).
double adafactor_relative_step(int64_t t);

// ---- For the devices -----------------------------------------------------------------------------------------------------------

/// The numbers that all parameters of a step share.
struct AdafactorStep {
    float scale = 0, beta2, lr, beta1, eps1, eps2, clip;
    bool parameter_scale;
    explicit AdafactorStep(const Adafactor& a);

    CLOVER_HD float decayed(float statistic, float mean) const { return beta2 * statistic + (1 - beta2) * mean; }
    /// s / u.
    CLOVER_HD float rate(const Factors& f, const Change& squares) const {
        const float n = float(f.total), rms_u = sqrtf(squares.step_squares / n), rms_w = sqrtf(squares.weight_squares / n);
        const float size = parameter_scale ? (rms_w > eps2 ? rms_w : eps2) : 1.0f;
        return lr * size / (rms_u > clip ? rms_u / clip : 1.0f);
    }
};

/// What the workspace of one call holds at most, but for what for_segments or for_weights take.
inline size_t partials_bytes(const Adafactor& a) { return Workspace::padded(size_t(a.partials) * sizeof(float)); }
/// The weights whose `changes` are a.squares.
inline Weights with_squares(const Adafactor& a) {
    Weights w = a.weights;
    w.changes = a.squares;
    return w;
}

}  // namespace clover
