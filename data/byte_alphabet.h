// GPT-2's alphabet for bytes (Radford et al. 2019): each byte is spelt as one printable character, so that a vocabulary is text. The 188 printable bytes of Latin-1
// stand for themselves, the other 68 for U+0100, U+0101, … in their order.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace clover {

constexpr bool stands_for_itself(uint32_t byte) { return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff); }

/// The character that spells a byte.
constexpr uint32_t character_of_byte(uint8_t byte) {
    if (stands_for_itself(byte)) return byte;
    uint32_t before = 0;
    for (uint32_t b = 0; b < byte; b++) before += !stands_for_itself(b);
    return 0x100 + before;
}

/// The byte that a character spells, or -1.
constexpr int byte_of_character(uint32_t character) {
    if (character < 0x100) return stands_for_itself(character) ? int(character) : -1;
    if (character >= 0x100 + 68) return -1;
    uint32_t before = character - 0x100;
    for (uint32_t b = 0; b < 0x100; b++)
        if (!stands_for_itself(b) && before-- == 0) return int(b);
    return -1;
}

/// A token's bytes; where a character spells none, the token as it is (Hugging Face's ByteLevel decoder).
std::string bytes_of_spelling(std::string_view token);
std::string spelling_of_bytes(std::string_view bytes);

}  // namespace clover
