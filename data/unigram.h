// Segmentation by a unigram language model (Kudo 2018): of all ways to write the text as a row of pieces, the one whose scores (log probabilities) have the
// largest sum, found by Viterbi's algorithm in time O(n · longest piece). A character that is no piece by itself may also be unknown, at the lowest score − 10;
// a user-defined piece of n bytes scores n · the highest score − 0.1. As in the reference program the sum up to a place is rounded to float32, and of equal
// sums that with the last piece that begins first stands.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "piece_output.h"
#include "piece_trie.h"
#include "sentencepiece_model.h"

namespace clover {

class UnigramEncoder {
public:
    /// The model must outlive the object.
    explicit UnigramEncoder(const SentencePieceModel& model, const std::string& origin);

    /// The best way to a place: its sum, its last piece (−n: n unknown bytes; 0 bytes: none yet).
    struct Place {
        float score = 0;
        int32_t bytes = 0, id = -1;
    };
    /// Memory of one thread, kept between calls; `score` is the sum up to the last cut, 0 where a text begins.
    struct Workspace {
        float score = 0;
        std::vector<Place> places;
        std::vector<Place> path;
    };
    /// Encodes the text between two cuts (PieceCuts), one after the other.
    void encode(std::string_view text, Workspace& workspace, PieceOutput& output) const;

private:
    void find_paths(std::string_view text, std::vector<Place>& places) const;

    const SentencePieceModel& model_;
    PieceTrie trie_;
    std::vector<double> scores_;  // of each piece
    float unknown_score_ = 0;
};

}  // namespace clover
