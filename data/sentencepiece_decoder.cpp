#include "sentencepiece_decoder.h"

#include <algorithm>

#include "../kernels/error.h"
#include "utf8.h"

namespace clover {

using Type = SentencePiece::Type;

void SentencePieceDecoder::push(int32_t id, std::string& text) {
    CLOVER_CHECK(id >= 0 && size_t(id) < model_.pieces.size(), "token ", id, " of ", model_.pieces.size());
    const SentencePiece& piece = model_.pieces[size_t(id)];
    if (piece.type == Type::byte) {
        bytes_ += char(spelled_byte(piece.text));
        return end_bytes(false, text);
    }
    end_bytes(true, text);
    if (piece.type == Type::control && special_) {
        const bool begun = begun_;
        show(piece.text, text);
        begun_ = begun;
    }
    show_piece(piece, text);
}

void SentencePieceDecoder::finish(std::string& text) {
    end_bytes(true, text);
    denormalize(true, text);
    begun_ = prefix_seen_ = false;
    at_begin_ = true;
}

/// Shows the characters of a run of byte pieces; `at_end`: no more bytes follow.
void SentencePieceDecoder::end_bytes(bool at_end, std::string& text) {
    while (!bytes_.empty() && (at_end || incomplete_utf8(bytes_) < bytes_.size())) {
        const Utf8Character c = utf8_at(bytes_, 0);
        show(c.valid ? std::string_view(bytes_).substr(0, c.length) : "\xef\xbf\xbd", text);
        bytes_.erase(0, c.valid ? c.length : 1);
    }
}

void SentencePieceDecoder::show_piece(const SentencePiece& piece, std::string& text) {
    if (prefix_seen_ || begun_) at_begin_ = false;
    prefix_seen_ = false;
    if (piece.type == Type::control) return;
    if (piece.type == Type::unknown) return show(model_.unknown_surface, text);
    std::string_view rest = piece.text;
    const NormalizerSpec& spec = model_.normalizer;
    if (at_begin_ && (spec.add_dummy_prefix || spec.remove_extra_whitespaces) && rest.starts_with(space_symbol)) {
        rest.remove_prefix(space_symbol.size());
        prefix_seen_ = !spec.remove_extra_whitespaces;
    }
    for (size_t at = 0; at < rest.size();) {
        const size_t space = std::min(rest.find(space_symbol, at), rest.size());
        show(rest.substr(at, space - at), text);
        if (space < rest.size()) show(" ", text);
        at = space + space_symbol.size();
    }
}

void SentencePieceDecoder::show(std::string_view shown, std::string& text) {
    begun_ = begun_ || !shown.empty();
    if (denormalizer_ == nullptr) {
        text += shown;
    } else {
        held_ += shown;
        denormalize(false, text);
    }
}

void SentencePieceDecoder::denormalize(bool at_end, std::string& text) {
    size_t at = 0;
    while (at < held_.size()) {
        const SentencePieceNormalizer::Step step = denormalizer_->step(held_, at);
        if (step.undecided && !at_end) break;
        text += step.replacement;
        at += step.length;
    }
    held_.erase(0, at);
}

}  // namespace clover
