#include "near_duplicates.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "../kernels/error.h"
#include "hash.h"
#include "words.h"

namespace clover {
namespace {

constexpr size_t bucket_limit = 64;
constexpr size_t band_functions = minhash_functions / minhash_bands;

/// Hash function i maps a 13-gram's hash, halves (x, y), to first[i]·x + second[i]·y modulo 2³². Two of them are independent where the determinant of
/// their factors is odd, and nearly so otherwise.
struct HashFunctions {
    std::array<uint32_t, minhash_functions> first{}, second{};
};
constexpr HashFunctions hash_functions = [] {
    HashFunctions f;
    for (size_t i = 0; i < minhash_functions; i++) {
        f.first[i] = uint32_t(mix64(2 * i + 1)) | 1;
        f.second[i] = uint32_t(mix64(2 * i + 2));
    }
    return f;
}();

void lower_minima(uint64_t hash, std::array<uint32_t, minhash_functions>& minima) {
    const auto x = uint32_t(hash), y = uint32_t(hash >> 32);
    for (size_t i = 0; i < minhash_functions; i++) minima[i] = std::min(minima[i], hash_functions.first[i] * x + hash_functions.second[i] * y);
}

/// Of the word without its punctuation.
uint64_t word_hash(const Word& word) {
    if (word.punctuation == 0) return hash64(word.bytes);
    std::string kept;
    for (size_t at = 0; at < word.bytes.size();) {
        const Character c = character_at(word.bytes, at);
        if (c.kind != CharacterKind::punctuation) kept.append(word.bytes, at, c.length);
        at += c.length;
    }
    return hash64(kept);
}

/// A polynomial of the hashes of the last 13 words, modulo 2⁶⁴: the next one comes from the last in two steps.
class RollingHash {
public:
    /// Whether there are 13 words; value() is then their hash.
    bool push(uint64_t word) {
        uint64_t& oldest = window_[size_t(count_) % shingle_words];
        sum_ = (sum_ - oldest * highest) * factor + word;
        oldest = word;
        return ++count_ >= int64_t(shingle_words);
    }
    uint64_t value() const { return mix64(sum_); }

private:
    static constexpr uint64_t factor = 0x9fb21c651e98df25;
    static constexpr uint64_t highest = [] {
        uint64_t power = 1;
        for (size_t i = 1; i < shingle_words; i++) power *= factor;
        return power;
    }();
    std::array<uint64_t, shingle_words> window_{};
    int64_t count_ = 0;
    uint64_t sum_ = 0;
};

uint32_t band_hash(const std::array<uint32_t, minhash_functions>& minima, size_t band) {
    uint64_t hash = band + 1;
    for (size_t i = 0; i < band_functions; i++) hash = mix64(hash ^ minima[band * band_functions + i]) + 0x9e3779b97f4a7c15;
    return uint32_t(hash >> 32);
}

}  // namespace

Hash128 exact_hash(std::string_view text, std::string& scratch) {
    scratch.clear();
    bool gap = false;
    for (size_t at = 0; at < text.size();) {
        const Character c = character_at(text, at);
        if (c.kind != CharacterKind::space) {
            if (gap && !scratch.empty()) scratch += ' ';
            scratch.append(text, at, c.length);
        }
        gap = c.kind == CharacterKind::space;
        at += c.length;
    }
    Hash128 hash{0x243f6a8885a308d3, 0x13198a2e03707344};
    const size_t size = scratch.size();
    scratch.append(8, '\0');  // whole blocks; the size tells apart what differs in zeros at the end
    for (size_t at = 0; at < size; at += 8) {
        uint64_t block;
        std::memcpy(&block, scratch.data() + at, 8);
        hash.a = mix64(hash.a + block);
        hash.b = mix64(hash.b ^ block * 0x9e3779b97f4a7c15);
    }
    return {mix64(hash.a + size), mix64(hash.b ^ size)};
}

MinHash minhash(std::string_view text) {
    MinHash result;
    std::array<uint32_t, minhash_functions> minima;
    minima.fill(UINT32_MAX);
    RollingHash words;
    for_each_word(text, [&](const Word& word) {
        if (word.is_mark() || !words.push(word_hash(word))) return;
        result.any = true;
        lower_minima(words.value(), minima);
    });
    for (size_t i = 0; i < minhash_functions; i++) result.minima[i] = uint16_t(minima[i]);
    for (size_t band = 0; band < minhash_bands; band++) result.bands[band] = band_hash(minima, band);
    return result;
}

static double equal_share(const std::array<uint16_t, minhash_functions>& a, const std::array<uint16_t, minhash_functions>& b) {
    int equal = 0;
    for (size_t i = 0; i < minhash_functions; i++) equal += a[i] == b[i];
    return double(equal) / minhash_functions;
}

double estimated_jaccard(const MinHash& a, const MinHash& b) { return a.any && b.any ? equal_share(a.minima, b.minima) : 0; }

NearDuplicates::NearDuplicates() : table_(size_t{1} << bits_) {}

bool NearDuplicates::contains(const MinHash& document, double limit) const {
    if (!document.any) return false;
    const size_t mask = table_.size() - 1;
    for (const uint32_t band : document.bands)
        for (size_t at = place(band); table_[at].document != 0; at = (at + 1) & mask)
            if (table_[at].band == band && equal_share(documents_[table_[at].document - 1], document.minima) > limit) return true;
    return false;
}

void NearDuplicates::put(std::vector<Entry>& table, const Entry& entry) const {
    const size_t mask = table.size() - 1;
    size_t at = place(entry.band), equal = 0;
    for (; table[at].document != 0; at = (at + 1) & mask) equal += table[at].band == entry.band;
    if (equal < bucket_limit) table[at] = entry;
}

void NearDuplicates::grow() {
    std::vector<Entry> larger(table_.size() * 2);
    bits_++;
    // From a free place on, so that those with equal bands keep their order.
    size_t first = 0;
    while (table_[first].document != 0) first++;
    for (size_t i = 0; i < table_.size(); i++) {
        const Entry& entry = table_[(first + i) & (table_.size() - 1)];
        if (entry.document != 0) put(larger, entry);
    }
    table_.swap(larger);
}

void NearDuplicates::add(const MinHash& document) {
    if (!document.any) return;
    // Bands are told apart by 32 bits, which are also their places: with more documents than this the table would be as large as those.
    require(documents_.size() < size_t{1} << 26, "more than ", size_t{1} << 26, " documents stay; filter parts of them on their own, or leave near duplicates in with --disable near_duplicate");
    documents_.push_back(document.minima);
    for (const uint32_t band : document.bands) {
        if (used_ * 2 >= table_.size()) grow();
        put(table_, {band, uint32_t(documents_.size())});
        used_++;
    }
}

}  // namespace clover
