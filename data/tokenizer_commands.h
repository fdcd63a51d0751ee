// `clover tokenizer encode|decode|info`: text to ids and back on files and pipes.
#pragma once
#include <cstdio>
#include <string>
#include <vector>

#include "tokenizer.h"

namespace clover {

/// How texts and ids are laid out.
///   lines     a text is a line, its ids a line of numbers
///   document  all of the input is one text
///   json      a text is a line: a JSON string, or an object with the text under `key`; its ids a line: a JSON array. Exact for every text, line feeds and all
enum class TextLayout : uint8_t { lines, document, json };

struct EncodeOptions {
    TextLayout layout = TextLayout::lines;
    std::string key = "text";
    bool pieces = false;   // names of tokens instead of ids
    bool special = false;  // with the begin and end tokens that the tokenizer's file asks for
};
/// Reads the inputs ("-": standard input) and writes to `out`. Throws InputError with file:line.
void encode_text(const Tokenizer& tokenizer, const EncodeOptions& options, const std::vector<std::string>& inputs, std::FILE* out);

struct DecodeOptions {
    TextLayout layout = TextLayout::lines;
    bool special = false;  // special and control tokens by name, instead of nothing
};
/// Reads ids, numbers with white space or commas between them, and writes text; with `document` each character as soon as it is certain.
void decode_ids(const Tokenizer& tokenizer, const DecodeOptions& options, const std::vector<std::string>& inputs, std::FILE* out);

/// Encodes the documents of the inputs (documents.h) on one thread `rounds` times, after one round to warm up. MB of text a second, the median of the rounds.
struct EncodeBench {
    int64_t documents = 0, bytes = 0, tokens = 0;
    double mb_per_s = 0;
};
EncodeBench bench_encode(const Tokenizer& tokenizer, const std::vector<std::string>& inputs, int rounds);

/// What the tokenizer is, as a table or as one JSON object.
std::string tokenizer_info(const Tokenizer& tokenizer, bool json);

}  // namespace clover
