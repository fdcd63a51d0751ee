#include "sentencepiece_bpe.h"

#include <algorithm>

#include "../kernels/error.h"

namespace clover {
namespace {

constexpr size_t whole_bytes = 48;  // most words are shorter

using Type = SentencePiece::Type;

}  // namespace

SentencePieceBpe::SentencePieceBpe(const SentencePieceModel& model, const PieceTable& table, const PieceTrie& user_defined)
    : model_(model), table_(table), user_defined_(user_defined) {
    for (const SentencePiece& piece : model.pieces) has_unused_ = has_unused_ || piece.type == Type::unused;
    if (!has_unused_) find_whole_pieces();
}

void SentencePieceBpe::find_whole_pieces() {
    std::vector<bool> whole(model_.pieces.size());
    Workspace workspace;
    for (size_t id = 0; id < whole.size(); id++) {
        const SentencePiece& piece = model_.pieces[id];
        if (!piece.in_text() || piece.text.size() > whole_bytes) continue;
        std::vector<int32_t> ids;
        PieceOutput output(model_, ids);
        encode(piece.text, workspace, output);
        whole[id] = ids.size() == 1 && ids[0] == int32_t(id);
    }
    whole_ = std::move(whole);
}

int32_t SentencePieceBpe::whole_piece(std::string_view text) const {
    if (whole_.empty() || text.size() > whole_bytes) return -1;
    const int32_t id = table_.find(text);
    return id >= 0 && whole_[size_t(id)] ? id : -1;
}

void SentencePieceBpe::encode(std::string_view text, Workspace& workspace, PieceOutput& output) const {
    CLOVER_CHECK(text.size() < size_t{1} << 31, text.size(), " bytes between two cuts");
    if (const int32_t id = whole_piece(text); id >= 0) return output.add(id);
    split(text, workspace);
    if (model_.kind == SentencePieceModel::Kind::bpe) merge(text, workspace);
    for (int32_t i = 0; i >= 0; i = workspace.symbols[size_t(i)].next) {
        const Symbol& symbol = workspace.symbols[size_t(i)];
        add(text.substr(symbol.begin, symbol.length), workspace, output);
    }
}

void SentencePieceBpe::split(std::string_view text, Workspace& workspace) const {
    std::vector<Symbol>& symbols = workspace.symbols;
    symbols.clear();
    for (size_t at = 0; at < text.size();) {
        Symbol symbol;
        symbol.begin = uint32_t(at);
        symbol.length = uint32_t(user_defined_.longest(text, at));
        symbol.frozen = symbol.length > 0;
        if (!symbol.frozen) symbol.length = uint32_t(character_length(text, at));
        symbol.previous = int32_t(symbols.size()) - 1;
        symbol.next = int32_t(symbols.size()) + 1;
        at += symbol.length;
        symbols.push_back(symbol);
    }
    symbols.back().next = -1;
}

/// Queues two neighbours if together they are a piece.
void SentencePieceBpe::offer(std::string_view text, int32_t left, int32_t right, Workspace& workspace) const {
    if (left < 0 || right < 0) return;
    const Symbol &a = workspace.symbols[size_t(left)], &b = workspace.symbols[size_t(right)];
    const uint32_t length = a.length + b.length;
    if (a.frozen || b.frozen || length > model_.longest) return;
    const int32_t id = table_.find(text.substr(a.begin, length));
    if (id < 0 || !model_.pieces[size_t(id)].in_text()) return;
    workspace.queue.push_back({model_.pieces[size_t(id)].score, left, right, length});
    if (model_.pieces[size_t(id)].type == Type::unused) workspace.unused[id] = a.length;
}

void SentencePieceBpe::merge(std::string_view text, Workspace& workspace) const {
    std::vector<Symbol>& symbols = workspace.symbols;
    std::vector<Merge>& queue = workspace.queue;
    queue.clear();
    workspace.unused.clear();
    for (int32_t i = 1; i < int32_t(symbols.size()); i++) offer(text, i - 1, i, workspace);
    std::make_heap(queue.begin(), queue.end());
    const auto offer_new = [&](int32_t left, int32_t right) {
        const size_t before = queue.size();
        offer(text, left, right, workspace);
        if (queue.size() > before) std::push_heap(queue.begin(), queue.end());
    };
    while (!queue.empty()) {
        std::pop_heap(queue.begin(), queue.end());
        const Merge best = queue.back();
        queue.pop_back();
        Symbol &left = symbols[size_t(best.left)], &right = symbols[size_t(best.right)];
        if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) continue;
        left.length += right.length;
        right.length = 0;
        left.next = right.next;
        if (left.next >= 0) symbols[size_t(left.next)].previous = best.left;
        offer_new(left.previous, best.left);
        offer_new(best.left, left.next);
    }
}

/// Adds a symbol of the result, an UNUSED piece in its parts.
void SentencePieceBpe::add(std::string_view piece, const Workspace& workspace, PieceOutput& output) const {
    const int32_t id = table_.find(piece);
    if (id < 0 || !model_.pieces[size_t(id)].in_text()) return output.add_unknown(piece);
    if (model_.pieces[size_t(id)].type == Type::unused) {
        if (const auto parts = workspace.unused.find(id); parts != workspace.unused.end()) {
            add(piece.substr(0, parts->second), workspace, output);
            return add(piece.substr(parts->second), workspace, output);
        }
    }
    output.add(id);
}

}  // namespace clover
