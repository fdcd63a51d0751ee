#include "sentencepiece.h"

#include <algorithm>
#include <optional>

#include "../kernels/error.h"
#include "piece_output.h"
#include "piece_table.h"
#include "piece_trie.h"
#include "sentencepiece_bpe.h"
#include "sentencepiece_decoder.h"
#include "sentencepiece_model.h"
#include "sentencepiece_normalizer.h"
#include "unigram.h"

namespace clover {
namespace {

using Type = SentencePiece::Type;
using Kind = SentencePieceModel::Kind;

PieceTrie trie_of_user_defined(const SentencePieceModel& model, const std::string& origin) {
    std::vector<PieceTrie::Entry> entries;
    for (size_t id = 0; id < model.pieces.size(); id++)
        if (model.pieces[id].type == Type::user_defined) entries.push_back({model.pieces[id].text, int32_t(id)});
    const size_t nodes = PieceTrie::count_nodes(entries);
    require(nodes <= PieceTrie::most_nodes, origin, ": the trie of the user-defined pieces has ", nodes, " nodes, at most ", PieceTrie::most_nodes, " are supported");
    return PieceTrie(std::move(entries));
}

class SentencePieceTokenizer final : public Tokenizer {
public:
    SentencePieceTokenizer(TokenizerFile from, const std::string& origin, const std::string& end_of_document)
        : Tokenizer(std::move(from)),
          model_(parse_sentencepiece_model(file().contents, origin)),
          table_(model_.pieces, origin),
          cuts_(model_.pieces),
          user_defined_(trie_of_user_defined(model_, origin)),
          normalizer_(model_.normalizer, model_.whitespace_as_suffix, user_defined_, origin) {
        if (model_.kind == Kind::unigram) unigram_.emplace(model_, origin);
        else bpe_.emplace(model_, table_, user_defined_);
        if (const NormalizerSpec& spec = model_.denormalizer; !spec.charsmap.empty()) {
            require(!spec.add_dummy_prefix && !spec.remove_extra_whitespaces && !spec.escape_whitespaces, origin,
                    ": denormalizer_spec changes spaces (add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces), which is not supported; expected all three to be false");
            denormalizer_.emplace(spec, false, no_pieces_, origin);
        }
        end_of_document_ = choose_end_token(*this, end_of_document, origin);
    }

    void encode(std::string_view text, std::vector<int32_t>& ids) const override {
        std::string normalized;
        normalized.reserve(text.size() + text.size() / 2);
        normalizer_.normalize(text, normalized);
        PieceOutput output(model_, ids);
        switch (model_.kind) {
            case Kind::unigram: return encode_unigram(normalized, output);
            case Kind::word: return encode_words(normalized, output);
            case Kind::bpe: case Kind::character: return encode_bpe(normalized, output);
        }
    }

    std::string token_bytes(int32_t id) const override {
        const SentencePiece& piece = piece_at(id);
        if (piece.type == Type::control || piece.type == Type::unknown) return "";
        if (piece.type == Type::byte) return std::string(1, char(spelled_byte(piece.text)));
        std::string bytes;
        for (size_t at = 0; at < piece.text.size();) {
            const bool space = piece.text.substr(at).starts_with(space_symbol);
            bytes += space ? ' ' : piece.text[at];
            at += space ? space_symbol.size() : 1;
        }
        return bytes;
    }
    std::string token_name(int32_t id) const override { return std::string(piece_at(id).text); }
    int32_t find_token(std::string_view name) const override { return table_.find(name); }
    int32_t vocab_size() const override { return int32_t(model_.pieces.size()); }
    int32_t end_of_document() const override { return end_of_document_; }
    std::unique_ptr<Decoder> decoder(bool special) const override {
        return std::make_unique<SentencePieceDecoder>(model_, denormalizer_ ? &*denormalizer_ : nullptr, special);
    }
    std::vector<std::pair<std::string, std::string>> description() const override;

private:
    const SentencePiece& piece_at(int32_t id) const {
        CLOVER_CHECK(id >= 0 && id < vocab_size(), "token ", id, " of ", vocab_size());
        return model_.pieces[size_t(id)];
    }
    void encode_bpe(std::string_view text, PieceOutput& output) const {
        SentencePieceBpe::Workspace workspace;
        for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
            end = bpe_->needs_whole_text() ? text.size() : cuts_.next(text, begin);
            bpe_->encode(text.substr(begin, end - begin), workspace, output);
        }
    }
    void encode_unigram(std::string_view text, PieceOutput& output) const {
        UnigramEncoder::Workspace workspace;
        for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
            end = cuts_.next(text, begin);
            unigram_->encode(text.substr(begin, end - begin), workspace, output);
        }
    }
    /// The model type WORD: a word begins at each U+2581 and is a piece or unknown.
    void encode_words(std::string_view text, PieceOutput& output) const {
        for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
            end = std::min(text.find(space_symbol, begin + 1), text.size());
            const std::string_view word = text.substr(begin, end - begin);
            const int32_t id = table_.find(word);
            if (id >= 0 && model_.pieces[size_t(id)].in_text()) output.add(id);
            else output.add_unknown(word);
        }
    }

    const SentencePieceModel model_;
    const PieceTable table_;
    const PieceCuts cuts_;
    const PieceTrie user_defined_, no_pieces_;
    const SentencePieceNormalizer normalizer_;
    std::optional<SentencePieceNormalizer> denormalizer_;
    std::optional<SentencePieceBpe> bpe_;
    std::optional<UnigramEncoder> unigram_;
    int32_t end_of_document_ = -1;
};

std::vector<std::pair<std::string, std::string>> SentencePieceTokenizer::description() const {
    constexpr const char* kinds[] = {"", "unigram", "BPE", "words", "characters"};
    const auto count = [&](Type type) {
        return std::count_if(model_.pieces.begin(), model_.pieces.end(), [&](const SentencePiece& piece) { return piece.type == type; });
    };
    const auto yes_no = [](bool yes) { return yes ? "yes" : "no"; };
    const NormalizerSpec& spec = model_.normalizer;
    return {{"model", text("SentencePiece ", kinds[int(model_.kind)], ", ", model_.pieces.size(), " pieces: ", count(Type::normal), " normal, ", count(Type::control),
                           " control, ", count(Type::user_defined), " user-defined, ", count(Type::unused), " unused, ", count(Type::byte), " bytes")},
            {"normalization", text(spec.name.empty() ? "none" : spec.name, ", ", spec.charsmap.size(), " bytes of rules")},
            {"dummy prefix", text(yes_no(spec.add_dummy_prefix), spec.add_dummy_prefix && model_.whitespace_as_suffix ? ", at the end" : "")},
            {"removes extra spaces", yes_no(spec.remove_extra_whitespaces)},
            {"byte fallback", yes_no(model_.byte_fallback)}};
}

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(TokenizerFile file, const std::string& origin, const std::string& end_of_document) {
    return std::make_unique<SentencePieceTokenizer>(std::move(file), origin, end_of_document);
}

}  // namespace clover
