#include <doctest/doctest.h>

#include "../data/utf8.h"

using namespace clover;

TEST_SUITE("utf8") {
    // Unicode 15, tables 3-8 to 3-11: bytes and how many U+FFFD come of them.
    TEST_CASE("what is no character becomes U+FFFD, one for each maximal subpart") {
        const std::string fffd = "\xef\xbf\xbd";
        const auto repaired = [](std::string_view text) {
            std::string scratch;
            return std::string(valid_utf8(text, scratch));
        };
        const auto times = [&](int n) {
            std::string all;
            while (n-- > 0) all += fffd;
            return all;
        };
        CHECK(repaired("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82" "A") == times(8) + "A");
        CHECK(repaired("\xed\xa0\x80\xed\xbf\xbf\xed\xaf" "A") == times(8) + "A");
        CHECK(repaired("\xf4\x91\x92\x93\xff" "A\x80\xbf" "B") == times(5) + "A" + times(2) + "B");
        CHECK(repaired("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf" "A") == times(4) + "A");
        CHECK(repaired("abcdefghijklmnop\xff") == "abcdefghijklmnop" + fffd);
        CHECK(repaired("") == "");
    }

    TEST_CASE("every character is written and read back; surrogates and beyond are none") {
        for (uint32_t code = 0; code <= 0x10ffff; code++) {
            std::string bytes;
            append_utf8(bytes, code);
            const Utf8Character c = utf8_at(bytes, 0);
            const bool surrogate = code >= 0xd800 && code <= 0xdfff;
            if (c.valid == surrogate || (c.valid && (c.code != code || c.length != bytes.size()))) FAIL("U+", code);
        }
        std::string beyond;
        append_utf8(beyond, 0x110000);
        CHECK_FALSE(is_utf8(beyond));
    }

    TEST_CASE("how much of the end may still become a character") {
        CHECK(incomplete_utf8("") == 0);
        CHECK(incomplete_utf8("a") == 0);
        CHECK(incomplete_utf8("a\xc3") == 1);
        CHECK(incomplete_utf8("\xe4\xb8") == 2);
        CHECK(incomplete_utf8("\xf0\x9f\x98") == 3);
        CHECK(incomplete_utf8("\xf0\x9f\x98\x80") == 0);
        CHECK(incomplete_utf8("\xc0") == 0);
        CHECK(incomplete_utf8("\xed\xa0") == 0);  // a surrogate's beginning
        CHECK(incomplete_utf8("\x80\x80\x80\x80") == 0);
        CHECK(incomplete_utf8("\xff") == 0);
    }
}
