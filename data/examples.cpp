#include "examples.h"

#include <algorithm>

namespace clover {

void make_example(const int32_t* tokens, const ExampleOptions& options, int32_t* ids, int32_t* targets) {
    std::copy_n(tokens, options.context, ids);
    std::copy_n(tokens + 1, options.context, targets);
    mask_targets(ids, options, targets);
}

void mask_targets(const int32_t* ids, const ExampleOptions& options, int32_t* targets) {
    if (options.train_on_eod && options.train_after_eod) return;
    const int32_t eod = options.end_of_document;
    for (int64_t t = 0; t < options.context; t++)
        if ((!options.train_on_eod && targets[t] == eod) || (!options.train_after_eod && ids[t] == eod)) targets[t] = -1;
}

void document_rows(const int32_t* ids, int64_t rows, const ExampleOptions& options, std::vector<RowRange>& documents) {
    documents.clear();
    int64_t first = 0;
    for (int64_t row = 0; row < rows; row++) {
        const bool ends = ids[row] == options.end_of_document || (row + 1) % options.context == 0;
        if (!ends) continue;
        documents.push_back({first, row + 1 - first});
        first = row + 1;
    }
}

}  // namespace clover
