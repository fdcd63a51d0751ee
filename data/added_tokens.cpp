#include "added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "utf8.h"

namespace clover {
namespace {

/// Unicode's White_Space.
bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/// Unicode's word characters (UTS 18, annex C): alphabetic, marks, decimal digits, connectors, joiners.
bool is_word(uint32_t c) {
    switch (utf8proc_category(utf8proc_int32_t(c))) {
        case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT: case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_MC: case UTF8PROC_CATEGORY_ME: case UTF8PROC_CATEGORY_ND: case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC: return true;
        default: break;
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

uint32_t AddedTokenMatcher::child(uint32_t node, unsigned char byte) const {
    const auto& children = nodes_[node].children;
    const auto found = std::lower_bound(children.begin(), children.end(), std::pair<unsigned char, uint32_t>(byte, 0));
    return found != children.end() && found->first == byte ? found->second : 0;
}

void AddedTokenMatcher::add(const AddedToken& token, std::string_view spelling) {
    if (spelling.empty()) return;
    uint32_t node = 0;
    for (unsigned char byte : spelling) {
        uint32_t next = child(node, byte);
        if (next == 0) {
            next = uint32_t(nodes_.size());
            nodes_.emplace_back();
            auto& children = nodes_[node].children;
            children.insert(std::lower_bound(children.begin(), children.end(), std::pair<unsigned char, uint32_t>(byte, 0)), {byte, next});
        }
        node = next;
    }
    begins_[static_cast<unsigned char>(spelling[0])] = true;
    if (nodes_[node].token >= 0) return;  // of the same spelling the first counts
    nodes_[node].token = int32_t(tokens_.size());
    tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip});
}

bool AddedTokenMatcher::find(std::string_view text, size_t start, Match& match) const {
    // The search goes on behind the last match's own bytes, which rstrip may have widened.
    for (size_t at = match.id < 0 ? start : match.scanned; at < text.size(); at++) {
        if (!begins_[static_cast<unsigned char>(text[at])]) continue;
        int32_t longest = -1;
        size_t end = at;
        uint32_t node = 0;
        for (size_t i = at; i < text.size() && (node = child(node, static_cast<unsigned char>(text[i]))) != 0; i++)
            if (nodes_[node].token >= 0) longest = nodes_[node].token, end = i + 1;
        if (longest < 0) continue;
        const Token& token = tokens_[size_t(longest)];
        if (token.single_word && !stands_alone(text, at, end)) {
            at = end - 1;  // passed over whole
            continue;
        }
        match = {token.lstrip ? spaces_before(text, at, std::min(at, start)) : at, token.rstrip ? spaces_after(text, end) : end, token.id, end};
        return true;
    }
    return false;
}

}  // namespace clover
