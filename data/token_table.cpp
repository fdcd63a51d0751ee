#include "token_table.h"

#include <algorithm>

#include "../kernels/error.h"
#include "hash.h"

namespace clover {

size_t TokenTable::slot_of(std::string_view token) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = size_t(hash64(token)) & mask;
    while (slots_[slot] != 0 && bytes_of(entries_[slots_[slot] - 1]) != token) slot = (slot + 1) & mask;
    return slot;
}

void TokenTable::grow() {
    slots_.assign(std::max<size_t>(16, slots_.size() * 2), 0);
    for (size_t i = 0; i < entries_.size(); i++) slots_[slot_of(bytes_of(entries_[i]))] = uint32_t(i + 1);
}

void TokenTable::add(std::string_view token, int32_t id) {
    if (slots_.size() < 2 * (entries_.size() + 1)) grow();
    const size_t slot = slot_of(token);
    if (slots_[slot] != 0) {
        entries_[slots_[slot] - 1].id = id;
        return;
    }
    entries_.push_back({bytes_.size(), uint32_t(token.size()), id});
    bytes_ += token;
    slots_[slot] = uint32_t(entries_.size());
}

void TokenTable::finish(const std::string& origin) {
    int64_t largest = -1;
    for (const Entry& e : entries_) {
        require(e.id >= 0, origin, ": the token \"", bytes_of(e), "\" has the id ", e.id, ", expected 0 or more");
        largest = std::max<int64_t>(largest, e.id);
    }
    require(largest < 16 * count() + 65536, origin, ": ", count(), " tokens, but ids up to ", largest, "; expected ids without large gaps");
    by_id_.assign(size_t(largest + 1), {});
    for (const Entry& e : entries_) {
        Entry& place = by_id_[size_t(e.id)];
        require(place.id < 0, origin, ": two tokens have the id ", e.id, ", \"", bytes_of(place), "\" and \"", bytes_of(e), "\"");
        place = e;
    }
}

int32_t TokenTable::find(std::string_view token) const {
    if (slots_.empty()) return -1;
    const uint32_t entry = slots_[slot_of(token)];
    return entry == 0 ? -1 : entries_[entry - 1].id;
}

}  // namespace clover
