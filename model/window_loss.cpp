#include "window_loss.h"

#include <algorithm>

namespace clover {

void score_windows(const PackedWindows& windows, int64_t batch, int64_t batches, const ExampleOptions& example, const LossOfBatch& loss,
                   const ScoredToken& scored) {
    const int64_t t = example.context, all = (windows.count() + batch - 1) / batch;
    std::vector<int32_t> ids(size_t(batch * t)), targets(ids);
    std::vector<float> losses(ids.size());
    for (int64_t i = 0; i < (batches < 0 ? all : std::min(all, batches)); i++) {
        for (int64_t b = 0; b < batch; b++) {
            windows.read(i * batch + b, ids.data() + b * t, targets.data() + b * t);
            mask_targets(ids.data() + b * t, example, targets.data() + b * t);
        }
        loss(ids.data(), targets.data(), losses.data());
        for (int64_t row = 0; row < batch * t; row++)
            if (targets[size_t(row)] >= 0) scored(row % t, targets[size_t(row)], losses[size_t(row)]);
    }
}

}  // namespace clover
