// A token file read from start to end in windows of `context` tokens, for validation. Every token but the first is predicted exactly once; the last
// window is filled up with positions that are not scored (target -1).
//
// Window i begins at token i · stride. With stride = context (the default) windows do not overlap; with a smaller one they slide: the first window scores
// all of its positions, each further one its last `stride`, so that a token has at least context − stride tokens before it.
#pragma once
#include <vector>

#include "indexed_dataset.h"

namespace clover {

struct WindowOptions {
    int64_t context = 0;
    int64_t stride = 0;   // 1 … context; 0: context
    int64_t tokens = -1;  // tokens to predict, from the start of the stream; -1: all
};

class PackedWindows {
public:
    /// Of the sequences [first, first + sequences) of the file; -1: all from first on.
    PackedWindows(const IndexedDataset& data, const WindowOptions& options, int64_t first = 0, int64_t sequences = -1);
    PackedWindows(const IndexedDataset& data, int64_t context, int64_t first = 0, int64_t sequences = -1)
        : PackedWindows(data, WindowOptions{.context = context}, first, sequences) {}
    /// ⌈(predicted − context) / stride⌉ + 1, which without overlap is ⌈predicted / context⌉.
    int64_t count() const;
    /// Tokens that all windows together predict.
    int64_t predicted() const { return predicted_; }
    /// Window i's `context` tokens and what follows each; i >= count() gives a window of which nothing is scored.
    void read(int64_t i, int32_t* ids, int32_t* targets) const;

private:
    const IndexedDataset& data_;
    int64_t context_, stride_, first_, predicted_;
    std::vector<int64_t> starts_;  // number of the token at which each sequence starts, and the total

    void copy(int64_t first, int64_t n, int32_t* out) const;
};

}  // namespace clover
