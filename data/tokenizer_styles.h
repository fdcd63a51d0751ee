// The pipelines that `tokenizer train` writes: what surrounds the vocabulary in a tokenizer.json.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace clover {

struct TokenizerStyle {
    std::string_view name;
    std::vector<std::string> special;  // tokens with the ids 0, 1, …
    const char* pre_tokenizer;         // members of tokenizer.json, as JSON
    const char* post_processor;
    const char* decoder;
};

/// bloom: BLOOM's (bigscience byte-level-bpe-tokenizer-no-norm-250k): pieces end at white space and common punctuation. gpt2: GPT-2's expression.
const std::vector<TokenizerStyle>& tokenizer_styles();
/// Throws InputError with the names there are.
const TokenizerStyle& find_tokenizer_style(std::string_view name);

}  // namespace clover
