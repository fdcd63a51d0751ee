#include "packed_windows.h"

#include <algorithm>

#include "../kernels/error.h"

namespace clover {

PackedWindows::PackedWindows(const IndexedDataset& data, const WindowOptions& options, int64_t first, int64_t sequences)
    : data_(data), context_(options.context), stride_(options.stride > 0 ? options.stride : options.context), first_(first) {
    CLOVER_CHECK(stride_ <= context_, "windows of ", context_, " with stride ", stride_);
    if (sequences < 0) sequences = data.sequence_count() - first;
    starts_.reserve(size_t(sequences + 1));
    starts_.push_back(0);
    for (int64_t i = 0; i < sequences; i++) starts_.push_back(starts_.back() + data.length(first + i));
    const int64_t all = std::max<int64_t>(starts_.back() - 1, 0);
    predicted_ = options.tokens < 0 ? all : std::min(all, options.tokens);
}

int64_t PackedWindows::count() const {
    if (predicted_ == 0) return 0;
    return 1 + std::max<int64_t>(predicted_ - context_ + stride_ - 1, 0) / stride_;
}

void PackedWindows::copy(int64_t first, int64_t n, int32_t* out) const {
    int64_t sequence = std::upper_bound(starts_.begin(), starts_.end(), first) - starts_.begin() - 1;
    while (n > 0) {
        const int64_t offset = first - starts_[size_t(sequence)], take = std::min(n, data_.length(first_ + sequence) - offset);
        data_.read(first_ + sequence, offset, take, out);
        first += take, n -= take, out += take, sequence++;
    }
}

void PackedWindows::read(int64_t i, int32_t* ids, int32_t* targets) const {
    const int64_t first = i * stride_, left = i < count() ? std::min(context_, predicted_ - first) : 0;
    std::fill(ids + left, ids + context_, 0);
    std::fill(targets + left, targets + context_, -1);
    if (left == 0) return;
    copy(first, left, ids);
    copy(first + 1, left, targets);
    if (i > 0) std::fill(targets, targets + context_ - stride_, -1);  // the windows before have scored these
}

}  // namespace clover
