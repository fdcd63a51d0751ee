#include "quality_filter.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "words.h"

namespace clover {
namespace {

constexpr std::string_view stop_words[] = {"the", "be", "to", "of", "and", "that", "have", "with"};

struct WordCounts {
    int64_t words = 0, marks = 0, alphabetic = 0;
    int64_t characters = 0;  // of words that are no marks
    uint32_t stop_words = 0;  // a bit for each one found
};

WordCounts count_words(std::string_view text) {
    WordCounts counts;
    for_each_word(text, [&](const Word& w) {
        counts.words++;
        counts.marks += w.is_mark();
        counts.alphabetic += w.letters > 0;
        if (!w.is_mark()) counts.characters += w.characters;
        if (w.bytes.size() > 4) return;
        const auto* found = std::find(std::begin(stop_words), std::end(stop_words), w.bytes);
        if (found != std::end(stop_words)) counts.stop_words |= 1u << (found - stop_words);
    });
    return counts;
}

int64_t count_hashes(std::string_view text) { return std::count(text.begin(), text.end(), '#'); }

/// Occurrences that do not overlap.
int64_t count_of(std::string_view what, std::string_view text) {
    int64_t n = 0;
    for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) n++;
    return n;
}

constexpr std::string_view ellipsis = "\xe2\x80\xa6", dots = "...", bullet = "\xe2\x80\xa2";

bool ends_line(uint32_t code) { return (code >= 0xa && code <= 0xd) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 || code == 0x2029; }

struct LineCounts {
    int64_t lines = 0, bullets = 0, ellipses = 0;
};

/// `line` begins and ends with what is no space.
void count_line(std::string_view line, LineCounts& counts) {
    counts.lines++;
    counts.bullets += line.starts_with(bullet) || line.starts_with('-');
    counts.ellipses += line.ends_with(dots) || line.ends_with(ellipsis);
}

LineCounts count_lines(std::string_view text) {
    LineCounts counts;
    size_t begin = 0, end = 0;  // of what the line holds between spaces
    bool blank = true, open = false;
    for (size_t at = 0; at < text.size();) {
        const Character c = character_at(text, at);
        const size_t after = at + c.length;
        open = c.kind != CharacterKind::space || !ends_line(c.code);
        if (c.kind != CharacterKind::space) {
            if (blank) begin = at;
            blank = false;
            end = after;
        }
        at = c.code == '\r' && text.substr(after, 1) == "\n" ? after + 1 : after;
        if (open) continue;
        count_line(blank ? std::string_view() : text.substr(begin, end - begin), counts);
        blank = true;
    }
    if (open) count_line(blank ? std::string_view() : text.substr(begin, end - begin), counts);
    return counts;
}

double share(int64_t part, int64_t whole) { return whole == 0 ? 0 : double(part) / double(whole); }

}  // namespace

std::vector<FilterRule> quality_rules() {
    return {{"min_words", 50, true, "words that are more than punctuation, at least"},
            {"max_words", 100000, false, "words that are more than punctuation, at most"},
            {"min_mean_word_length", 3, true, "their mean length in characters, at least"},
            {"max_mean_word_length", 10, false, "their mean length in characters, at most"},
            {"hashes_per_word", 0.1, false, "# per word, at most"},
            {"ellipses_per_word", 0.1, false, "... and \xe2\x80\xa6 per word, at most"},
            {"bullet_lines", 0.9, false, "share of lines that begin with \xe2\x80\xa2 or -, at most"},
            {"ellipsis_lines", 0.3, false, "share of lines that end with ... or \xe2\x80\xa6, at most"},
            {"alphabetic_words", 0.8, true, "share of words with a letter, at least"},
            {"stop_words", 2, true, "different ones of: the be to of and that have with, at least"}};
}

std::vector<double> quality_values(std::string_view text) {
    const WordCounts words = count_words(text);
    const LineCounts lines = count_lines(text);
    const int64_t plain = words.words - words.marks;
    const double mean_length = share(words.characters, plain);
    return {double(plain),
            double(plain),
            mean_length,
            mean_length,
            share(count_hashes(text), words.words),
            share(count_of(dots, text) + count_of(ellipsis, text), words.words),
            share(lines.bullets, lines.lines),
            share(lines.ellipses, lines.lines),
            share(words.alphabetic, words.words),
            double(std::popcount(words.stop_words))};
}

}  // namespace clover
