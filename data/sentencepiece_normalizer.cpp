#include "sentencepiece_normalizer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "../kernels/error.h"
#include "utf8.h"

namespace clover {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t longest_key = 255;
constexpr size_t longest_replacement = 256, most_units = size_t{1} << 20, block_units = 256;
constexpr uint8_t not_visited = 255;

constexpr uint32_t label(uint32_t unit) { return unit & 0x800000ff; }
constexpr bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
constexpr uint32_t offset_of(uint32_t unit) { return (unit >> 10) << (unit >> 6 & 8); }
constexpr uint32_t value(uint32_t unit) { return unit & 0x7fffffff; }

}  // namespace

Charsmap::Charsmap(std::string_view bytes, size_t offset, const std::string& origin) {
    uint32_t trie_bytes = 0;
    require(bytes.size() > sizeof trie_bytes, origin, ": byte ", offset, ": precompiled_charsmap has ", bytes.size(), " bytes, expected a trie and its strings");
    std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
    // Units come in whole blocks, so that XOR with a byte never leaves the array.
    constexpr size_t block_bytes = block_units * sizeof(uint32_t);
    require(trie_bytes > 0 && trie_bytes % block_bytes == 0 && trie_bytes < bytes.size() - sizeof trie_bytes, origin, ": byte ", offset,
            ": the trie of precompiled_charsmap has ", trie_bytes, " bytes, expected a multiple of ", block_bytes, " and less than ", bytes.size() - sizeof trie_bytes);
    require(trie_bytes / sizeof(uint32_t) <= most_units, origin, ": byte ", offset, ": the trie of precompiled_charsmap has ", trie_bytes / sizeof(uint32_t),
            " units, at most ", most_units, " are supported");
    units_.resize(trie_bytes / sizeof(uint32_t));
    std::memcpy(units_.data(), bytes.data() + sizeof trie_bytes, trie_bytes);
    strings_ = bytes.substr(sizeof trie_bytes + trie_bytes);
    check_strings(offset, origin);
    require(offset_of(units_[0]) < units_.size(), origin, ": byte ", offset, ": the trie of precompiled_charsmap points outside of itself");
    std::vector<uint8_t> height(units_.size(), not_visited);
    check_below(offset_of(units_[0]), 0, height, offset, origin);
}

void Charsmap::check_strings(size_t offset, const std::string& origin) const {
    require(strings_.back() == '\0', origin, ": byte ", offset, ": the last replacement of precompiled_charsmap is not ended by a zero byte");
    for (size_t begin = 0; begin < strings_.size();) {
        const size_t end = strings_.find('\0', begin);
        require(end - begin <= longest_replacement, origin, ": byte ", offset, ": a replacement of precompiled_charsmap has ", end - begin, " bytes, at most ",
                longest_replacement, " are supported");
        begin = end + 1;
    }
}

/// Bytes of the longest way down from the nodes whose units lie at `children` XOR byte; `height` remembers it for each node's unit, as ways may join.
uint32_t Charsmap::check_below(uint32_t children, uint32_t depth, std::vector<uint8_t>& height, size_t offset, const std::string& origin) const {
    uint32_t longest = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        const uint32_t node = children ^ byte, unit = units_[node];
        if (label(unit) != byte) continue;
        require(depth < longest_key, origin, ": byte ", offset, ": the trie of precompiled_charsmap has keys of more than ", longest_key, " bytes, or a loop");
        if (height[node] == not_visited) {
            const uint32_t below = node ^ offset_of(unit);
            require(below < units_.size(), origin, ": byte ", offset, ": unit ", node, " of precompiled_charsmap points outside of the trie");
            require(!has_leaf(unit) || value(units_[below]) < strings_.size(), origin, ": byte ", offset, ": unit ", below,
                    " of precompiled_charsmap points outside of the replacements");
            height[node] = uint8_t(check_below(below, depth + 1, height, offset, origin));
        }
        require(depth + 1 + height[node] <= longest_key, origin, ": byte ", offset, ": the trie of precompiled_charsmap has keys of more than ", longest_key, " bytes");
        longest = std::max(longest, 1u + height[node]);
    }
    return longest;
}

Charsmap::Match Charsmap::match(std::string_view text, size_t at) const {
    if (units_.empty()) return {};
    Match match;
    match.undecided = true;
    uint32_t found = 0;
    uint32_t node = offset_of(units_[0]);
    for (size_t i = at; i < text.size(); i++) {
        const unsigned char byte = static_cast<unsigned char>(text[i]);
        node ^= byte;
        const uint32_t unit = units_[node];
        if (label(unit) != byte) {
            match.undecided = false;
            break;
        }
        node ^= offset_of(unit);
        if (!has_leaf(unit)) continue;
        match.length = i + 1 - at;
        found = value(units_[node]);
    }
    if (match.length > 0) match.replacement = strings_.data() + found;
    return match;
}

SentencePieceNormalizer::SentencePieceNormalizer(const NormalizerSpec& spec, bool whitespace_as_suffix, const PieceTrie& user_defined, const std::string& origin)
    : spec_(spec), whitespace_as_suffix_(whitespace_as_suffix), user_defined_(user_defined), space_(spec.escape_whitespaces ? space_symbol : " ") {
    if (!spec.charsmap.empty()) charsmap_ = Charsmap(spec.charsmap, spec.charsmap_at, origin);
}

SentencePieceNormalizer::Step SentencePieceNormalizer::step(std::string_view text, size_t at) const {
    if (const size_t length = user_defined_.longest(text, at); length > 0) return {length, text.substr(at, length)};
    const Charsmap::Match match = charsmap_.match(text, at);
    if (match.length > 0) return {match.length, match.replacement, match.undecided};
    const Utf8Character c = utf8_at(text, at);
    if (!c.valid) return {1, "\xef\xbf\xbd", match.undecided || incomplete_utf8(text) == text.size() - at};
    return {c.length, text.substr(at, c.length), match.undecided};
}

void SentencePieceNormalizer::append(std::string_view replacement, std::string& out) const {
    for (char c : replacement) {
        if (c == ' ') out += space_;
        else out += c;
    }
}

void SentencePieceNormalizer::normalize(std::string_view text, std::string& out) const {
    const size_t begin = out.size();
    size_t at = 0;
    if (spec_.remove_extra_whitespaces) {
        while (at < text.size()) {
            const Step leading = step(text, at);
            if (leading.replacement != " ") break;
            at += leading.length;
        }
    }
    if (at == text.size()) return;  // no dummy prefix for an empty text
    if (spec_.add_dummy_prefix && !whitespace_as_suffix_) out += space_;
    bool after_space = spec_.remove_extra_whitespaces;
    while (at < text.size()) {
        const Step next = step(text, at);
        std::string_view replacement = next.replacement;
        if (after_space) replacement.remove_prefix(std::min(replacement.find_first_not_of(' '), replacement.size()));
        append(replacement, out);
        if (!replacement.empty()) after_space = spec_.remove_extra_whitespaces && replacement.back() == ' ';
        at += next.length;
    }
    if (spec_.remove_extra_whitespaces)
        while (out.size() > begin && std::string_view(out).substr(begin).ends_with(space_)) out.resize(out.size() - space_.size());
    if (spec_.add_dummy_prefix && whitespace_as_suffix_) out += space_;
}

}  // namespace clover
