// The pieces of a SentencePiece model by their spelling, and where text can be cut so that no piece lies across.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hash.h"
#include "sentencepiece_model.h"

namespace clover {

class PieceTable {
public:
    /// Keeps a reference to `pieces`. Throws InputError if two have one spelling.
    PieceTable(const std::vector<SentencePiece>& pieces, const std::string& origin);
    /// The piece's id, or -1.
    int32_t find(std::string_view text) const {
        const uint64_t hash = hash64(text);
        for (size_t i = hash & mask_; slots_[i].id >= 0; i = (i + 1) & mask_)
            if (slots_[i].tag == uint32_t(hash >> 32) && pieces_[size_t(slots_[i].id)].text == text) return slots_[i].id;
        return -1;
    }

private:
    struct Slot {
        uint32_t tag = 0;  // the upper half of the hash
        int32_t id = -1;
    };
    const std::vector<SentencePiece>& pieces_;
    std::vector<Slot> slots_;  // linear probing, at most half full
    size_t mask_;
};

/// Bytes of the character at text[at], by its first byte; what is not UTF-8 counts as some character too.
inline size_t character_length(std::string_view text, size_t at) {
    const unsigned lead = static_cast<unsigned char>(text[at]);
    const size_t length = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    return std::min(length, text.size() - at);
}

/// Between two characters that follow one another in no piece, no piece lies, and neither algorithm looks across: BPE merges each side as if it were alone, and
/// the best path through a unigram model passes there.
class PieceCuts {
public:
    /// Of the pieces that text can become.
    explicit PieceCuts(const std::vector<SentencePiece>& pieces);
    /// The next place after `begin` < text.size() where the text may be cut, or its end.
    size_t next(std::string_view text, size_t begin) const;

private:
    static constexpr int bits = 22;
    static size_t pair_bit(uint32_t a, uint32_t b) { return (a * 0x9e3779b97f4a7c15 ^ b * 0xff51afd7ed558ccd) * 0xc4ceb9fe1a85ec53 >> (64 - bits); }

    std::vector<uint64_t> joined_;  // a bit for each hash of two characters that stand together in a piece: a shared bit costs a cut, no more
};

}  // namespace clover
