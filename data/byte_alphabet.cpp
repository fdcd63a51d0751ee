#include "byte_alphabet.h"

#include <array>

#include "utf8.h"

namespace clover {
namespace {

constexpr std::array<uint32_t, 256> characters = [] {
    std::array<uint32_t, 256> all{};
    for (uint32_t b = 0; b < 256; b++) all[b] = character_of_byte(uint8_t(b));
    return all;
}();
constexpr std::array<int, 0x144> bytes = [] {
    std::array<int, 0x144> all{};
    for (uint32_t c = 0; c < all.size(); c++) all[c] = byte_of_character(c);
    return all;
}();

}  // namespace

std::string bytes_of_spelling(std::string_view token) {
    std::string out;
    for (size_t at = 0; at < token.size();) {
        const Utf8Character c = utf8_at(token, at);
        const int byte = c.valid && c.code < bytes.size() ? bytes[c.code] : -1;
        if (byte < 0) return std::string(token);
        out += char(byte);
        at += c.length;
    }
    return out;
}

std::string spelling_of_bytes(std::string_view text) {
    std::string out;
    for (unsigned char byte : text) append_utf8(out, characters[byte]);
    return out;
}

}  // namespace clover
