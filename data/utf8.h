// UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace clover {

constexpr uint32_t replacement_character = 0xfffd;

struct Utf8Character {
    uint32_t code = replacement_character;
    uint32_t length = 1;  // bytes: of the character, or of what is replaced by one U+FFFD
    bool valid = false;
};

/// The character at text[at], at < text.size(). Where there is none, the length is that of the maximal subpart (Unicode 15, section 3.9,
/// as WHATWG and Python's errors="replace" do): the bytes that could begin a character, at least one.
inline Utf8Character utf8_at(std::string_view text, size_t at) {
    const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const uint32_t lead = byte(at);
    if (lead < 0x80) return {lead, 1, true};
    uint32_t more = 0, low = 0x80, high = 0xbf;  // bytes to follow; range of the first of them
    if (lead >= 0xc2 && lead <= 0xdf) more = 1;
    else if (lead >= 0xe0 && lead <= 0xef) more = 2, low = lead == 0xe0 ? 0xa0 : 0x80, high = lead == 0xed ? 0x9f : 0xbf;
    else if (lead >= 0xf0 && lead <= 0xf4) more = 3, low = lead == 0xf0 ? 0x90 : 0x80, high = lead == 0xf4 ? 0x8f : 0xbf;
    else return {};
    uint32_t code = lead & (0x3fu >> more);
    for (uint32_t i = 1; i <= more; i++, low = 0x80, high = 0xbf) {
        const uint32_t next = byte(at + i);
        if (next < low || next > high) return {replacement_character, i, false};
        code = code << 6 | (next & 0x3f);
    }
    return {code, more + 1, true};
}

void append_utf8(std::string& out, uint32_t code);
bool is_utf8(std::string_view text);
/// `text` itself where it is UTF-8, else a copy in `scratch` with U+FFFD for each maximal subpart.
std::string_view valid_utf8(std::string_view text, std::string& scratch);
/// Bytes at the end of `text` that may still become a character when more bytes come: 0 to 3.
size_t incomplete_utf8(std::string_view text);

}  // namespace clover
