// A token file read from start to end in windows of `context` tokens that do not overlap, for validation. Every token but the first
// is predicted exactly once; the last window is filled up with positions that are not trained (target -1).
#pragma once
#include <vector>

#include "indexed_dataset.h"

namespace clover {

class PackedWindows {
public:
    /// Of the sequences [first, first + sequences) of the file; -1: all from first on.
    PackedWindows(const IndexedDataset& data, int64_t context, int64_t first = 0, int64_t sequences = -1);
    /// ⌈(tokens − 1) / context⌉.
    int64_t count() const;
    /// Window i's `context` tokens and what follows each; i >= count() gives a window of which nothing is trained.
    void read(int64_t i, int32_t* ids, int32_t* targets) const;

private:
    const IndexedDataset& data_;
    int64_t context_, first_;
    std::vector<int64_t> starts_;  // number of the token at which each sequence starts, and the total

    void copy(int64_t first, int64_t n, int32_t* out) const;
};

}  // namespace clover
