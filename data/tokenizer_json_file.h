// A tokenizer.json taken apart: the vocabulary, the merges and the added tokens in compact form, the small rest as JSON. Memory stays within a small multiple of
// the file, however it is nested.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "added_tokens.h"
#include "token_table.h"

namespace clover {

struct TokenizerJsonFile {
    nlohmann::json rest;       // without model.vocab, model.merges and added_tokens
    TokenTable vocabulary;     // as the model has it, not yet finished
    std::vector<AddedToken> added;
    /// The two sides of a merge, in order of rank.
    struct Merge {
        uint64_t first = 0;  // in merge_text
        uint32_t left = 0, right = 0;  // bytes of the left side; of the right, which follows
    };
    std::vector<Merge> merges;
    std::string merge_text;
    bool has_vocabulary = false, has_merges = false;  // the member is there, and an object, an array
    std::string_view left(const Merge& m) const { return std::string_view(merge_text).substr(m.first, m.left); }
    std::string_view right(const Merge& m) const { return std::string_view(merge_text).substr(m.first + m.left, m.right); }
};

/// Throws InputError with `origin` and the byte or member that is wrong.
TokenizerJsonFile read_tokenizer_json(std::string_view contents, const std::string& origin);

}  // namespace clover
