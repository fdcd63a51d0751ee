// The last step of SentencePiece's encoding: what is no piece becomes its bytes, or one unknown piece for a run of it.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "sentencepiece_model.h"

namespace clover {

class PieceOutput {
public:
    /// Ids are appended to `ids`.
    PieceOutput(const SentencePieceModel& model, std::vector<int32_t>& ids) : model_(model), ids_(ids) {}
    void add(int32_t id) {
        ids_.push_back(id);
        after_unknown_ = false;
    }
    void add_unknown(std::string_view text) {
        if (model_.byte_fallback) {
            for (unsigned char c : text) ids_.push_back(model_.byte_ids[c]);
        } else if (!after_unknown_) {
            ids_.push_back(model_.unknown_id);
            after_unknown_ = true;
        }
    }

private:
    const SentencePieceModel& model_;
    std::vector<int32_t>& ids_;
    bool after_unknown_ = false;
};

}  // namespace clover
