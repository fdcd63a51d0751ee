// Gopher's limits on repetition within a document (Rae et al. 2021, table A1). What the paper leaves open is read as huggingface/datatrove 0.10 does:
//   duplicate_lines                  lines that stood before in the document, over all lines; the text is cut at \n+
//   duplicate_paragraphs             the same of paragraphs: the text without spaces at its ends is cut at \n{2,}
//   duplicate_{line,paragraph}_characters   their characters, over the characters of the text
//   top_N_gram                       of the most frequent N words in a row, the first of those with equal counts: characters, with one space between
//                                    words, times occurrences, over the characters of the text; it may occur once
//   duplicate_N_gram                 from left to right: N words that began at a place passed before count their characters, without spaces, and the
//                                    next N words are jumped over; over the characters of the text. So no character counts twice
// Words are those of words.h, marks included; two runs of words are the same if each word is (datatrove compares the repeated ones joined, where "a bc" is "ab c").
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "quality_filter.h"

namespace clover {

std::vector<FilterRule> repetition_rules();

/// Keeps its memory from one document to the next: one for each thread.
class RepetitionFilter {
public:
    RepetitionFilter();
    /// The values that repetition_rules() limit, in their order, of a UTF-8 text. Linear in time whatever the text is, because hashes are keyed at random; takes at
    /// most some 130 bytes for each word (100,000 of them where max_words holds) or line.
    const std::vector<double>& values(std::string_view text);

private:
    /// Numbers things 0, 1, … as they first come. Open addressing.
    class Numbering {
    public:
        explicit Numbering(uint64_t secret) : secret_(secret) {}
        void clear();
        /// The number of the thing with this key for which same(number), or a new one.
        template <class Same>
        int32_t number(uint64_t key, Same same);
        int32_t count() const { return count_; }

    private:
        struct Slot {
            uint64_t key;
            int32_t number;  // -1: free
        };
        void grow();
        size_t place(uint64_t key) const;
        uint64_t secret_;
        int32_t count_ = 0;
        int bits_ = 0;
        std::vector<Slot> slots_;
    };

    struct Duplicates {
        int64_t pieces = 0, duplicates = 0, characters = 0;
    };
    Duplicates duplicate_pieces(std::string_view text, size_t line_feeds);
    void number_words(std::string_view text);
    void extend_grams(size_t n);
    int64_t top_gram_characters(size_t n) const;
    int64_t duplicate_gram_characters(size_t n);
    int64_t gram_characters(size_t first, size_t n) const;
    int32_t number_of(std::string_view bytes);

    uint64_t secret_;
    Numbering numbering_;
    std::vector<std::string_view> strings_;  // by number
    std::vector<int32_t> words_, lengths_;   // number and characters of each word
    std::vector<int32_t> grams_;             // number of the n words from each place on; -1: they come but once
    std::vector<int32_t> counts_, new_counts_;  // of each number in grams_
    std::vector<bool> passed_;
    std::vector<double> values_;
};

}  // namespace clover
