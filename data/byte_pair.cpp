#include "byte_pair.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "hash.h"

namespace clover {

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
    if (slots_.size() < 2 * size_t(count_ + 1)) {
        std::vector<Slot> old(std::max<size_t>(16, slots_.size() * 2));
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (slot.merge.rank < 0) continue;
            size_t i = place_of(slot.key);
            while (slots_[i].merge.rank >= 0) i = (i + 1) & (slots_.size() - 1);
            slots_[i] = slot;
        }
    }
    const uint64_t key = key_of(left, right);
    size_t i = place_of(key);
    while (slots_[i].merge.rank >= 0 && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    if (slots_[i].merge.rank < 0) count_++;
    slots_[i] = {key, merge};
}

void PairMerger::merge(std::vector<int32_t>& symbols) {
    if (symbols.size() < 2) return;
    if (symbols.size() <= 24) merge_short(symbols);
    else merge_long(symbols);
}

/// The ranks of all pairs side by side; the lowest is looked for, merged, and its two neighbours looked up again.
void PairMerger::merge_short(std::vector<int32_t>& symbols) {
    constexpr int32_t none = INT32_MAX;
    const auto rank_of = [&](size_t i) {
        const int32_t rank = i + 1 < symbols.size() ? table_.find(symbols[i], symbols[i + 1]).rank : -1;
        return rank < 0 ? none : rank;
    };
    ranks_.resize(symbols.size());
    for (size_t i = 0; i < symbols.size(); i++) ranks_[i] = rank_of(i);
    while (true) {
        const size_t best = size_t(std::min_element(ranks_.begin(), ranks_.end()) - ranks_.begin());
        if (ranks_[best] == none) return;
        symbols[best] = table_.find(symbols[best], symbols[best + 1]).id;
        symbols.erase(symbols.begin() + int64_t(best) + 1);
        ranks_.erase(ranks_.begin() + int64_t(best) + 1);
        ranks_[best] = rank_of(best);
        if (best > 0) ranks_[best - 1] = rank_of(best - 1);
    }
}

void PairMerger::offer(const std::vector<int32_t>& symbols, uint32_t left, uint32_t right) {
    const int32_t rank = table_.find(symbols[left], symbols[right]).rank;
    if (rank < 0) return;
    heap_.push_back({rank, left, symbols[left], symbols[right]});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void PairMerger::merge_long(std::vector<int32_t>& symbols) {
    const uint32_t n = uint32_t(symbols.size());
    next_.resize(n);
    before_.resize(n);
    heap_.clear();
    for (uint32_t i = 0; i < n; i++) {
        next_[i] = i + 1;
        before_[i] = i - 1;
        if (i + 1 == n) break;
        const int32_t rank = table_.find(symbols[i], symbols[i + 1]).rank;
        if (rank >= 0) heap_.push_back({rank, i, symbols[i], symbols[i + 1]});
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        const Candidate c = heap_.back();
        heap_.pop_back();
        // The pair may be gone: either symbol merged with another neighbour meanwhile.
        const uint32_t right = symbols[c.left] == c.left_id ? next_[c.left] : n;
        if (right >= n || symbols[right] != c.right_id) continue;
        symbols[c.left] = table_.find(c.left_id, c.right_id).id;
        symbols[right] = -1;
        next_[c.left] = next_[right];
        if (next_[c.left] < n) {
            before_[next_[c.left]] = c.left;
            offer(symbols, c.left, next_[c.left]);
        }
        if (c.left > 0) offer(symbols, before_[c.left], c.left);
    }
    std::erase(symbols, -1);
}

uint64_t PieceCache::hash(std::string_view piece) {
    // Eight bytes at a time; the last eight overlap those before.
    uint64_t h = piece.size() * 0x9e3779b97f4a7c15, part = 0;
    const char* p = piece.data();
    if (piece.size() < 8) {
        std::memcpy(&part, p, piece.size());
        return mix64(h ^ part);
    }
    const size_t last = piece.size() - 8;
    for (size_t i = 0; i < last; i += 8) {
        std::memcpy(&part, p + i, 8);
        h = (h ^ part) * 0xff51afd7ed558ccd;
        h ^= h >> 32;
    }
    std::memcpy(&part, p + last, 8);
    return mix64(h ^ part);
}

PieceCache::Ids PieceCache::find(std::string_view piece, uint64_t hash) const {
    if (slots_.empty()) return {};
    for (size_t i = size_t(hash) & (slots_.size() - 1); slots_[i].used; i = (i + 1) & (slots_.size() - 1)) {
        const Slot& s = slots_[i];
        if (s.hash == hash && std::string_view(bytes_).substr(s.bytes, s.length) == piece) return {ids_.data() + s.ids, s.count};
    }
    return {};
}

void PieceCache::grow() {
    if (slots_.size() == most_slots) {
        std::fill(slots_.begin(), slots_.end(), Slot{});
        bytes_.clear();
        ids_.clear();
        used_ = 0;
        return;
    }
    std::vector<Slot> old(std::max<size_t>(1024, slots_.size() * 2));
    old.swap(slots_);
    for (const Slot& slot : old) {
        if (!slot.used) continue;
        size_t i = size_t(slot.hash) & (slots_.size() - 1);
        while (slots_[i].used) i = (i + 1) & (slots_.size() - 1);
        slots_[i] = slot;
    }
}

void PieceCache::add(std::string_view piece, uint64_t hash, const int32_t* ids, size_t count) {
    if (piece.size() > longest) return;
    if (2 * (used_ + 1) > slots_.size()) grow();
    size_t i = size_t(hash) & (slots_.size() - 1);
    while (slots_[i].used) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {hash, uint32_t(bytes_.size()), uint32_t(ids_.size()), uint16_t(piece.size()), uint16_t(count), true};
    bytes_ += piece;
    ids_.insert(ids_.end(), ids, ids + count);
    used_++;
}

}  // namespace clover
