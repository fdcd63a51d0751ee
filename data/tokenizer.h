// Tokenizer: text to ids and back. "bytes" is the built-in one: ids 0…255 are the bytes, 256 ends a document.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace clover {

class Tokenizer {
public:
    virtual ~Tokenizer() = default;
    /// Appends the ids of `text` (any bytes) to `ids`. Adds no begin or end tokens.
    virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
    /// The bytes of one token; empty for control tokens.
    virtual std::string token_bytes(int32_t id) const = 0;
    virtual int32_t vocab_size() const = 0;
    /// The token that ends a document.
    virtual int32_t end_of_document() const = 0;
    /// Tells tokenizers apart: stored beside token files and in checkpoints. "bytes" for the built-in one.
    virtual std::string fingerprint() const = 0;

    std::string decode(const std::vector<int32_t>& ids) const {
        std::string text;
        for (int32_t id : ids) text += token_bytes(id);
        return text;
    }
};

/// `spec` is "bytes". Throws InputError naming what is supported for anything else.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec);

}  // namespace clover
