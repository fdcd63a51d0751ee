#include "../data/quality_filter.h"

#include "filter_cases.h"

using namespace clover;
using test::repeated;

namespace {

bool drops(const std::string& text, std::string_view rule) { return test::drops(quality_rules(), quality_values(text), rule); }

}  // namespace

TEST_SUITE("quality filter") {
    TEST_CASE("the paper's limits") {
        const struct {
            const char* name;
            double limit;
            bool least;
        } expected[] = {{"min_words", 50, true},        {"max_words", 100000, false},     {"min_mean_word_length", 3, true}, {"max_mean_word_length", 10, false},
                        {"hashes_per_word", 0.1, false}, {"ellipses_per_word", 0.1, false}, {"bullet_lines", 0.9, false},      {"ellipsis_lines", 0.3, false},
                        {"alphabetic_words", 0.8, true}, {"stop_words", 2, true}};
        const std::vector<FilterRule> rules = quality_rules();
        REQUIRE(rules.size() == std::size(expected));
        for (size_t i = 0; i < rules.size(); i++) {
            CHECK(rules[i].name == expected[i].name);
            CHECK(rules[i].limit == expected[i].limit);
            CHECK(rules[i].least == expected[i].least);
        }
    }

    TEST_CASE("every value of datatrove's, on prose and random documents") {
        CHECK(test::compare_filter_cases(quality_rules(), [](const std::string& text) { return quality_values(text); }) == 740);
    }

    TEST_CASE("just inside and just outside each rule") {
        // 50 and 49 words; marks do not count.
        CHECK_FALSE(drops(repeated("word ", 50), "min_words"));
        CHECK(drops(repeated("word ", 49) + "- - *** ...", "min_words"));
        CHECK_FALSE(drops(repeated("w ", 100000) + "-", "max_words"));
        CHECK(drops(repeated("w ", 100001), "max_words"));
        // Means of 3 (2 and 4), 2.5, 10 and 10.01; a mark of 40 characters does not count, punctuation at a word does.
        CHECK_FALSE(drops("ab abcd", "min_mean_word_length"));
        CHECK(drops("ab abc " + std::string(40, '-'), "min_mean_word_length"));
        CHECK_FALSE(drops("ab abc,", "min_mean_word_length"));
        CHECK_FALSE(drops(repeated("\xc3\xa9t\xc3\xa9t\xc3\xa9t\xc3\xa9t\xc3\xa9t ", 100), "max_mean_word_length"));
        CHECK(drops(repeated("tttttttttt ", 99) + "ttttttttttt", "max_mean_word_length"));
        // 5 of 50 words, 6 of 50.
        CHECK_FALSE(drops(repeated("word ", 45) + repeated("#word ", 5), "hashes_per_word"));
        CHECK(drops(repeated("word ", 46) + "##word ##word ##word word", "hashes_per_word"));
        CHECK_FALSE(drops(repeated("word ", 45) + repeated("word... ", 5), "ellipses_per_word"));
        CHECK(drops(repeated("word ", 44) + repeated("word\xe2\x80\xa6 ", 3) + repeated("word... ", 3), "ellipses_per_word"));
        // "......" holds two, ".." none.
        CHECK(drops(repeated("word ", 47) + repeated("word...... ", 3), "ellipses_per_word"));
        CHECK_FALSE(drops(repeated("word.. ", 50), "ellipses_per_word"));
        // 9 of 10 lines, 10 of 10; blank lines count.
        CHECK_FALSE(drops(repeated("- a\n", 5) + repeated("  \xe2\x80\xa2 a\n", 4) + "a\n", "bullet_lines"));
        CHECK(drops(repeated("- a\n", 10), "bullet_lines"));
        CHECK_FALSE(drops(repeated("- a\n", 10) + "\n\n", "bullet_lines"));
        CHECK_FALSE(drops(repeated("* a\n", 10), "bullet_lines"));
        // 3 of 10 lines, 4 of 10.
        CHECK_FALSE(drops(repeated("a... \n", 2) + "a\xe2\x80\xa6\n" + repeated("a\n", 7), "ellipsis_lines"));
        CHECK(drops(repeated("a...\n", 2) + repeated("a\xe2\x80\xa6\n", 2) + repeated("a\n", 6), "ellipsis_lines"));
        // 8 of 10 words, 7 of 10; a mark is a word here.
        CHECK_FALSE(drops("a b c d e f g h1 12 -", "alphabetic_words"));
        CHECK(drops("a b c d e f g 11 12 -", "alphabetic_words"));
        // Two different ones; not in capitals, not with a comma.
        CHECK_FALSE(drops("the with", "stop_words"));
        CHECK(drops("the the The of, withal", "stop_words"));
        for (const char* word : {"the", "be", "to", "of", "and", "that", "have", "with"}) CHECK(quality_values(word).back() == 1);
    }

    TEST_CASE("lines end where Python's str.splitlines ends them") {
        // One bullet line and one other each.
        for (const char* end : {"\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"}) {
            CHECK(quality_values(std::string("a") + end + "- b")[6] == 0.5);
            CHECK(quality_values(std::string("a") + end + "- b" + end)[6] == 0.5);
        }
        CHECK(quality_values("a\x1f- b")[6] == 0);
        CHECK(quality_values("a\n\r- b")[6] == doctest::Approx(1.0 / 3));
    }

    TEST_CASE("nothing at all") {
        CHECK(quality_values("") == std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
        CHECK(quality_values("\n\n") == std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    }

    TEST_CASE("a rule that is off drops nothing") {
        FilterRule rule = quality_rules()[0];
        CHECK(rule.broken_by(0));
        rule.on = false;
        CHECK_FALSE(rule.broken_by(0));
    }
}
