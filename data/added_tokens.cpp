#include "added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "unicode_additions.h"
#include "utf8.h"

namespace clover {
namespace {

/// Unicode's White_Space.
bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/// Word characters of Unicode 16 (UTS 18, annex C): alphabetic, marks, decimal digits, connectors, joiners.
bool is_word(uint32_t c) {
    switch (utf8proc_category(utf8proc_int32_t(c))) {
        case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT: case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_MC: case UTF8PROC_CATEGORY_ME: case UTF8PROC_CATEGORY_ND: case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC: return true;
        default: break;
    }
    const auto added = std::upper_bound(std::begin(unicode_additions), std::end(unicode_additions), c, [](uint32_t code, const UnicodeAddition& a) { return code < a.first; });
    if (added != std::begin(unicode_additions) && c <= (added - 1)->last) {
        const std::string_view category = (added - 1)->category;
        return category[0] == 'L' || category[0] == 'M' || category == "Nd" || category == "Nl" || category == "Pc";
    }
    const bool circled_letter = (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
    return circled_letter || c == 0x200c || c == 0x200d;
}

/// The character that ends at `end` > 0.
uint32_t character_before(std::string_view text, size_t end) {
    size_t at = end - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) at--;
    return utf8_at(text, at).code;
}

size_t spaces_before(std::string_view text, size_t end, size_t least) {
    while (end > least && is_space(character_before(text, end))) {
        do end--;
        while (end > least && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80);
    }
    return end;
}

size_t spaces_after(std::string_view text, size_t at) {
    while (at < text.size()) {
        const Utf8Character c = utf8_at(text, at);
        if (!is_space(c.code)) break;
        at += c.length;
    }
    return at;
}

bool stands_alone(std::string_view text, size_t first, size_t last) {
    return (first == 0 || !is_word(character_before(text, first))) && (last == text.size() || !is_word(utf8_at(text, last).code));
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string_view spelling) {
    if (spelling.empty()) return;
    tokens_.push_back({std::string(spelling), token.id, token.single_word, token.lstrip, token.rstrip});
    begins_[static_cast<unsigned char>(spelling[0])] = true;
}

void AddedTokenMatcher::finish() {
    // Of the same spelling the first that was added counts.
    std::stable_sort(tokens_.begin(), tokens_.end(), [](const Token& a, const Token& b) { return a.spelling < b.spelling; });
    tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), [](const Token& a, const Token& b) { return a.spelling == b.spelling; }), tokens_.end());
}

const AddedTokenMatcher::Token* AddedTokenMatcher::longest_at(std::string_view text, size_t at) const {
    const Token* longest = nullptr;
    const Token *first = tokens_.data(), *last = first + tokens_.size();  // the tokens that begin with the bytes passed so far
    for (size_t n = 0; first < last && at + n < text.size(); n++) {
        // The one of just these bytes is the first of them and has no byte here.
        const int byte = static_cast<unsigned char>(text[at + n]);
        const auto byte_of = [n](const Token& t) { return n < t.spelling.size() ? int(static_cast<unsigned char>(t.spelling[n])) : -1; };
        first = std::lower_bound(first, last, byte, [&](const Token& t, int b) { return byte_of(t) < b; });
        last = std::upper_bound(first, last, byte, [&](int b, const Token& t) { return b < byte_of(t); });
        if (first < last && first->spelling.size() == n + 1) longest = first;
    }
    return longest;
}

bool AddedTokenMatcher::find(std::string_view text, size_t start, Match& match) const {
    // The search goes on behind the last match's own bytes, which rstrip may have widened.
    for (size_t at = match.id < 0 ? start : match.scanned; at < text.size(); at++) {
        if (!begins_[static_cast<unsigned char>(text[at])]) continue;
        const Token* token = longest_at(text, at);
        if (token == nullptr) continue;
        const size_t end = at + token->spelling.size();
        const bool alone = !token->single_word || stands_alone(text, at, end);
        if (alone) {
            const size_t first = token->lstrip ? std::max(start, spaces_before(text, at, std::min(at, start))) : at;
            // Within the white space that the token before has swallowed, its end is known.
            const bool swallowed = match.id >= 0 && end >= match.scanned && end < match.last;
            const size_t last = !token->rstrip ? end : swallowed ? match.last : spaces_after(text, end);
            if (first < last) {
                match = {first, last, token->id, end};
                return true;
            }
        }
        at = end - 1;  // passed over whole
    }
    return false;
}

}  // namespace clover
