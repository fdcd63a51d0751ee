#include "utf8.h"

#include <algorithm>
#include <cstring>

namespace clover {
namespace {

/// Where the first byte at or after `at` lies that is not ASCII.
size_t skip_ascii(std::string_view text, size_t at) {
    uint64_t eight;
    for (; at + sizeof eight <= text.size(); at += sizeof eight) {
        std::memcpy(&eight, text.data() + at, sizeof eight);
        if (eight & 0x8080808080808080) break;
    }
    while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) at++;
    return at;
}

/// Where the first byte lies that begins no character.
size_t find_invalid(std::string_view text, size_t at) {
    while ((at = skip_ascii(text, at)) < text.size()) {
        const Utf8Character c = utf8_at(text, at);
        if (!c.valid) break;
        at += c.length;
    }
    return at;
}

}  // namespace

void append_utf8(std::string& out, uint32_t code) {
    if (code < 0x80) {
        out += char(code);
    } else if (code < 0x800) {
        out += {char(0xc0 | code >> 6), char(0x80 | (code & 0x3f))};
    } else if (code < 0x10000) {
        out += {char(0xe0 | code >> 12), char(0x80 | (code >> 6 & 0x3f)), char(0x80 | (code & 0x3f))};
    } else {
        out += {char(0xf0 | code >> 18), char(0x80 | (code >> 12 & 0x3f)), char(0x80 | (code >> 6 & 0x3f)), char(0x80 | (code & 0x3f))};
    }
}

bool is_utf8(std::string_view text) { return find_invalid(text, 0) == text.size(); }

std::string_view valid_utf8(std::string_view text, std::string& scratch) {
    size_t bad = find_invalid(text, 0);
    if (bad == text.size()) return text;
    scratch.clear();
    size_t copied = 0;
    for (; bad < text.size(); bad = find_invalid(text, copied)) {
        scratch.append(text, copied, bad - copied);
        append_utf8(scratch, replacement_character);
        copied = bad + utf8_at(text, bad).length;
    }
    scratch.append(text, copied);
    return scratch;
}

size_t incomplete_utf8(std::string_view text) {
    for (size_t n = 1; n <= std::min<size_t>(3, text.size()); n++) {
        const unsigned char c = static_cast<unsigned char>(text[text.size() - n]);
        if ((c & 0xc0) == 0x80) continue;  // not the first byte of a character
        const Utf8Character character = utf8_at(text, text.size() - n);
        const size_t whole = c > 0xf4 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
        return !character.valid && character.length == n && whole > n ? n : 0;
    }
    return 0;
}

}  // namespace clover
