// `clover filter`: Gopher's document filters, in the paper's order (Rae et al. 2021, appendix A.1.1): quality rules (quality_filter.h), repetition
// (repetition_filter.h), exact and near duplicates, documents like those of a test set (near_duplicates.h). A document is dropped by the first rule it breaks; what
// stays is written in the order in which it came: a JSONL line byte for byte, plain text as {"text": …}. One pass, so standard input serves too; the first of
// several duplicates stays. The outcome is the same for every number of threads.
//
// Memory: the documents being worked on, 4 · threads + 4 batches of at most 64 documents or, beyond one document, 1 MB; and for each document that stays some 50 bytes for the
// exact and 1.0 to 1.6 kB for the near duplicates.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "documents.h"
#include "quality_filter.h"

namespace clover {

struct FilterOptions {
    std::vector<std::string> inputs, against;  // against: documents of test sets
    std::string out, report;                   // report: "" for none
    std::vector<std::string> disable, set;     // names of rules; NAME=VALUE
    bool quality = true, repetition = true, duplicates = true;
    int threads = 0;  // 0: all cores
    DocumentOptions documents;
    bool json = false;
};

struct FilterRow {
    FilterRule rule;
    int64_t documents = 0, bytes = 0;  // dropped by it
    std::string example;               // "FILE:LINE" of the first
};

/// Bytes are those of the texts.
struct FilterReport {
    int64_t documents = 0, bytes = 0, kept_documents = 0, kept_bytes = 0;
    std::vector<FilterRow> rows;  // every rule, in the order in which they are asked
};

/// All rules with their limits as the options set them. Throws InputError for a name that is none.
std::vector<FilterRule> filter_rules(const FilterOptions& options);

/// Writes options.out and options.report, both or neither. Throws InputError with file:line.
FilterReport filter_documents(const FilterOptions& options);

/// As people read it: "off", "" for a rule without one.
std::string limit_text(const FilterRule& rule);
std::string filter_table(const FilterReport& report);
std::string filter_json(const FilterReport& report);

}  // namespace clover
