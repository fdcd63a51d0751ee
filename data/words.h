// The words that Gopher's document filters count. The paper (Rae et al. 2021, appendix A.1.1) says "words" and no more; here a word is a longest run of characters
// that are no white space, as Python's str.split() cuts a text.
//   space        Unicode's Zs, Zl and Zp, U+0009…000D, U+001C…001F, U+0085 (where Python's str.isspace says yes)
//   punctuation  P (punctuation), S (symbols) and the other Cc (controls)
//   letter       L;   other: marks, digits and the rest
// A word of nothing but punctuation, such as "-" or "***", is a mark. huggingface/datatrove, whose readings of the rules are followed elsewhere, cuts English with
// spaCy's tokenizer, where each comma and quotation mark is a word: plain prose then has hardly 80 % of words with a letter, the least the rule allows.
// Text without spaces between words (Chinese, Thai) is a few very long words: the rules do not fit it.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "utf8.h"

namespace clover {

enum class CharacterKind : uint8_t { space, punctuation, letter, other };

/// Of a character beyond ASCII.
CharacterKind kind_of_unicode(uint32_t code);

inline constexpr std::array<CharacterKind, 128> ascii_kinds = [] {
    std::array<CharacterKind, 128> kinds{};
    for (int c = 0; c < 128; c++) {
        if ((c >= 9 && c <= 13) || (c >= 28 && c <= 32)) kinds[size_t(c)] = CharacterKind::space;
        else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) kinds[size_t(c)] = CharacterKind::letter;
        else kinds[size_t(c)] = c >= '0' && c <= '9' ? CharacterKind::other : CharacterKind::punctuation;
    }
    return kinds;
}();

struct Character {
    uint32_t code = 0, length = 0;  // length in bytes
    CharacterKind kind = CharacterKind::space;
};

/// The character at text[at], at < text.size(). What is not UTF-8 counts as U+FFFD, a symbol.
inline Character character_at(std::string_view text, size_t at) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) return {lead, 1, ascii_kinds[lead]};
    const Utf8Character c = utf8_at(text, at);
    return {c.code, c.length, kind_of_unicode(c.code)};
}

struct Word {
    std::string_view bytes;
    int32_t characters = 0, punctuation = 0, letters = 0;  // the last two: how many of the characters
    bool is_mark() const { return punctuation == characters; }
};

/// Calls word(Word) for each word of `text`.
template <class F>
void for_each_word(std::string_view text, F&& word) {
    Word w;
    size_t begin = 0;
    for (size_t at = 0; at <= text.size();) {
        const Character c = at < text.size() ? character_at(text, at) : Character{0, 1, CharacterKind::space};
        if (c.kind != CharacterKind::space) {
            w.characters++;
            w.punctuation += c.kind == CharacterKind::punctuation;
            w.letters += c.kind == CharacterKind::letter;
        } else {
            w.bytes = text.substr(begin, at - begin);
            if (w.characters > 0) word(w);
            w = {};
            begin = at + c.length;
        }
        at += c.length;
    }
}

/// Characters of a UTF-8 text.
inline int64_t character_count(std::string_view text) {
    int64_t n = 0;
    for (char c : text) n += (c & 0xc0) != 0x80;
    return n;
}

}  // namespace clover
