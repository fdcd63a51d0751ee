// From text to a token file: documents on all cores, in order, in bounded memory.
#pragma once
#include <string>
#include <vector>

#include "documents.h"
#include "token_record.h"
#include "tokenizer.h"

namespace clover {

struct TokenizeOptions {
    std::vector<std::string> inputs;  // documents.h
    std::string out;                  // prefix
    DocumentOptions documents = {};
    bool append_eod = true;  // each document is followed by the tokenizer's end-of-document token
    int threads = 0;         // 0: all cores
    std::string what = "";   // what the progress line calls it; "": the prefix
    int64_t source_size = 0, source_mtime_ns = 0;  // for the record
};

/// Writes OUT.bin, OUT.idx and OUT.json, whole or not at all; the same bytes for any number of threads. A document that gives no token is dropped and counted
/// (its end token too). Throws InputError for unreadable inputs, for inputs without any text, and where documents are to be ended with a token that the tokenizer lacks;
/// then nothing is left behind and what stood there before stays.
TokenRecord tokenize(const Tokenizer& tokenizer, const TokenizeOptions& options);

/// PREFIX… put one behind the other into OUT, with their records where all have one. Throws InputError where dtypes or tokenizers differ.
void merge_token_files_and_records(const std::vector<std::string>& prefixes, const std::string& out);

/// What a token file is: dtype, counts, lengths, largest id, record. As a table, or one JSON object.
std::string token_file_info(const std::string& prefix, bool json);

}  // namespace clover
