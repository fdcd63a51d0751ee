// Byte-pair encoding of one piece of text (Sennrich et al. 2016): from single symbols on, the adjacent pair with the lowest rank is merged, of equals the leftmost,
// until no adjacent pair has a rank. A heap over a linked list makes that O(n log n) for a piece of n symbols; what short pieces became is remembered.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace clover {

/// (left id, right id) → (rank, id of the two merged): open addressing, 16 bytes a slot.
class MergeTable {
public:
    struct Merge {
        int32_t rank = -1;  // -1: the pair is not merged
        int32_t id = -1;
    };
    /// Of the same pair the last counts.
    void add(int32_t left, int32_t right, Merge merge);
    Merge find(int32_t left, int32_t right) const {
        if (slots_.empty()) return {};
        const uint64_t key = key_of(left, right);
        for (size_t i = place_of(key);; i = (i + 1) & (slots_.size() - 1))
            if (slots_[i].key == key || slots_[i].merge.rank < 0) return slots_[i].merge;
    }
    int64_t count() const { return count_; }

private:
    struct Slot {
        uint64_t key = 0;
        Merge merge;
    };
    std::vector<Slot> slots_;
    int64_t count_ = 0;
    static uint64_t key_of(int32_t left, int32_t right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }
    size_t place_of(uint64_t key) const { return size_t((key * 0x9e3779b97f4a7c15) >> 32) & (slots_.size() - 1); }
};

/// Merges the symbols of a piece in place; keeps its scratch between calls.
class PairMerger {
public:
    explicit PairMerger(const MergeTable& table) : table_(table) {}
    void merge(std::vector<int32_t>& symbols);

private:
    struct Candidate {
        int32_t rank;
        uint32_t left;        // place of the left symbol
        int32_t left_id, right_id;  // what the two were when it was found
        bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
    };
    const MergeTable& table_;
    std::vector<Candidate> heap_;
    std::vector<uint32_t> next_, before_;
    std::vector<int32_t> ranks_;
    void merge_short(std::vector<int32_t>& symbols);
    void merge_long(std::vector<int32_t>& symbols);
    void offer(const std::vector<int32_t>& symbols, uint32_t left, uint32_t right);
};

/// What short pieces were encoded to. Holds at most some 12 MB; full, it forgets everything.
class PieceCache {
public:
    static constexpr size_t longest = 48;  // bytes of a piece that is remembered
    /// The ids of a piece, or null data where it is not known.
    struct Ids {
        const int32_t* data = nullptr;
        uint32_t count = 0;
    };
    Ids find(std::string_view piece, uint64_t hash) const;
    void add(std::string_view piece, uint64_t hash, const int32_t* ids, size_t count);
    static uint64_t hash(std::string_view piece);

private:
    struct Slot {
        uint64_t hash = 0;
        uint32_t bytes = 0, ids = 0;  // where they begin
        uint16_t length = 0, count = 0;
        bool used = false;
    };
    static constexpr size_t most_slots = size_t{1} << 18;
    std::vector<Slot> slots_;
    std::string bytes_;
    std::vector<int32_t> ids_;
    size_t used_ = 0;
    void grow();
};

}  // namespace clover
