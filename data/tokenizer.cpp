#include "tokenizer.h"

#include <cstdio>

#include "../kernels/error.h"
#include "hash.h"
#include "sentencepiece.h"
#include "text_source.h"
#include "tokenizer_json.h"
#include "utf8.h"

namespace clover {
namespace {

constexpr size_t file_limit = size_t{1} << 30;

std::string fingerprint_of(const TokenizerFile& file) {
    if (file.name.empty()) return "bytes";
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash64(file.contents)));
    return file.name + "-" + digits;
}

/// Whole bytes come back as they were; a character cut by the end of the ids too.
class ByteDecoder final : public Decoder {
public:
    explicit ByteDecoder(bool special) : special_(special) {}
    void push(int32_t id, std::string& text) override {
        CLOVER_CHECK(id >= 0 && id <= 256, "token ", id);
        if (id < 256) held_ += char(id);
        else if (special_) held_ += "<eod>";
        const size_t ready = held_.size() - incomplete_utf8(held_);
        text.append(held_, 0, ready);
        held_.erase(0, ready);
    }
    void finish(std::string& text) override {
        text += held_;
        held_.clear();
    }

private:
    bool special_;
    std::string held_;
};

class ByteTokenizer final : public Tokenizer {
public:
    ByteTokenizer() : Tokenizer({}) {}
    void encode(std::string_view text, std::vector<int32_t>& ids) const override {
        const unsigned char* bytes = reinterpret_cast<const unsigned char*>(text.data());
        ids.insert(ids.end(), bytes, bytes + text.size());
    }
    std::string token_bytes(int32_t id) const override {
        CLOVER_CHECK(id >= 0 && id < vocab_size(), "token ", id);
        return id < 256 ? std::string(1, char(id)) : std::string();
    }
    std::string token_name(int32_t id) const override { return id == 256 ? "<eod>" : token_bytes(id); }
    int32_t find_token(std::string_view name) const override {
        if (name == "<eod>") return 256;
        return name.size() == 1 ? static_cast<unsigned char>(name[0]) : -1;
    }
    int32_t vocab_size() const override { return 257; }
    int32_t end_of_document() const override { return 256; }
    std::unique_ptr<Decoder> decoder(bool special) const override { return std::make_unique<ByteDecoder>(special); }
    std::vector<std::pair<std::string, std::string>> description() const override {
        return {{"model", "bytes: ids 0 to 255 are the bytes, 256 ends a document"}};
    }
};

}  // namespace

Tokenizer::Tokenizer(TokenizerFile file) : file_(std::move(file)), fingerprint_(fingerprint_of(file_)) {}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool special) const {
    const std::unique_ptr<Decoder> decoder = this->decoder(special);
    std::string text;
    for (int32_t id : ids) decoder->push(id, text);
    decoder->finish(text);
    return text;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec, const std::string& end_of_document) {
    if (spec == "bytes") {
        require(end_of_document.empty() || end_of_document == "<eod>", "the tokenizer bytes ends documents with its id 256, not with \"", end_of_document,
                "\"; leave that out");
        return std::make_unique<ByteTokenizer>();
    }
    require(spec.find('/') != std::string::npos || spec.find('.') != std::string::npos, "tokenizer \"", spec,
            "\" is not known; expected \"bytes\" or the path of a tokenizer.json or SentencePiece .model file");
    std::string contents = read_text_file(spec, file_limit);
    const size_t first = contents.find_first_not_of(" \t\r\n");
    require(first != std::string::npos, spec, ": the file is empty, expected a tokenizer.json or a SentencePiece .model");
    if (contents[first] == '{') return load_tokenizer_json({"tokenizer.json", std::move(contents)}, spec, end_of_document);
    return load_sentencepiece({"tokenizer.model", std::move(contents)}, spec, end_of_document);
}

int32_t choose_end_token(const Tokenizer& tokenizer, const std::string& chosen, const std::string& origin) {
    if (!chosen.empty()) {
        const int32_t id = tokenizer.find_token(chosen);
        require(id >= 0, origin, ": has no token \"", chosen, "\" to end documents with");
        return id;
    }
    for (const char* name : {"</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "<|eos|>", "[EOS]", "<eod>"})
        if (const int32_t id = tokenizer.find_token(name); id >= 0) return id;
    return -1;
}

}  // namespace clover
