// The pre_tokenizer of a tokenizer.json: cuts text into the pieces within which BPE merges. Sequence, Split (a regular expression or a string; behaviours
// Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous; invert) and ByteLevel (GPT-2's expression, add_prefix_space).
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace clover {

class PreTokenizer {
public:
    /// `spec` is the member "pre_tokenizer", or null: the text is one piece. Throws InputError naming what is wrong or not supported.
    PreTokenizer(const nlohmann::json& spec, const std::string& origin);
    ~PreTokenizer();
    PreTokenizer(const PreTokenizer&) = delete;
    /// Calls piece(bytes) for each piece of `text` (UTF-8) in order; the views hold during the call. Any number of threads may call it at once.
    /// The bytes are those of the text, not their spelling in the GPT-2 byte alphabet.
    void split(std::string_view text, const std::function<void(std::string_view)>& piece) const;
    /// Whether ByteLevel is among the steps: BPE then works on the byte alphabet.
    bool byte_level() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace clover
