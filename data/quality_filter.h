// Gopher's quality rules for documents (Rae et al. 2021, appendix A.1.1). What the paper leaves open is read as huggingface/datatrove 0.10 does:
//   min_words, max_words                    words that are no marks
//   min_mean_word_length, max_…             their mean length in characters
//   hashes_per_word, ellipses_per_word      '#'; "..." and "…"; over all words, marks included
//   bullet_lines                            lines whose first character that is no space is • or -, over all lines
//   ellipsis_lines                          lines that end with "..." or "…", spaces at the end aside
//   alphabetic_words                        words with a letter, over all words, marks included
//   stop_words                              how many different ones of "the be to of and that have with", in lower case, are among the words
// Lines are those of Python's str.splitlines: they end at \n, \r\n, \r, \v, \f, U+001C…001E, U+0085, U+2028 and U+2029; empty ones count.
// Words are those of words.h. A share of nothing is 0.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace clover {

/// One threshold. A document whose value is above the limit, or below it for a `least`, is dropped.
struct FilterRule {
    std::string name;
    double limit = 0;
    bool least = false;
    std::string meaning;
    bool on = true;
    bool broken_by(double value) const { return on && (least ? value < limit : value > limit); }
};

std::vector<FilterRule> quality_rules();

/// The values that quality_rules() limit, in their order, of a UTF-8 text. Linear in time; needs no memory.
std::vector<double> quality_values(std::string_view text);

}  // namespace clover
