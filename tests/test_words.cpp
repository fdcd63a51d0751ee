#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../data/words.h"

using namespace clover;

namespace {

struct Counted {
    std::string bytes;
    int characters, punctuation, letters;
    bool operator==(const Counted&) const = default;
};

std::vector<Counted> words_of(std::string_view text) {
    std::vector<Counted> words;
    for_each_word(text, [&](const Word& w) { words.push_back({std::string(w.bytes), w.characters, w.punctuation, w.letters}); });
    return words;
}

}  // namespace

TEST_SUITE("words") {
    TEST_CASE("words lie between white space") {
        CHECK(words_of("").empty());
        CHECK(words_of(" \t\n\v\f\r\x1c\x1d\x1e\x1f\xc2\x85\xc2\xa0\xe1\x9a\x80\xe2\x80\x80\xe2\x80\x8a\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaf\xe2\x81\x9f\xe3\x80\x80").empty());
        CHECK(words_of("Don't, \"go\" 3.14!\n--") == std::vector<Counted>{{"Don't,", 6, 2, 4}, {"\"go\"", 4, 2, 2}, {"3.14!", 5, 2, 0}, {"--", 2, 2, 0}});
        CHECK(words_of("\xc2\xa0" "a\xe3\x80\x80" "b") == std::vector<Counted>{{"a", 1, 0, 1}, {"b", 1, 0, 1}});
    }

    TEST_CASE("kinds of characters beyond ASCII") {
        // é, combining acute, Hindi vowel sign (a mark), zero width space (no white space), euro sign, emoji, superscript two, guillemet.
        CHECK(words_of("caf\xc3\xa9") == std::vector<Counted>{{"caf\xc3\xa9", 4, 0, 4}});
        CHECK(words_of("e\xcc\x81") == std::vector<Counted>{{"e\xcc\x81", 2, 0, 1}});
        CHECK(words_of("\xe0\xa4\xb9\xe0\xa4\xbf") == std::vector<Counted>{{"\xe0\xa4\xb9\xe0\xa4\xbf", 2, 0, 1}});
        CHECK(words_of("a\xe2\x80\x8b" "b") == std::vector<Counted>{{"a\xe2\x80\x8b" "b", 3, 0, 2}});
        CHECK(words_of("\xe2\x82\xac" "5 \xf0\x9f\x98\x80 \xc2\xb2 \xc2\xab") ==
              std::vector<Counted>{{"\xe2\x82\xac" "5", 2, 1, 0}, {"\xf0\x9f\x98\x80", 1, 1, 0}, {"\xc2\xb2", 1, 0, 0}, {"\xc2\xab", 1, 1, 0}});
    }

    TEST_CASE("bytes that are no UTF-8 are symbols, and controls are punctuation") {
        CHECK(words_of("a\xff\xe2\x82 \x01\x7f") == std::vector<Counted>{{"a\xff\xe2\x82", 3, 2, 1}, {"\x01\x7f", 2, 2, 0}});
        CHECK(character_count("a\xc3\xa9\xf0\x9f\x98\x80") == 3);
    }
}
