#include "../data/repetition_filter.h"

#include <chrono>
#include <functional>

#include "filter_cases.h"

using namespace clover;
using test::repeated;

namespace {

std::vector<double> values_of(const std::string& text) { return RepetitionFilter().values(text); }

double value(const std::string& text, std::string_view name) {
    const std::vector<FilterRule> rules = repetition_rules();
    for (size_t i = 0; i < rules.size(); i++)
        if (rules[i].name == name) return values_of(text)[i];
    FAIL("no rule " << name);
    return 0;
}

bool drops(const std::string& text, std::string_view rule) { return test::drops(repetition_rules(), values_of(text), rule); }

/// n different words of six characters with a space behind each.
std::string different_words(size_t n, size_t first = 0) {
    std::string text;
    for (size_t i = first; i < first + n; i++) text.append("w").append(std::to_string(10000 + i)).append(" ");
    return text;
}

/// Seconds for one document, the better of two.
double seconds(const std::string& text) {
    double best = 1e9;
    RepetitionFilter filter;
    for (int i = 0; i < 2; i++) {
        const auto start = std::chrono::steady_clock::now();
        filter.values(text);
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

}  // namespace

TEST_SUITE("repetition filter") {
    TEST_CASE("the limits of table A1") {
        const std::vector<std::pair<std::string, double>> expected = {
            {"duplicate_lines", 0.30},  {"duplicate_paragraphs", 0.30}, {"duplicate_line_characters", 0.20}, {"duplicate_paragraph_characters", 0.20},
            {"top_2_gram", 0.20},       {"top_3_gram", 0.18},           {"top_4_gram", 0.16},                {"duplicate_5_gram", 0.15},
            {"duplicate_6_gram", 0.14}, {"duplicate_7_gram", 0.13},     {"duplicate_8_gram", 0.12},          {"duplicate_9_gram", 0.11},
            {"duplicate_10_gram", 0.10}};
        const std::vector<FilterRule> rules = repetition_rules();
        REQUIRE(rules.size() == expected.size());
        for (size_t i = 0; i < rules.size(); i++) {
            CHECK(rules[i].name == expected[i].first);
            CHECK(rules[i].limit == expected[i].second);
            CHECK_FALSE(rules[i].least);
        }
    }

    TEST_CASE("every value of datatrove's, on prose and random documents") {
        RepetitionFilter filter;
        CHECK(test::compare_filter_cases(repetition_rules(), [&](const std::string& text) { return filter.values(text); }) == 962);
    }

    TEST_CASE("lines and paragraphs, by hand") {
        // 3 of 10 lines came before, 4 of 11.
        const std::string seven = "1\n2\n3\n4\n5\n6\n7\n";
        CHECK_FALSE(drops(seven + "1\n1\n2", "duplicate_lines"));
        CHECK(drops(seven + "1\n1\n2\n\n3", "duplicate_lines"));
        CHECK_FALSE(drops("1\n\n2\n\n3\n\n4\n\n5\n\n6\n\n7\n\n1\n\n\n1\n\n2\n\n", "duplicate_paragraphs"));
        CHECK(drops("1\n\n2\n\n3\n\n4\n\n5\n\n6\n\n1\n\n\n1\n\n2", "duplicate_paragraphs"));
        // 4 of 20 characters, 4 of 19; "é" is one.
        CHECK_FALSE(drops("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\n\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\nxxxxxxxxxx", "duplicate_line_characters"));
        CHECK(drops("aaaa\naaaa\nxxxxxxxxx", "duplicate_line_characters"));
        CHECK_FALSE(drops("aaaa\n\naaaa\n\nxxxxxxxx", "duplicate_paragraph_characters"));
        CHECK(drops("aaaa\n\naaaa\n\nxxxxxxx", "duplicate_paragraph_characters"));
        CHECK(value("aaaa\n\naaaa\n\nxxxxxxx", "duplicate_line_characters") == doctest::Approx(4.0 / 19));
    }

    TEST_CASE("the most frequent run of words, by hand") {
        // "a b" stands three times: 9 of 45 characters, and of 44.
        CHECK_FALSE(drops("a b c a b d a b " + std::string(29, 'x'), "top_2_gram"));
        CHECK(drops("a b c a b d a b " + std::string(28, 'x'), "top_2_gram"));
        CHECK(value("a b c a b c x", "top_3_gram") == doctest::Approx(10.0 / 13));
        CHECK(value("a b c d a b c d", "top_4_gram") == doctest::Approx(14.0 / 15));
        // Of equally frequent ones the first counts, even if it comes but once.
        CHECK(value("aa bb c d", "top_2_gram") == doctest::Approx(5.0 / 9));
        CHECK(value("a b c d", "top_4_gram") == 1);
        CHECK(value("a b c", "top_4_gram") == 0);
    }

    TEST_CASE("repeated runs of words, by hand: each character once") {
        // 100 words, 7 characters each with the space; the repeated n words count 6 characters each.
        for (size_t n = 5; n <= 10; n++) {
            const std::string name = std::string("duplicate_").append(std::to_string(n)).append("_gram");
            CAPTURE(name);
            CHECK(value(different_words(100 - n) + different_words(n, 20), name) == doctest::Approx(6.0 * double(n) / 700));
            CHECK(value(different_words(101 - n) + different_words(n - 1, 20), name) == 0);
            // All the same word: the first run is new; from the second word on there are four that repeat it.
            CHECK(value(repeated("a ", 1 + 4 * n), name) == doctest::Approx(4.0 * double(n) / double(2 * (1 + 4 * n))));
        }
    }

    TEST_CASE("hostile documents take linear time") {
        // Twice the document may take at most 4 times as long, with 50 ms for other processes.
        const auto check = [](const char* what, const std::function<std::string(size_t)>& make, size_t n) {
            CAPTURE(what);
            const double once = seconds(make(n)), twice = seconds(make(2 * n));
            CHECK(twice < 4 * once + 0.05);
            CHECK(twice < 20);
        };
        check("one word", [](size_t n) { return std::string(n, 'a'); }, 10'000'000);
        check("empty lines", [](size_t n) { return std::string(n, '\n'); }, 1'000'000);
        check("lines of one character", [](size_t n) { return repeated("a\n", n); }, 500'000);
        check("one word over and over", [](size_t n) { return repeated("a ", n); }, 200'000);
        check("different words", [](size_t n) { return different_words(n); }, 200'000);
        check("pairs of 400 words, each pair once",
              [](size_t n) {
                  std::string text;
                  for (size_t i = 0; i < n; i++) text.append(std::to_string(i % 400)).append(" ").append(std::to_string(i / 400 % 400)).append("\n");
                  return text;
              },
              100'000);
    }
}
