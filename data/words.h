// The words that Gopher's document filters count. The paper (Rae et al. 2021, appendix A.1.1) says "words" and no more; here a text is cut so:
//   space        Unicode's Zs, Zl and Zp, U+0009…000D, U+001C…001F, U+0085 (where Python's str.isspace says yes)
//   punctuation  P (punctuation), S (symbols) and the other Cc (controls)
//   word         a longest run of characters that are neither. One of ' ’ . , with such characters on both sides belongs to the run: don't, 3.14, e.g
//   mark         a longest run of one and the same punctuation character: "...", "----", "("; it is a word too, and known as punctuation
// So "Well-known (e.g. here)..." is Well - known ( e.g . here ) ... .
// Against the English spaCy tokenizer of datatrove, whose readings of the rules are followed elsewhere: that one also cuts n't, 's and the like from their
// words, keeps addresses and abbreviations such as "e.g." whole, and keeps some hyphens. Text without spaces between words (Chinese, Thai) becomes
// a few very long words: the rules do not fit it.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "utf8.h"

namespace clover {

enum class CharacterKind : uint8_t { space, punctuation, letter, other };  // letter: L; other: marks, digits and the rest

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
    bool in_word() const { return kind >= CharacterKind::letter; }
};

/// The character at text[at]; beyond the end, a space of length 0.
inline Character character_at(std::string_view text, size_t at) {
    if (at >= text.size()) return {};
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) return {lead, 1, ascii_kinds[lead]};
    const Utf8Character c = utf8_at(text, at);
    return {c.code, c.length, kind_of_unicode(c.code)};
}

struct Word {
    std::string_view bytes;
    int32_t characters = 0;
    bool punctuation = false;
    bool alphabetic = false;  // holds a letter
};

/// Calls word(Word) for each word of `text`, marks included. What is not UTF-8 counts as U+FFFD, a symbol.
template <class F>
void for_each_word(std::string_view text, F&& word) {
    const auto joins = [](uint32_t code) { return code == '\'' || code == '.' || code == ',' || code == 0x2019; };
    Character next = character_at(text, 0);
    for (size_t at = 0; at < text.size();) {
        if (next.kind == CharacterKind::space) {
            next = character_at(text, at += next.length);
            continue;
        }
        const size_t begin = at;
        const Character first = next;
        Word w{{}, 0, first.kind == CharacterKind::punctuation, false};
        do {
            w.characters++;
            w.alphabetic |= next.kind == CharacterKind::letter;
            next = character_at(text, at += next.length);
        } while (at < text.size() && (w.punctuation ? next.code == first.code
                                                    : next.in_word() || (joins(next.code) && character_at(text, at + next.length).in_word())));
        w.bytes = text.substr(begin, at - begin);
        word(w);
    }
}

/// Characters of a UTF-8 text.
inline int64_t character_count(std::string_view text) {
    int64_t n = 0;
    for (char c : text) n += (c & 0xc0) != 0x80;
    return n;
}

}  // namespace clover
