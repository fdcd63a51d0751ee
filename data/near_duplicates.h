// Duplicate documents, as Gopher removes them (Rae et al. 2021, appendix A.1.1): exact ones, and those whose 13-grams of words have a Jaccard similarity J =
// |A ∩ B| / |A ∪ B| above 0.8, white space and punctuation ignored. Words are those of words.h without their punctuation, in the case in which they stand, marks
// left out; a document of fewer than 13 has no 13-grams and is compared exactly only.
//
// Exact: a 128-bit hash of the text with every run of white space as one space and none at the ends. Case and punctuation count.
//
// Near: MinHash (Broder 1997) with 256 hash functions, so that two documents agree in a minimum with probability J, in 32 bands of 8. Documents that agree in
// a whole band are candidates; a candidate is a duplicate if the share of equal minima, which is J with a standard error of √(J (1 − J) / 256), is above the limit.
//   J                                      0.5    0.6    0.7    0.75   0.8    0.85   0.9    0.95
//   candidates, 1 − (1 − J^8)^32           0.118  0.418  0.850  0.966  0.997  1.000  1.000  1.000
//   more than 0.8 of the 256 minima equal  0.000  0.000  0.000  0.033  0.525  0.987  1.000  1.000
// Of two duplicates the one that comes later is dropped (the paper: a random one), and only documents that stay are compared with, so the outcome does not depend
// on anything but the order of documents. At most 64 documents that agree in a band are remembered for it, so that a flood of half-alike
// documents takes linear time.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace clover {

constexpr size_t shingle_words = 13, minhash_functions = 256, minhash_bands = 32;

struct Hash128 {
    uint64_t a = 0, b = 0;
    bool operator==(const Hash128&) const = default;
};
/// `scratch` is overwritten.
Hash128 exact_hash(std::string_view text, std::string& scratch);

struct MinHash {
    bool any = false;  // the document has 13-grams
    std::array<uint16_t, minhash_functions> minima{};  // the lower 16 bits, which differ by chance once in 65,536
    std::array<uint32_t, minhash_bands> bands{};       // hashes of the whole minima of a band
};
MinHash minhash(std::string_view text);

/// The share of equal minima.
double estimated_jaccard(const MinHash& a, const MinHash& b);

/// 16 bytes a document, some 50 with the table's.
class ExactDuplicates {
public:
    bool contains(const Hash128& hash) const { return seen_.contains(hash); }
    void add(const Hash128& hash) { seen_.insert(hash); }

private:
    struct Half {
        size_t operator()(const Hash128& hash) const { return size_t(hash.a); }
    };
    std::unordered_set<Hash128, Half> seen_;
};

/// 512 bytes a document for the minima and 512 to 1024 for 32 entries of 8 bytes in a table that is at most half full; half as much more while it grows.
class NearDuplicates {
public:
    NearDuplicates();
    /// Whether a document added before has an estimated similarity above `limit`.
    bool contains(const MinHash& document, double limit) const;
    void add(const MinHash& document);

private:
    struct Entry {
        uint32_t band = 0;      // hash of the band's number and minima
        uint32_t document = 0;  // 1 + its place in documents_; 0: free
    };
    size_t place(uint32_t band) const { return size_t(band) >> (32 - bits_); }
    void put(std::vector<Entry>& table, const Entry& entry) const;
    void grow();
    int bits_ = 12;
    size_t used_ = 0;
    std::vector<Entry> table_;  // open addressing; equal bands lie one behind the other, with others between them
    std::deque<std::array<uint16_t, minhash_functions>> documents_;
};

}  // namespace clover
