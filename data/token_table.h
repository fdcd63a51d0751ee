// The tokens of a vocabulary, their bytes in one string, found by id or by bytes.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace clover {

class TokenTable {
public:
    struct Entry {
        uint64_t first = 0;    // in the bytes
        uint32_t length = 0;
        int32_t id = -1;       // -1: there is no such token
    };
    /// Adds a token; of the same bytes the last counts.
    void add(std::string_view token, int32_t id);
    /// When all are added: throws InputError with `origin` for an id that is negative, given twice or far beyond the number of tokens.
    void finish(const std::string& origin);
    /// -1: none.
    int32_t find(std::string_view token) const;
    /// "" for an id that no token has.
    std::string_view token(int32_t id) const { return bytes_of(by_id_[size_t(id)]); }
    bool has(int32_t id) const { return id >= 0 && id < size() && by_id_[size_t(id)].id >= 0; }
    /// The largest id + 1.
    int32_t size() const { return int32_t(by_id_.size()); }
    int64_t count() const { return int64_t(entries_.size()); }

private:
    std::string bytes_;
    std::vector<Entry> entries_;
    std::vector<Entry> by_id_;
    std::vector<uint32_t> slots_;  // open addressing over the bytes: place in entries_ + 1, or 0
    std::string_view bytes_of(const Entry& e) const { return std::string_view(bytes_).substr(e.first, e.length); }
    size_t slot_of(std::string_view token) const;
    void grow();
};

}  // namespace clover
