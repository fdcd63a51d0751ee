#include "piece_table.h"

#include <bit>

#include "../kernels/error.h"

namespace clover {
namespace {

constexpr size_t most_probes = 4096;  // a hundred would be much, unless someone has chosen the pieces for it

/// The bytes of the character as one number, its length in `length`.
uint32_t character_at(std::string_view text, size_t at, size_t& length) {
    length = character_length(text, at);
    uint32_t character = 0;
    for (size_t i = 0; i < length; i++) character = character << 8 | static_cast<unsigned char>(text[at + i]);
    return character;
}

}  // namespace

PieceTable::PieceTable(const std::vector<SentencePiece>& pieces, const std::string& origin)
    : pieces_(pieces), slots_(std::bit_ceil(pieces.size() * 2 + 1)), mask_(slots_.size() - 1) {
    for (size_t id = 0; id < pieces.size(); id++) {
        const uint64_t hash = hash64(pieces[id].text);
        size_t i = hash & mask_, probes = 0;
        for (; slots_[i].id >= 0; i = (i + 1) & mask_) {
            require(pieces[size_t(slots_[i].id)].text != pieces[id].text, origin, ": pieces ", slots_[i].id, " and ", id, " are both ",
                    quoted_piece(pieces[id].text), ", expected each piece once");
            require(++probes < most_probes, origin, ": piece ", id, ", ", quoted_piece(pieces[id].text), ", is one of too many with nearly the same hash");
        }
        slots_[i] = {uint32_t(hash >> 32), int32_t(id)};
    }
}

PieceCuts::PieceCuts(const std::vector<SentencePiece>& pieces) : joined_((size_t{1} << bits) / 64) {
    for (const SentencePiece& piece : pieces) {
        if (!piece.in_text()) continue;
        size_t length = 0;
        uint32_t before = character_at(piece.text, 0, length);
        for (size_t at = length; at < piece.text.size(); at += length) {
            const uint32_t character = character_at(piece.text, at, length);
            const size_t bit = pair_bit(before, character);
            joined_[bit / 64] |= uint64_t{1} << bit % 64;
            before = character;
        }
    }
}

size_t PieceCuts::next(std::string_view text, size_t begin) const {
    size_t length = 0;
    uint32_t before = character_at(text, begin, length);
    size_t at = begin + length;
    while (at < text.size()) {
        const uint32_t character = character_at(text, at, length);
        const size_t bit = pair_bit(before, character);
        if ((joined_[bit / 64] >> bit % 64 & 1) == 0) break;
        before = character;
        at += length;
    }
    return at;
}

}  // namespace clover
