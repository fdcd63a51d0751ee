#include "unigram.h"

#include <algorithm>
#include <limits>

#include "../kernels/error.h"
#include "piece_table.h"

namespace clover {
namespace {

using Type = SentencePiece::Type;

constexpr float unknown_penalty = 10;

std::vector<PieceTrie::Entry> entries_of(const SentencePieceModel& model, const std::string& origin) {
    std::vector<PieceTrie::Entry> entries;
    entries.reserve(model.pieces.size());
    for (size_t id = 0; id < model.pieces.size(); id++) {
        const Type type = model.pieces[id].type;
        if (type == Type::normal || type == Type::user_defined) entries.push_back({model.pieces[id].text, int32_t(id)});
    }
    const size_t nodes = PieceTrie::count_nodes(entries);
    require(nodes <= PieceTrie::most_nodes, origin, ": the trie of the pieces has ", nodes, " nodes, at most ", PieceTrie::most_nodes, " are supported");
    return entries;
}

}  // namespace

UnigramEncoder::UnigramEncoder(const SentencePieceModel& model, const std::string& origin)
    : model_(model), trie_(entries_of(model, origin)), scores_(model.pieces.size()) {
    // The reference program starts its search for the highest score at the smallest positive float.
    float lowest = std::numeric_limits<float>::max(), highest = std::numeric_limits<float>::min();
    for (const SentencePiece& piece : model.pieces) {
        if (piece.type != Type::normal) continue;
        lowest = std::min(lowest, piece.score);
        highest = std::max(highest, piece.score);
    }
    unknown_score_ = lowest - unknown_penalty;
    for (size_t id = 0; id < scores_.size(); id++) {
        const SentencePiece& piece = model.pieces[id];
        scores_[id] = piece.type == Type::user_defined ? double(float(piece.text.size()) * highest) - 0.1 : double(piece.score);
    }
}

void UnigramEncoder::find_paths(std::string_view text, std::vector<Place>& places) const {
    for (size_t begin = 0; begin < text.size();) {
        const size_t character = character_length(text, begin);
        const float score = places[begin].score;
        bool is_piece = false;
        uint32_t node = PieceTrie::root;
        for (size_t at = begin; at < text.size(); at++) {
            node = trie_.next(node, static_cast<unsigned char>(text[at]));
            if (node == PieceTrie::root) break;
            const int32_t id = trie_.id(node);
            if (id < 0) continue;
            Place& end = places[at + 1];
            const double candidate = scores_[size_t(id)] + double(score);
            const size_t bytes = at + 1 - begin;
            if (end.bytes == 0 || candidate > double(end.score)) end = {float(candidate), int32_t(bytes), id};
            is_piece = is_piece || bytes == character;
        }
        if (!is_piece) {
            Place& end = places[begin + character];
            const float candidate = unknown_score_ + score;
            if (end.bytes == 0 || candidate > end.score) end = {candidate, int32_t(character), -1};
        }
        begin += character;
    }
}

void UnigramEncoder::encode(std::string_view text, Workspace& workspace, PieceOutput& output) const {
    std::vector<Place>& places = workspace.places;
    places.assign(text.size() + 1, Place());
    places[0].score = workspace.score;
    find_paths(text, places);
    workspace.score = places.back().score;
    std::vector<Place>& path = workspace.path;
    path.clear();
    for (size_t end = text.size(); end > 0; end -= size_t(places[end].bytes)) path.push_back(places[end]);
    size_t begin = 0;
    for (auto piece = path.rbegin(); piece != path.rend(); begin += size_t(piece->bytes), ++piece) {
        if (piece->id >= 0) output.add(piece->id);
        else output.add_unknown(text.substr(begin, size_t(piece->bytes)));
    }
}

}  // namespace clover
