#include "tokenizer_json.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "../kernels/error.h"
#include "byte_alphabet.h"
#include "byte_pair.h"
#include "normalizer.h"
#include "object_reader.h"
#include "pre_tokenizer.h"
#include "scratch_pool.h"
#include "tokenizer_json_file.h"
#include "utf8.h"

namespace clover {
namespace {

using nlohmann::json;

// ---- The model -----------------------------------------------------------------------------------------------------------------

/// The members of "model" beside the two large ones.
struct ModelOptions {
    std::string unknown;  // the token for characters that are in no vocabulary, or ""
    bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
};

ModelOptions read_model(const TokenizerJsonFile& file, const json& spec, const std::string& origin) {
    ObjectReader reader(spec, origin + ": model");
    // Where they are what they should be, they were taken out of the JSON.
    if (!file.has_vocabulary || reader.has("vocab")) reader.refuse("vocab", "expected an object of tokens and ids, once");
    if (!file.has_merges || reader.has("merges")) reader.refuse("merges", "expected an array, once");
    if (reader.has("type") && reader.string("type") != "BPE") reader.refuse("type", "only BPE is supported");
    const json& dropout = reader.member("dropout");
    if (!dropout.is_null() && dropout != 0.0) reader.refuse("dropout", "expected null; merges left out at random are not supported");
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
        if (reader.has(name) && !reader.string(name).empty()) reader.refuse(name, "not supported, expected null");
    ModelOptions options;
    if (reader.has("unk_token")) options.unknown = reader.string("unk_token");
    options.fuse_unknown = reader.boolean("fuse_unk", false);
    options.byte_fallback = reader.boolean("byte_fallback", false);
    options.ignore_merges = reader.boolean("ignore_merges", false);
    reader.finish();
    return options;
}

/// BPE over a vocabulary: a piece of text to ids.
class BytePairModel {
public:
    BytePairModel(const TokenizerJsonFile& file, const ModelOptions& options, const TokenTable& vocabulary, bool byte_level, const std::string& origin)
        : vocabulary_(vocabulary), options_(options), byte_level_(byte_level) {
        for (size_t i = 0; i < file.merges.size(); i++) add_merge(file, i, origin);
        if (!options.unknown.empty()) {
            unknown_ = vocabulary.find(options.unknown);
            require(unknown_ >= 0, origin, ": model.unk_token: the vocabulary has no token \"", options.unknown, "\"");
        }
        for (int b = 0; b < 256; b++) {
            char name[8];
            std::snprintf(name, sizeof name, "<0x%02X>", b);
            fallback_[size_t(b)] = options.byte_fallback ? vocabulary.find(name) : -1;
            spelling_[size_t(b)] = spelling_of_bytes(std::string(1, char(b)));
            byte_ids_[size_t(b)] = vocabulary.find(spelling_[size_t(b)]);
        }
    }

    struct Scratch {
        explicit Scratch(const MergeTable& merges) : merger(merges) {}
        PairMerger merger;
        PieceCache cache;
        std::vector<int32_t> symbols;
    };
    const MergeTable& merges() const { return merges_; }

    void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
        const bool short_piece = piece.size() <= PieceCache::longest;
        const uint64_t hash = short_piece ? PieceCache::hash(piece) : 0;
        if (short_piece)
            if (const PieceCache::Ids known = scratch.cache.find(piece, hash); known.data != nullptr) {
                ids.insert(ids.end(), known.data, known.data + known.count);
                return;
            }
        std::vector<int32_t>& symbols = scratch.symbols;
        symbols.clear();
        const int32_t whole = options_.ignore_merges ? vocabulary_.find(byte_level_ ? spelling_of_bytes(piece) : std::string(piece)) : -1;
        if (whole >= 0) {
            symbols.push_back(whole);
        } else {
            begin(piece, symbols);
            scratch.merger.merge(symbols);
        }
        ids.insert(ids.end(), symbols.begin(), symbols.end());
        if (short_piece) scratch.cache.add(piece, hash, symbols.data(), symbols.size());
    }

private:
    const TokenTable& vocabulary_;
    ModelOptions options_;
    bool byte_level_;
    MergeTable merges_;
    int32_t unknown_ = -1;
    std::array<int32_t, 256> byte_ids_{}, fallback_{};
    std::array<std::string, 256> spelling_;

    void add_merge(const TokenizerJsonFile& file, size_t rank, const std::string& origin) {
        const std::string_view sides[] = {file.left(file.merges[rank]), file.right(file.merges[rank])};
        int32_t ids[2];
        for (int side : {0, 1}) {
            ids[side] = vocabulary_.find(sides[side]);
            require(ids[side] >= 0, origin, ": model.merges[", rank, "]: \"", sides[side], "\" is not in the vocabulary");
        }
        const std::string both = std::string(sides[0]) + std::string(sides[1]);
        const int32_t merged = vocabulary_.find(both);
        require(merged >= 0, origin, ": model.merges[", rank, "]: it makes \"", both, "\", which is not in the vocabulary");
        merges_.add(ids[0], ids[1], {int32_t(rank), merged});
    }

    /// The symbols that merging begins with: bytes, or characters.
    void begin(std::string_view piece, std::vector<int32_t>& symbols) const {
        bool pending = false;  // an unknown character that the next may still join
        const auto add = [&](int32_t id) {
            if (std::exchange(pending, false)) symbols.push_back(unknown_);
            symbols.push_back(id);
        };
        const auto unknown = [&](std::string_view character) {
            const bool bytes = options_.byte_fallback && std::all_of(character.begin(), character.end(), [&](unsigned char b) { return fallback_[b] >= 0; });
            if (bytes) {
                for (unsigned char b : character) symbols.push_back(fallback_[b]);
            } else if (unknown_ >= 0) {
                if (pending && !options_.fuse_unknown) symbols.push_back(unknown_);
                pending = true;
            }
        };
        if (byte_level_) {
            for (unsigned char b : piece) byte_ids_[b] >= 0 ? add(byte_ids_[b]) : unknown(spelling_[b]);
        } else {
            for (size_t at = 0; at < piece.size();) {
                const std::string_view character = piece.substr(at, utf8_at(piece, at).length);
                const int32_t id = vocabulary_.find(character);
                id >= 0 ? add(id) : unknown(character);
                at += character.size();
            }
        }
        if (pending) symbols.push_back(unknown_);
    }
};

// ---- Begin and end tokens ------------------------------------------------------------------------------------------------------

struct SpecialTokens {
    std::vector<int32_t> before, after;
};

/// TemplateProcessing's "single": the text, and special tokens around it.
void read_template(ObjectReader& reader, SpecialTokens& out) {
    const json& single = reader.member("single");
    const json& tokens = reader.member("special_tokens");
    reader.member("pair");  // for two texts, which nobody gives here
    if (!single.is_array() || !tokens.is_object()) reader.refuse("single", "expected a template");
    bool text_seen = false;
    for (const json& part : single) {
        ObjectReader item(part, reader.where() + ".single");
        if (item.has("Sequence")) {
            if (text_seen || item.member("Sequence").value("id", "A") != "A") item.refuse("Sequence", "expected the text once");
            text_seen = true;
        } else {
            const json& token = item.member("SpecialToken");
            const std::string name = token.is_object() ? token.value("id", "") : "";
            if (!tokens.contains(name) || !tokens[name].contains("ids")) item.refuse("SpecialToken", "is not among special_tokens");
            for (const json& id : tokens[name]["ids"]) {
                if (!id.is_number_integer()) item.refuse("SpecialToken", "has ids that are no integers");
                (text_seen ? out.after : out.before).push_back(id.get<int32_t>());
            }
        }
        item.finish();
    }
    if (!text_seen) reader.refuse("single", "does not contain the text");
}

void read_post_processor(const json& spec, const std::string& where, SpecialTokens& out, int depth = 0) {
    if (spec.is_null()) return;
    ObjectReader reader(spec, where);
    const std::string type = reader.string("type");
    if (type == "ByteLevel") {  // changes offsets only
        for (const char* name : {"add_prefix_space", "trim_offsets", "use_regex"}) reader.boolean(name, true);
    } else if (type == "TemplateProcessing") {
        read_template(reader, out);
    } else if (type == "Sequence") {
        const json& list = reader.member("processors");
        if (!list.is_array() || depth >= 10) reader.refuse("processors", "expected an array, at most ten within each other");
        for (size_t i = 0; i < list.size(); i++) read_post_processor(list[i], text(where, ".processors[", i, "]"), out, depth + 1);
    } else {
        reader.refuse("type", "supported are ByteLevel, TemplateProcessing and Sequence");
    }
    reader.finish();
}

/// Whether tokens spell bytes; otherwise (no decoder) decoding puts spaces between them, as Hugging Face does.
bool read_decoder(const json& spec, const std::string& where) {
    if (spec.is_null()) return false;
    ObjectReader reader(spec, where);
    const std::string type = reader.string("type");
    bool bytes = true;
    if (type == "ByteLevel") {
        for (const char* name : {"add_prefix_space", "trim_offsets", "use_regex"}) reader.boolean(name, true);
    } else if (type == "Sequence") {
        const json& list = reader.member("decoders");
        if (!list.is_array() || list.size() != 1) reader.refuse("decoders", "expected an array with a ByteLevel decoder alone");
        bytes = read_decoder(list[0], where + ".decoders[0]");
    } else {
        reader.refuse("type", "only ByteLevel is supported");
    }
    reader.finish();
    return bytes;
}

// ---- The tokenizer -------------------------------------------------------------------------------------------------------------

class JsonTokenizer final : public Tokenizer {
public:
    JsonTokenizer(TokenizerFile file, const std::string& origin, const std::string& end_of_document)
        : Tokenizer(std::move(file)), parts_(read_tokenizer_json(Tokenizer::file().contents, origin)), reader_(parts_.rest, origin),
          normalizer_(reader_.member("normalizer"), origin), pre_tokenizer_(reader_.member("pre_tokenizer"), origin),
          options_(read_model(parts_, reader_.member("model"), origin)), vocabulary_(finished_vocabulary(parts_, origin)),
          tokens_(all_tokens(parts_, origin)), model_(parts_, options_, vocabulary_, pre_tokenizer_.byte_level(), origin) {
        read_post_processor(reader_.member("post_processor"), origin + ": post_processor", special_);
        byte_decoder_ = read_decoder(reader_.member("decoder"), origin + ": decoder");
        // Texts are never cut or filled up here.
        for (const char* name : {"version", "truncation", "padding"}) reader_.member(name);
        const json& added = reader_.member("added_tokens");  // its objects are in parts_.added
        if (!added.is_null() && !(added.is_array() && added.empty())) reader_.refuse("added_tokens", "expected an array of objects");
        reader_.finish();
        for (const std::vector<int32_t>* ids : {&special_.before, &special_.after})
            for (int32_t id : *ids) require(tokens_.has(id), origin, ": post_processor: there is no token with the id ", id);
        add_matchers(origin);
        fill_bytes();
        merge_count_ = model_.merges().count();
        parts_ = {};
        end_ = choose_end_token(*this, end_of_document, origin);
    }

    void encode(std::string_view text, std::vector<int32_t>& ids) const override {
        const auto scratch = pool_.borrow([&] { return std::make_unique<Scratch>(model_.merges()); });
        cut(raw_, valid_utf8(text, scratch->valid), ids, [&](std::string_view part) {
            if (!normalizer_.changes_nothing()) part = scratch->normalized = normalizer_.normalize(part);
            cut(normalized_, part, ids, [&](std::string_view rest) {
                pre_tokenizer_.split(rest, [&](std::string_view piece) { model_.encode(piece, scratch->model, ids); });
            });
        });
    }
    void add_special_tokens(std::vector<int32_t>& ids, size_t first) const override {
        ids.insert(ids.begin() + int64_t(first), special_.before.begin(), special_.before.end());
        ids.insert(ids.end(), special_.after.begin(), special_.after.end());
    }
    std::string token_bytes(int32_t id) const override {
        CLOVER_CHECK(id >= 0 && id < vocab_size(), "token ", id);
        return is_special(id) ? std::string() : bytes_[size_t(id)];
    }
    std::string token_name(int32_t id) const override {
        CLOVER_CHECK(id >= 0 && id < vocab_size(), "token ", id);
        return tokens_.has(id) ? std::string(tokens_.token(id)) : std::string();
    }
    int32_t find_token(std::string_view name) const override { return tokens_.find(name); }
    int32_t vocab_size() const override { return tokens_.size(); }
    int32_t end_of_document() const override { return end_; }
    std::unique_ptr<Decoder> decoder(bool special) const override { return std::make_unique<JsonDecoder>(*this, special); }

    std::vector<std::pair<std::string, std::string>> description() const override {
        std::string special;
        for (int32_t id = 0; id < vocab_size(); id++)
            if (is_special(id)) special += clover::text(special.empty() ? "" : ", ", token_name(id), " (", id, ")");
        return {{"model", clover::text(pre_tokenizer_.byte_level() ? "byte-level BPE, " : "BPE, ", merge_count_, " merges")},
                {"normalizer", normalizer_.changes_nothing() ? "none" : normalizer_.description()},
                {"special tokens", special.empty() ? "none" : special}};
    }

private:
    struct Scratch {
        explicit Scratch(const MergeTable& merges) : model(merges) {}
        std::string valid, normalized;
        BytePairModel::Scratch model;
    };

    /// Joins the bytes of tokens; what is no UTF-8 becomes U+FFFD, but not before it is certain.
    class JsonDecoder final : public Decoder {
    public:
        JsonDecoder(const JsonTokenizer& tokenizer, bool special) : tokenizer_(tokenizer), special_(special) {}
        void push(int32_t id, std::string& text) override {
            CLOVER_CHECK(id >= 0 && id < tokenizer_.vocab_size(), "token ", id);
            if (!tokenizer_.tokens_.has(id) || (tokenizer_.is_special(id) && !special_)) return;
            if (!tokenizer_.byte_decoder_ && !std::exchange(first_, false)) held_ += ' ';
            held_ += tokenizer_.bytes_[size_t(id)];
            release(held_.size() - incomplete_utf8(held_), text);
        }
        void finish(std::string& text) override {
            release(held_.size(), text);
            first_ = true;
        }

    private:
        const JsonTokenizer& tokenizer_;
        bool special_, first_ = true;
        std::string held_, scratch_;
        void release(size_t bytes, std::string& text) {
            text += valid_utf8(std::string_view(held_).substr(0, bytes), scratch_);
            held_.erase(0, bytes);
        }
    };

    static TokenTable finished_vocabulary(TokenizerJsonFile& parts, const std::string& origin) {
        TokenTable vocabulary = std::move(parts.vocabulary);
        require(vocabulary.count() > 0, origin, ": model.vocab: there are no tokens");
        vocabulary.finish(origin + ": model.vocab");
        return vocabulary;
    }
    /// The vocabulary and the added tokens beyond it. Hugging Face passes over the ids of added tokens: one that is in model.vocab has that id, others are numbered on
    /// from the number of tokens in model.vocab. A file that says otherwise would give other ids here and there.
    TokenTable all_tokens(TokenizerJsonFile& parts, const std::string& origin) const {
        TokenTable tokens = vocabulary_;
        int32_t next = int32_t(vocabulary_.count());
        for (const AddedToken& token : parts.added) {
            if (token.content.empty()) continue;
            const int32_t known = tokens.find(token.content), expected = known >= 0 ? known : next;
            require(token.id == expected, origin, ": added_tokens: \"", token.content, "\" has the id ", token.id, ", but Hugging Face's tokenizers gives it ", expected,
                    known >= 0 ? ", that of the same token before" : ", the next after those before");
            next = std::max(next, token.id + 1);
            tokens.add(token.content, token.id);
        }
        tokens.finish(origin + ": added_tokens");
        return tokens;
    }
    void add_matchers(const std::string& origin) {
        special_ids_.assign(size_t(vocab_size()), false);
        for (const AddedToken& token : parts_.added) {
            if (token.content.empty()) continue;
            const std::string spelling = token.normalized ? normalizer_.normalize(token.content) : token.content;
            require(!spelling.empty(), origin, ": added_tokens: nothing is left of \"", token.content, "\" when it is normalized");
            if (token.normalized) normalized_.add(token, spelling);
            else raw_.add(token, token.content);
            special_ids_[size_t(token.id)] = special_ids_[size_t(token.id)] || token.special;
        }
        raw_.finish();
        normalized_.finish();
    }
    void fill_bytes() {
        bytes_.resize(size_t(vocab_size()));
        const auto decoded = [&](std::string_view token) { return byte_decoder_ ? bytes_of_spelling(token) : std::string(token); };
        for (int32_t id = 0; id < vocab_size(); id++)
            if (tokens_.has(id)) bytes_[size_t(id)] = decoded(tokens_.token(id));
        // A token that is looked for in normalized text also decodes to that.
        for (const AddedToken& token : parts_.added)
            if (token.normalized && !token.content.empty()) bytes_[size_t(token.id)] = decoded(normalizer_.normalize(token.content));
    }
    bool is_special(int32_t id) const { return special_ids_[size_t(id)]; }

    template <class F>
    static void cut(const AddedTokenMatcher& matcher, std::string_view text, std::vector<int32_t>& ids, F&& rest) {
        if (matcher.empty()) {
            if (!text.empty()) rest(text);
            return;
        }
        matcher.split(text, [&](std::string_view part, int32_t id) { id < 0 ? rest(part) : ids.push_back(id); });
    }

    TokenizerJsonFile parts_;  // while under construction
    ObjectReader reader_;
    Normalizer normalizer_;
    PreTokenizer pre_tokenizer_;
    ModelOptions options_;
    TokenTable vocabulary_, tokens_;
    BytePairModel model_;
    AddedTokenMatcher raw_, normalized_;
    SpecialTokens special_;
    std::vector<bool> special_ids_;
    std::vector<std::string> bytes_;  // that each token decodes to
    bool byte_decoder_ = false;
    int32_t end_ = -1;
    int64_t merge_count_ = 0;
    mutable ScratchPool<Scratch> pool_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer_json(TokenizerFile file, const std::string& origin, const std::string& end_of_document) {
    return std::make_unique<JsonTokenizer>(std::move(file), origin, end_of_document);
}

}  // namespace clover
