#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "../data/pre_tokenizer.h"
#include "../kernels/error.h"

using namespace clover;
using doctest::Contains;
using nlohmann::json;

namespace {

std::vector<std::string> pieces(const json& spec, std::string_view text) {
    std::vector<std::string> out;
    PreTokenizer(spec, "t.json").split(text, [&](std::string_view piece) { out.emplace_back(piece); });
    return out;
}

json byte_level(bool prefix_space, bool regex) { return {{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}, {"trim_offsets", true}, {"use_regex", regex}}; }

json split(const json& pattern, const char* behavior = "Isolated", bool invert = false) {
    return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
}
json sequence(const json& steps) { return {{"type", "Sequence"}, {"pretokenizers", steps}}; }

using Pieces = std::vector<std::string>;

}  // namespace

TEST_SUITE("pre-tokenizer") {
    TEST_CASE("A01: GPT-2's rule") {
        const auto check = [](const char* text, const Pieces& expected) {
            CAPTURE(text);
            CHECK(pieces(byte_level(false, true), text) == expected);
        };
        check("a  b", {"a", " ", " b"});
        check("a   b  ", {"a", "  ", " b", "  "});
        check("  a", {" ", " a"});
        check("a\n\n  b", {"a", "\n\n ", " b"});
        check("a\r\nb", {"a", "\r", "\n", "b"});
        check("a \t b", {"a", " \t", " b"});
        check("x\u00a0\u00a0y", {"x", "\u00a0", "\u00a0", "y"});
        check("\u3000\u3000a", {"\u3000", "\u3000", "a"});
        check("!\u0085", {"!", "\u0085"});
        check("a\u2028b", {"a", "\u2028", "b"});
        check("a\u200bb", {"a", "\u200b", "b"});
        check("I'm we'll WE'LL", {"I", "'m", " we", "'ll", " WE", "'", "LL"});
        check("'s's", {"'s", "'s"});
        check("abc123,4½²x", {"abc", "123", ",", "4½²", "x"});
        check("e\u0301a", {"e", "\u0301", "a"});
        check("\uff199", {"\uff199"});
        check("", {});
    }

    TEST_CASE("BLOOM's rule: the nested class excludes its characters, the parenthesis and the bar") {
        const json bloom = sequence({split({{"Regex", R"( ?[^(\s|[.,!?…。，、।۔،])]+)"}}), byte_level(false, false)});
        const auto check = [&](const char* text, const Pieces& expected) {
            CAPTURE(text);
            CHECK(pieces(bloom, text) == expected);
        };
        check("Hello world", {"Hello", " world"});
        check("  Hello", {" ", " Hello"});
        check("a.\n\nb", {"a", ".\n\n", "b"});
        check("f(x)|y[0]", {"f", "(", "x", ")|", "y[0]"});
        check("你好，世界。再…", {"你好", "，", "世界", "。", "再", "…"});
        check("क। خ، ج۔", {"क", "।", " خ", "،", " ج", "۔"});
        check("a\u0085b\u00a0c", {"a", "\u0085", "b", "\u00a0", "c"});
        check("a\u180eb", {"a\u180eb"});
    }

    TEST_CASE("behaviours of Split, as in Hugging Face's documentation of them") {
        const auto check = [](const char* behavior, const Pieces& expected, const Pieces& inverted) {
            CAPTURE(behavior);
            CHECK(pieces(split({{"String", "-"}}, behavior), "the-final--countdown") == expected);
            CHECK(pieces(split({{"Regex", "[^-]+"}}, behavior, true), "the-final--countdown") == inverted);
        };
        // Inverted, the run of two hyphens is one match.
        check("Removed", {"the", "final", "countdown"}, {"the", "final", "countdown"});
        check("Isolated", {"the", "-", "final", "-", "-", "countdown"}, {"the", "-", "final", "--", "countdown"});
        check("MergedWithPrevious", {"the-", "final-", "-", "countdown"}, {"the-", "final--", "countdown"});
        check("MergedWithNext", {"the", "-final", "-", "-countdown"}, {"the", "-final", "--countdown"});
        check("Contiguous", {"the", "-", "final", "--", "countdown"}, {"the", "-", "final", "--", "countdown"});
    }

    TEST_CASE("a space in front, digits, white space, no pre-tokenizer") {
        CHECK(pieces(byte_level(true, true), "a b") == Pieces{" a", " b"});
        CHECK(pieces(byte_level(true, true), " a") == Pieces{" a"});
        CHECK(pieces(byte_level(true, false), "\ta") == Pieces{" \ta"});
        CHECK(pieces(sequence({{{"type", "Digits"}, {"individual_digits", true}}, byte_level(false, true)}), "a12") == Pieces{"a", "1", "2"});
        CHECK(pieces(sequence({{{"type", "Digits"}, {"individual_digits", false}}, byte_level(true, true)}), "a12") == Pieces{" a", " 12"});
        CHECK(pieces({{"type", "WhitespaceSplit"}}, " a\u3000b\n") == Pieces{"a", "b"});
        CHECK(pieces(nullptr, "a b") == Pieces{"a b"});
        CHECK(pieces(nullptr, "").empty());
        CHECK(PreTokenizer(sequence({split({{"String", "-"}}), byte_level(false, false)}), "t").byte_level());
        CHECK_FALSE(PreTokenizer(split({{"String", "-"}}), "t").byte_level());
    }

    TEST_CASE("what is not supported or wrong is named") {
        const auto check = [](const json& spec, const char* message) {
            CAPTURE(message);
            CHECK_THROWS_WITH_AS(PreTokenizer(spec, "t.json"), Contains(message), InputError);
        };
        check("ByteLevel", "t.json: pre_tokenizer: is \"ByteLevel\"; expected an object");
        check({{"type", "Metaspace"}}, "t.json: pre_tokenizer.type: is \"Metaspace\"; supported are");
        check(sequence({byte_level(false, true), split({{"String", "-"}})}), "pre_tokenizer.pretokenizers[1]: Split after ByteLevel");
        check({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"surprise", 1}}, "pre_tokenizer.surprise: this member is not supported");
        check({{"type", "ByteLevel"}}, "pre_tokenizer.add_prefix_space: is missing; expected true or false");
        check({{"type", "ByteLevel"}, {"add_prefix_space", "no"}}, "pre_tokenizer.add_prefix_space: is \"no\"");
        check(split({{"String", ""}}), "pre_tokenizer.pattern.String: is \"\"");
        check(split({{"String", "a"}, {"Regex", "b"}}), "pre_tokenizer.pattern.String: this member is not supported");
        check(split({{"Regex", "a"}}, "Sideways"), "pre_tokenizer.behavior: is \"Sideways\"; expected Isolated");
        check(split({{"Regex", "a(?<n>b)"}}), "regular expression \"a(?<n>b)\", byte 1: this kind of group is not supported");
        json deep = byte_level(false, true);
        for (int i = 0; i < 12; i++) deep = sequence(json::array({deep}));
        check(deep, "at most ten within each other");
    }
}
