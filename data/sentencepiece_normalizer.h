// SentencePiece's normalization: strings replaced by the table in the file (precompiled_charsmap), then the rules for spaces.
//
// precompiled_charsmap (little endian):   u32 bytes of the trie · the trie, u32 units · the replacements, each ended by a zero byte
// The trie is a double array as Darts-clone makes it. A unit u stands for a node:
//   label  u & 0x800000ff              the byte that leads to it
//   leaf   u >> 8 & 1                  a key ends here
//   offset (u >> 10) << (u >> 6 & 8)   the unit of the node reached from unit i over byte c is i XOR offset XOR c, if its label is c;
//                                      where a key ends, the unit at i XOR offset holds, in its lower 31 bits, where the replacement begins
// The longest key is replaced; where there is none, one character is copied, and a byte that begins no character becomes U+FFFD.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "piece_trie.h"
#include "sentencepiece_model.h"

namespace clover {

class Charsmap {
public:
    /// Replaces nothing.
    Charsmap() = default;
    /// `bytes` begins at byte `offset` of the file; it must outlive the map. All that matching can reach is checked here: units and replacements lie inside, keys
    /// have at most 255 bytes (so there are no loops), replacements at most 256. Throws InputError.
    Charsmap(std::string_view bytes, size_t offset, const std::string& origin);
    struct Match {
        size_t length = 0;  // of the key; 0: none
        std::string_view replacement;
        bool undecided = false;  // the text ends where a longer key may go on
    };
    /// The longest key that text.substr(at) begins with.
    Match match(std::string_view text, size_t at) const;

private:
    void check_strings(size_t offset, const std::string& origin) const;
    uint32_t check_below(uint32_t children, uint32_t depth, std::vector<uint8_t>& height, size_t offset, const std::string& origin) const;

    std::vector<uint32_t> units_;
    std::string_view strings_;
};

class SentencePieceNormalizer {
public:
    /// `user_defined` are strings that stay as they are; it must outlive the normalizer.
    SentencePieceNormalizer(const NormalizerSpec& spec, bool whitespace_as_suffix, const PieceTrie& user_defined, const std::string& origin);
    /// Appends the normalized text, any bytes, to `out`.
    void normalize(std::string_view text, std::string& out) const;
    /// What the text at `at` < text.size() begins with, and what comes in its place, before the rules for spaces.
    struct Step {
        size_t length = 0;
        std::string_view replacement;
        bool undecided = false;  // more text may change it; user-defined strings are not looked at
    };
    Step step(std::string_view text, size_t at) const;

private:
    void append(std::string_view replacement, std::string& out) const;

    NormalizerSpec spec_;
    bool whitespace_as_suffix_;
    const PieceTrie& user_defined_;
    Charsmap charsmap_;
    std::string_view space_;  // what a space becomes
};

}  // namespace clover
