// SentencePiece's byte-pair encoding (Sennrich et al. 2016): of all neighbours whose concatenation is a piece, the two whose piece has the highest score are
// merged, the leftmost on a tie, until none are left. Symbols start as characters, user-defined pieces as wholes that take no part in merging.
// Time is O(n log n) by a priority queue. A piece of type UNUSED may appear on the way, but in the result it is taken apart again into the two it was merged from.
// The model type CHAR is the same without merging.
#pragma once
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "piece_output.h"
#include "piece_table.h"
#include "piece_trie.h"
#include "sentencepiece_model.h"

namespace clover {

class SentencePieceBpe {
public:
    /// All must outlive the object.
    SentencePieceBpe(const SentencePieceModel& model, const PieceTable& table, const PieceTrie& user_defined);

    struct Symbol {
        uint32_t begin = 0, length = 0;  // length 0: merged into the one before
        int32_t previous = -1, next = -1;
        bool frozen = false;
    };
    struct Merge {
        float score = 0;
        int32_t left = 0, right = 0;
        uint32_t length = 0;  // bytes of both together: another sum shows that one of them has changed since
        bool operator<(const Merge& other) const { return score < other.score || (score == other.score && left > other.left); }
    };
    /// Memory of one thread, kept between calls.
    struct Workspace {
        std::vector<Symbol> symbols;
        std::vector<Merge> queue;
        std::unordered_map<int32_t, uint32_t> unused;  // of an UNUSED piece: length of the left of the two it was last seen to come from
    };
    /// Encodes a text between two cuts (PieceCuts), of less than 2 GiB. With UNUSED pieces it must be the whole text: which two an UNUSED piece is taken apart into
    /// depends on all of it.
    void encode(std::string_view text, Workspace& workspace, PieceOutput& output) const;
    bool needs_whole_text() const { return has_unused_; }

private:
    void split(std::string_view text, Workspace& workspace) const;
    void merge(std::string_view text, Workspace& workspace) const;
    void offer(std::string_view text, int32_t left, int32_t right, Workspace& workspace) const;
    void add(std::string_view piece, const Workspace& workspace, PieceOutput& output) const;
    int32_t whole_piece(std::string_view text) const;
    void find_whole_pieces();

    const SentencePieceModel& model_;
    const PieceTable& table_;
    const PieceTrie& user_defined_;
    bool has_unused_ = false;
    std::vector<bool> whole_;  // of each short piece: whether its own text becomes this piece and no other
};

}  // namespace clover
