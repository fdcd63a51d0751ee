#include <doctest/doctest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "../data/hash.h"
#include "../data/oniguruma.h"
#include "../data/regular_expression.h"
#include "../data/utf8.h"
#include "../kernels/error.h"

using namespace clover;
using doctest::Contains;

namespace {

/// The matches, one after the other with | between them.
std::string matches(std::string_view pattern, std::string_view text) {
    const RegularExpression expression(pattern, "t.json");
    RegularExpression::Search search(expression, text);
    std::string out;
    for (bool first = true; search.next(); first = false) out.append(first ? "" : "|").append(text.substr(search.first(), search.last() - search.first()));
    return out;
}

/// How many code points the class has, and a hash of them.
std::pair<int, uint64_t> characters(std::string_view pattern) {
    std::string text;
    for (uint32_t c = 0; c < 0x110000; c++)
        if (c < 0xd800 || c > 0xdfff) append_utf8(text, c);
    const RegularExpression expression(pattern, "t.json");
    RegularExpression::Search search(expression, text);
    int count = 0;
    uint64_t hash = 0;
    for (; search.next(); count++) {
        const uint32_t code = utf8_at(text, search.first()).code;
        CHECK(search.last() == search.first() + utf8_at(text, search.first()).length);
        hash = mix64(hash * 31 + code);
    }
    return {count, hash};
}

}  // namespace

TEST_SUITE("regular expression") {
    TEST_CASE("classes have the characters of Oniguruma 6.9.10, counted in tokenizers 0.23.3 over all code points") {
        CHECK(characters(R"(\s)") == std::pair<int, uint64_t>(25, 0x940010e7f332853c));
        CHECK(characters(R"(\w)") == std::pair<int, uint64_t>(144671, 0x140a8acba5cb2bf4));
        CHECK(characters(R"([\w])") == std::pair<int, uint64_t>(144665, 0x8f126664c94991a1));
        CHECK(characters(R"(\W)") == std::pair<int, uint64_t>(967393, 0x7af29de34f68a441));
        CHECK(characters(R"(\d)") == std::pair<int, uint64_t>(760, 0x968229feff969758));
        CHECK(characters(R"(\p{L})") == std::pair<int, uint64_t>(141028, 0x214f3fe0a461c04d));
        CHECK(characters(R"(\p{Lu})") == std::pair<int, uint64_t>(1858, 0x30b022569cb3c018));
        CHECK(characters(R"(\p{Ll})") == std::pair<int, uint64_t>(2258, 0x82c67d3c7d871557));
        CHECK(characters(R"(\p{M})") == std::pair<int, uint64_t>(2501, 0x44cc678c84cc3f3c));
        CHECK(characters(R"(\p{N})") == std::pair<int, uint64_t>(1911, 0xd34633e80ccdbf5c));
        CHECK(characters(R"(\p{P})") == std::pair<int, uint64_t>(855, 0xccde7de82e6f405e));
        CHECK(characters(R"(\p{S})") == std::pair<int, uint64_t>(8514, 0x2a40b3e209870bec));
        CHECK(characters(R"(\p{Han})") == std::pair<int, uint64_t>(99030, 0x86afa3b890024e57));
        CHECK(characters(R"([^\s\p{L}\p{N}])") == std::pair<int, uint64_t>(969100, 0x98b45e8b9655b2b4));
        CHECK(characters(R"([^(\s|[.,!?…。，、।۔،])])") == std::pair<int, uint64_t>(1112025, 0x5155db6347126516));
    }

    TEST_CASE("Oniguruma's meanings") {
        // Nested classes join, && intersects.
        CHECK(matches(R"([a[bc]]+)", "xabcx") == "abc");
        CHECK(matches(R"([^a[bc]]+)", "xabcy") == "x|y");
        CHECK(matches(R"([a[^bc]]+)", "xabcay") == "xa|ay");
        CHECK(matches(R"([a-z&&[^aeiou]]+)", "hello") == "h|ll");
        CHECK(matches(R"([^a-z&&[^aeiou]]+)", "hello-") == "e|o-");
        CHECK(matches(R"([-a]+|[b-])", "a-b") == "a-|b");
        // \h is a hexadecimal digit, \v the vertical tab.
        CHECK(matches(R"(\h+)", "xAf09g") == "Af09");
        CHECK(matches(R"(\v)", "\n\v") == "\v");
        // Lines: no ^ after the line feed that ends the text, but a $.
        CHECK(matches(R"(^.?)", "a\nb\n") == "a|b");
        CHECK(matches(R"(\s$)", "a\n\n") == "\n|\n");
        CHECK(matches(R"(.+)", "a\r\nb") == "a\r|b");
        CHECK(matches(R"((?i:'s|k)+)", "'S'\u017fk\u212a") == "'S'\u017fk\u212a");
        CHECK(matches(R"(\bA?b)", "b Ab\u0301b") == "b|Ab");
        CHECK(matches(R"(\u00e9\x{65E5}\t)", "\u00e9\u65e5\t") == "\u00e9\u65e5\t");
    }

    TEST_CASE("empty matches: none directly after a match") {
        CHECK(matches("a*", "baac") == "|aa|");
        CHECK(matches("(?=b)", "abb") == "|");
        CHECK(matches("x*", "\u00e9") == "|");
        CHECK(matches("x*", "").empty());
    }

    TEST_CASE("what the translator does not know is named with its place") {
        const auto check = [](std::string_view pattern, const char* message) {
            CAPTURE(pattern);
            CHECK_THROWS_WITH_AS(oniguruma_to_pcre2(pattern, "t.json"), Contains(message), InputError);
        };
        check("ab(", "t.json: regular expression \"ab(\", byte 2: the group is not closed");
        check("ab)", "byte 2: no group to close");
        check("[a", "byte 0: the class is not closed");
        check("[]a]", "byte 1: ] as the first character");
        check("[a-z-9]", "byte 4: - in the middle");
        check("[[:alpha:]]", "byte 1: POSIX classes");
        check("[z-a]", "byte 1: the range runs backwards");
        check("[a&&]", "byte 0: nothing beside &&");
        check("a**", "byte 2: a repetition is repeated");
        check("*a", "byte 0: nothing to repeat");
        check("a{3}?", "byte 4: after {…}");
        check("a{2,1}", "byte 1: expected {n}");
        check("a{9999}", "byte 2: more than 1000 times");
        check("(a*)*", "byte 0: a group that can match nothing");
        check("(?=a)*", "byte 0: an assertion cannot be repeated");
        check("(?>a)", "byte 0: this kind of group");
        check("(?:ab)++", "byte 7: a possessive group");
        check("(a)\\1", "byte 3: this escape");
        check("\\R", "byte 0: this escape");
        check("\\p{Greek}", "byte 0: this property");
        check("\\p{L", "byte 0: its } is missing");
        check("\\x{d800}", "byte 0: not the hexadecimal number");
        check("a\xff", "byte 1: not UTF-8");
        check("(?i:ss)", "byte 5: \"ss\" within (?i:…)");
        check("(?i:[a])", "byte 4: a class within (?i:…)");
        check("\\", "byte 1: it ends too early");
        check(std::string(1000, '('), "more than 100 groups");
        CHECK_THROWS_WITH_AS(RegularExpression(std::string(20000, 'a'), "t.json"), Contains("t.json: a regular expression of 20000 bytes"), InputError);
        CHECK_THROWS_WITH_AS(RegularExpression("((((a{100}b){100}c){100}d){100}e){100}", "t.json"), Contains("t.json: regular expression"), InputError);
    }

    TEST_CASE("hostile expressions end in an error, soon") {
        const auto start = std::chrono::steady_clock::now();
        CHECK_THROWS_WITH_AS(matches("(?:a+)+b|c", std::string(200, 'a')), Contains("t.json: regular expression \"(?:a+)+b|c\": match limit exceeded"), InputError);
        CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
    }

    TEST_CASE("a long text, and many threads on one expression") {
        const std::string text = std::string(3'000'000, ' ') + "a" + std::string(3'000'000, 'b');
        CHECK(matches("a|b+$", text).size() == 3'000'002);
        const RegularExpression expression("[ab]+", "t.json");
        std::vector<size_t> found(8);
        std::vector<std::thread> threads;
        for (size_t& f : found)
            threads.emplace_back([&] {
                RegularExpression::Search search(expression, text);
                while (search.next()) f += search.last() - search.first();
            });
        for (std::thread& thread : threads) thread.join();
        for (size_t f : found) CHECK(f == 3'000'001);
    }
}
