// The added tokens of a tokenizer.json: strings that are cut out of the text before anything else happens to it. Of the matches the leftmost counts, of those the
// longest; flags widen a match over white space (lstrip, rstrip) or ask for word borders (single_word).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace clover {

struct AddedToken {
    int32_t id = -1;
    std::string content;
    bool single_word = false, lstrip = false, rstrip = false;
    bool normalized = false;  // looked for in the normalized text
    bool special = false;     // left out when decoding
};

/// Finds tokens in a text.
class AddedTokenMatcher {
public:
    /// What is looked for, where it is not the content itself (normalized).
    void add(const AddedToken& token, std::string_view spelling);
    /// When all are added.
    void finish();
    bool empty() const { return tokens_.empty(); }
    /// Calls part(text, id) for the parts of `text` in order: id -1 for what lies between the tokens. Never with an empty text between.
    template <class F>
    void split(std::string_view text, F&& part) const {
        size_t start = 0;
        for (Match m{}; find(text, start, m);) {
            if (m.first > start) part(text.substr(start, m.first - start), -1);
            part(text.substr(m.first, m.last - m.first), m.id);
            start = m.last;
        }
        if (start < text.size()) part(text.substr(start), -1);
    }

private:
    struct Token {
        std::string spelling;
        int32_t id;
        bool single_word, lstrip, rstrip;
    };
    struct Match {
        size_t first = 0, last = 0;
        int32_t id = -1;
        size_t scanned = 0;  // where the search goes on
    };
    std::vector<Token> tokens_;  // finished: sorted by spelling
    bool begins_[256] = {};
    const Token* longest_at(std::string_view text, size_t at) const;
    bool find(std::string_view text, size_t start, Match& match) const;
};

}  // namespace clover
