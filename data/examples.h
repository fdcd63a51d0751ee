// From the tokens of a sample to what a model is given: inputs, targets, and where documents lie in them. The options are what the BLOOM and Gopher
// papers leave open (Megatron's --reset-attention-mask, --reset-position-ids, --eod-mask-loss).
#pragma once
#include <cstdint>
#include <vector>

namespace clover {

struct ExampleOptions {
    int64_t context = 0;             // T
    int32_t end_of_document = -1;    // its token id, or -1: documents have no mark
    bool train_on_eod = true;        // false: an end of document is no target
    bool train_after_eod = true;     // false: nothing is to be predicted from an end of document (Megatron's --eod-mask-loss)
};

/// ids = tokens[0 … T − 1], targets = tokens[1 … T], or -1 where a position is not trained.
void make_example(const int32_t* tokens, const ExampleOptions& options, int32_t* ids, int32_t* targets);
/// Makes targets (T) that are there already as the options say.
void mask_targets(const int32_t* ids, const ExampleOptions& options, int32_t* targets);

/// Rows [first, first + count) of a micro-batch: a document, or the part of one that lies in a sequence.
struct RowRange {
    int64_t first, count;
};
/// Sets `documents` to those in ids (rows), which are sequences of T one after the other. A document ends with its end-of-document token; every sequence
/// begins one.
void document_rows(const int32_t* ids, int64_t rows, const ExampleOptions& options, std::vector<RowRange>& documents);

}  // namespace clover
