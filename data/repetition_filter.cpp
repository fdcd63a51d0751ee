#include "repetition_filter.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "words.h"

namespace clover {
namespace {

constexpr size_t first_top = 2, last_top = 4, first_duplicate = 5, last_duplicate = 10;

uint64_t fold(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return uint64_t(product) ^ uint64_t(product >> 64);
}

constexpr uint64_t odd = 0x9e3779b97f4a7c15;

uint64_t keyed_hash(std::string_view bytes, uint64_t secret) {
    uint64_t hash = secret ^ bytes.size(), block = 0;
    for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
        std::memcpy(&block, bytes.data(), 8);
        hash = fold(hash ^ block, odd);
    }
    block = 0;
    for (unsigned char c : bytes) block = block << 8 | c;
    return fold(hash ^ block, odd);
}

std::string_view without_outer_space(std::string_view text) {
    size_t begin = 0, end = 0;
    for (size_t at = 0; at < text.size();) {
        const Character c = character_at(text, at);
        at += c.length;
        if (c.kind != CharacterKind::space) end = at;
        else if (end == 0) begin = at;
    }
    return text.substr(begin, std::max(end, begin) - begin);
}

/// Calls piece(bytes) for what lies between runs of at least `line_feeds` line feeds; at least once.
template <class F>
void for_each_piece(std::string_view text, size_t line_feeds, F piece) {
    size_t begin = 0;
    for (size_t at = text.find('\n'); at < text.size(); at = text.find('\n', at)) {
        const size_t after = std::min(text.find_first_not_of('\n', at), text.size());
        if (after - at >= line_feeds) {
            piece(text.substr(begin, at - begin));
            begin = after;
        }
        at = after;
    }
    piece(text.substr(begin));
}

double share(int64_t part, int64_t whole) { return whole == 0 ? 0 : double(part) / double(whole); }

}  // namespace

std::vector<FilterRule> repetition_rules() {
    std::vector<FilterRule> rules = {
        {"duplicate_lines", 0.30, false, "share of lines that repeat an earlier one, at most"},
        {"duplicate_paragraphs", 0.30, false, "share of paragraphs that repeat an earlier one, at most"},
        {"duplicate_line_characters", 0.20, false, "share of characters in such lines, at most"},
        {"duplicate_paragraph_characters", 0.20, false, "share of characters in such paragraphs, at most"}};
    const auto add = [&](const std::string& kind, size_t n, double limit, const std::string& meaning) {
        const std::string number = std::to_string(n);
        rules.push_back({kind + "_" + number + "_gram", limit, false, "share of characters in " + meaning + " of " + number + " words, at most"});
    };
    for (size_t n = first_top; n <= last_top; n++) add("top", n, double(24 - 2 * n) / 100, "the most frequent run");
    for (size_t n = first_duplicate; n <= last_duplicate; n++) add("duplicate", n, double(20 - n) / 100, "repeated runs");
    return rules;
}

void RepetitionFilter::Numbering::clear() {
    count_ = 0;
    bits_ = 6;
    slots_.assign(size_t{1} << bits_, {0, -1});
}

size_t RepetitionFilter::Numbering::place(uint64_t key) const { return size_t(fold(key ^ secret_, odd) >> (64 - bits_)); }

template <class Same>
int32_t RepetitionFilter::Numbering::number(uint64_t key, Same same) {
    if (size_t(count_) * 2 >= slots_.size()) grow();
    const size_t mask = slots_.size() - 1;
    size_t at = place(key);
    for (; slots_[at].number >= 0; at = (at + 1) & mask)
        if (slots_[at].key == key && same(slots_[at].number)) return slots_[at].number;
    slots_[at] = {key, count_};
    return count_++;
}

void RepetitionFilter::Numbering::grow() {
    std::vector<Slot> old(slots_.size() * 2, {0, -1});
    old.swap(slots_);
    bits_++;
    const size_t mask = slots_.size() - 1;
    for (const Slot& slot : old) {
        if (slot.number < 0) continue;
        size_t at = place(slot.key);
        while (slots_[at].number >= 0) at = (at + 1) & mask;
        slots_[at] = slot;
    }
}

RepetitionFilter::RepetitionFilter() : secret_(uint64_t(std::random_device()()) << 32 | std::random_device()()), numbering_(secret_ * odd) {}

int32_t RepetitionFilter::number_of(std::string_view bytes) {
    const int32_t number = numbering_.number(keyed_hash(bytes, secret_), [&](int32_t n) { return strings_[size_t(n)] == bytes; });
    if (size_t(number) == strings_.size()) strings_.push_back(bytes);
    return number;
}

RepetitionFilter::Duplicates RepetitionFilter::duplicate_pieces(std::string_view text, size_t line_feeds) {
    Duplicates found;
    numbering_.clear();
    strings_.clear();
    for_each_piece(text, line_feeds, [&](std::string_view piece) {
        found.pieces++;
        const int32_t seen = numbering_.count();
        if (number_of(piece) == seen) return;
        found.duplicates++;
        found.characters += character_count(piece);
    });
    return found;
}

void RepetitionFilter::number_words(std::string_view text) {
    numbering_.clear();
    strings_.clear();
    words_.clear();
    lengths_.clear();
    counts_.clear();
    for_each_word(text, [&](const Word& word) {
        const auto number = size_t(number_of(word.bytes));
        if (number == counts_.size()) counts_.push_back(0);
        counts_[number]++;
        words_.push_back(int32_t(number));
        lengths_.push_back(word.characters);
    });
    grams_ = words_;
}

/// From runs of n - 1 words to runs of n. A run that begins with one that comes but once comes but once itself, so that little of a usual text is left.
void RepetitionFilter::extend_grams(size_t n) {
    grams_.resize(words_.size() < n ? 0 : words_.size() - n + 1);
    numbering_.clear();
    new_counts_.clear();
    for (size_t i = 0; i < grams_.size(); i++) {
        if (grams_[i] < 0 || counts_[size_t(grams_[i])] == 1) {
            grams_[i] = -1;
            continue;
        }
        const uint64_t pair = uint64_t(grams_[i]) << 32 | uint64_t(words_[i + n - 1]);
        grams_[i] = numbering_.number(pair, [](int32_t) { return true; });
        if (size_t(grams_[i]) == new_counts_.size()) new_counts_.push_back(0);
        new_counts_[size_t(grams_[i])]++;
    }
    counts_.swap(new_counts_);
}

int64_t RepetitionFilter::gram_characters(size_t first, size_t n) const {
    int64_t characters = 0;
    for (size_t i = first; i < first + n; i++) characters += lengths_[i];
    return characters;
}

int64_t RepetitionFilter::top_gram_characters(size_t n) const {
    if (grams_.empty()) return 0;
    const auto top = std::max_element(counts_.begin(), counts_.end());
    if (top == counts_.end() || *top == 1) return gram_characters(0, n) + int64_t(n) - 1;
    const auto at = std::find(grams_.begin(), grams_.end(), int32_t(top - counts_.begin()));
    return (gram_characters(size_t(at - grams_.begin()), n) + int64_t(n) - 1) * *top;
}

int64_t RepetitionFilter::duplicate_gram_characters(size_t n) {
    passed_.assign(counts_.size(), false);
    int64_t characters = 0;
    for (size_t i = 0; i < grams_.size();) {
        const int32_t gram = grams_[i];
        if (gram >= 0 && passed_[size_t(gram)]) {
            characters += gram_characters(i, n);
            i += n;
            continue;
        }
        if (gram >= 0) passed_[size_t(gram)] = true;
        i++;
    }
    return characters;
}

const std::vector<double>& RepetitionFilter::values(std::string_view text) {
    const int64_t characters = character_count(text);
    const Duplicates lines = duplicate_pieces(text, 1), paragraphs = duplicate_pieces(without_outer_space(text), 2);
    values_ = {share(lines.duplicates, lines.pieces), share(paragraphs.duplicates, paragraphs.pieces), share(lines.characters, characters),
               share(paragraphs.characters, characters)};
    number_words(text);
    for (size_t n = 2; n <= last_duplicate; n++) {
        extend_grams(n);
        values_.push_back(share(n < first_duplicate ? top_gram_characters(n) : duplicate_gram_characters(n), characters));
    }
    return values_;
}

}  // namespace clover
