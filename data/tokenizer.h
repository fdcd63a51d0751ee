// Tokenizer: text to ids and back. Three kinds: "bytes", the built-in one (ids 0…255 are the bytes, 256 ends a document); byte-level BPE from a
// tokenizer.json (tokenizer_json.h); SentencePiece from a .model (sentencepiece.h).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace clover {

/// Turns ids that come one at a time into text, without ever showing half a character.
class Decoder {
public:
    virtual ~Decoder() = default;
    /// Appends to `text` what this token makes certain.
    virtual void push(int32_t id, std::string& text) = 0;
    /// Appends what was held back; the next push begins a new text.
    virtual void finish(std::string& text) = 0;
};

/// The file a tokenizer was read from, kept so that a run can carry it along.
struct TokenizerFile {
    std::string name;      // "tokenizer.json", "tokenizer.model", or "" for the built-in one
    std::string contents;
};

/// All const members may be called by any number of threads at once.
class Tokenizer {
public:
    virtual ~Tokenizer() = default;
    /// Appends the ids of `text` (any bytes; what is not UTF-8 counts as U+FFFD, but for "bytes") to `ids`. Adds no begin or end tokens. A control or special
    /// token spelt out in the text becomes its id where the tokenizer's file says so, as the reference programs do.
    virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
    /// Puts the begin and end tokens that the file asks for (template post-processor) around ids[first], …; most ask for none.
    virtual void add_special_tokens(std::vector<int32_t>&, size_t /*first*/) const {}
    /// The bytes of text that one token stands for in the middle of a text; empty for special and control tokens.
    virtual std::string token_bytes(int32_t id) const = 0;
    /// The token as its file spells it, for people to read.
    virtual std::string token_name(int32_t id) const = 0;
    /// The id of a token by that spelling, special ones included; -1: there is none.
    virtual int32_t find_token(std::string_view name) const = 0;
    /// Ids are 0 … vocab_size() − 1.
    virtual int32_t vocab_size() const = 0;
    /// The token that ends a document; -1: the tokenizer has none.
    virtual int32_t end_of_document() const = 0;
    /// `special`: special and control tokens are written out by name instead of left out.
    virtual std::unique_ptr<Decoder> decoder(bool special = false) const = 0;
    /// What `tokenizer info` prints: ("model", "byte-level BPE, 250,000 merges"), …
    virtual std::vector<std::pair<std::string, std::string>> description() const = 0;

    /// Tells tokenizers apart: "bytes", or kind and hash of the file. Stored beside token files and in checkpoints.
    const std::string& fingerprint() const { return fingerprint_; }
    const TokenizerFile& file() const { return file_; }

    std::string decode(const std::vector<int32_t>& ids, bool special = false) const;

protected:
    explicit Tokenizer(TokenizerFile file);

private:
    TokenizerFile file_;
    std::string fingerprint_;
};

/// `spec` is "bytes", or the path of a tokenizer.json or SentencePiece .model (told apart by their contents). `end_of_document` names the token
/// that ends a document where the file does not make that plain (docs: known_end_tokens in tokenizer.cpp); "" leaves it to the file. Throws InputError that says
/// what is wrong with the file, or names what it asks for that is not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec, const std::string& end_of_document = "");

/// The first of the usual end tokens ("</s>", "<|endoftext|>", …) for which find(name) >= 0, or -1; `chosen` first of all where it is
/// not empty, and then a miss throws InputError with `origin`.
int32_t choose_end_token(const Tokenizer& tokenizer, const std::string& chosen, const std::string& origin);

}  // namespace clover
