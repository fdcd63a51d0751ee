// From SentencePiece ids to text. U+2581 becomes a space; a run of byte pieces becomes characters, each byte that belongs to none U+FFFD; the unknown piece
// becomes unk_surface; control pieces vanish. Of the first piece that shows anything a leading U+2581 is dropped, if the model adds a dummy prefix; of all pieces
// up to there, if it removes extra spaces. A denormalizer in the file replaces strings in the result.
#pragma once
#include <string>
#include <string_view>

#include "sentencepiece_model.h"
#include "sentencepiece_normalizer.h"
#include "tokenizer.h"

namespace clover {

class SentencePieceDecoder final : public Decoder {
public:
    /// `denormalizer` may be null. Both must outlive the decoder.
    SentencePieceDecoder(const SentencePieceModel& model, const SentencePieceNormalizer* denormalizer, bool special)
        : model_(model), denormalizer_(denormalizer), special_(special) {}
    void push(int32_t id, std::string& text) override;
    void finish(std::string& text) override;

private:
    void end_bytes(bool at_end, std::string& text);
    void show_piece(const SentencePiece& piece, std::string& text);
    void show(std::string_view shown, std::string& text);
    void denormalize(bool at_end, std::string& text);

    const SentencePieceModel& model_;
    const SentencePieceNormalizer* denormalizer_;
    bool special_;
    bool begun_ = false;        // something has been shown
    bool at_begin_ = true;      // a leading U+2581 is dropped
    bool prefix_seen_ = false;  // the piece before was the dummy prefix
    std::string bytes_;         // of a run of byte pieces, what may still become a character
    std::string held_;          // before the denormalizer, what more text may change
};

}  // namespace clover
