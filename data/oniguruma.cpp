#include "oniguruma.h"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "../kernels/error.h"
#include "unicode_additions.h"
#include "utf8.h"

namespace clover {
namespace {

constexpr uint32_t last_code = 0x10ffff;
constexpr int depth_limit = 100;
constexpr int64_t repeat_limit = 1000;

using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;

std::string hex(uint32_t code) {
    std::string digits;
    do digits.insert(digits.begin(), "0123456789abcdef"[code % 16]);
    while (code /= 16);
    return digits;
}

bool is_letter(uint32_t c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }
bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }

std::string literal(uint32_t code) { return is_letter(code) || is_digit(code) ? std::string(1, char(code)) : "\\x{" + hex(code) + "}"; }

std::string spelt(const Ranges& ranges) {
    std::string out;
    for (const auto& [first, last] : ranges) {
        out += literal(first);
        if (last > first) out.append("-").append(literal(last));
    }
    return out;
}

/// The ranges ascend.
Ranges complement(const Ranges& ranges) {
    Ranges out;
    uint32_t next = 0;
    // No text holds a surrogate, and PCRE2 accepts none in a pattern.
    const auto add = [&](uint32_t first, uint32_t last) {
        if (first < 0xd800 && last > 0xdfff) out.push_back({first, 0xd7ff}), first = 0xe000;
        if (first <= last) out.push_back({first, last});
    };
    for (const auto& [first, last] : ranges) {
        if (first > next) add(next, first - 1);
        next = last + 1;
    }
    if (next <= last_code) add(next, last_code);
    return out;
}

const Ranges space = {{9, 13}, {' ', ' '}, {0x85, 0x85}, {0xa0, 0xa0}, {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
                      {0x205f, 0x205f}, {0x3000, 0x3000}};
const Ranges hexadecimal = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};

struct Script {
    std::string_view name;
    Ranges ranges;
};
const std::array<Script, 4> scripts = {{
    {"Han", {{0x2e80, 0x2e99}, {0x2e9b, 0x2ef3}, {0x2f00, 0x2fd5}, {0x3005, 0x3005}, {0x3007, 0x3007}, {0x3021, 0x3029}, {0x3038, 0x303b}, {0x3400, 0x4dbf},
             {0x4e00, 0x9fff}, {0xf900, 0xfa6d}, {0xfa70, 0xfad9}, {0x16fe2, 0x16fe3}, {0x16ff0, 0x16ff1}, {0x20000, 0x2a6df}, {0x2a700, 0x2b739},
             {0x2b740, 0x2b81d}, {0x2b820, 0x2cea1}, {0x2ceb0, 0x2ebe0}, {0x2ebf0, 0x2ee5d}, {0x2f800, 0x2fa1d}, {0x30000, 0x3134a}, {0x31350, 0x323af}}},
    {"Hiragana", {{0x3041, 0x3096}, {0x309d, 0x309f}, {0x1b001, 0x1b11f}, {0x1b132, 0x1b132}, {0x1b150, 0x1b152}, {0x1f200, 0x1f200}}},
    {"Katakana", {{0x30a1, 0x30fa}, {0x30fd, 0x30ff}, {0x31f0, 0x31ff}, {0x32d0, 0x32fe}, {0x3300, 0x3357}, {0xff66, 0xff6f}, {0xff71, 0xff9d},
                  {0x1aff0, 0x1aff3}, {0x1aff5, 0x1affb}, {0x1affd, 0x1affe}, {0x1b000, 0x1b000}, {0x1b120, 0x1b122}, {0x1b155, 0x1b155}, {0x1b164, 0x1b167}}},
    {"Hangul", {{0x1100, 0x11ff}, {0x302e, 0x302f}, {0x3131, 0x318e}, {0x3200, 0x321e}, {0x3260, 0x327e}, {0xa960, 0xa97c}, {0xac00, 0xd7a3},
                {0xd7b0, 0xd7c6}, {0xd7cb, 0xd7fb}, {0xffa0, 0xffbe}, {0xffc2, 0xffc7}, {0xffca, 0xffcf}, {0xffd2, 0xffd7}, {0xffda, 0xffdc}}},
}};

/// What stands between the brackets of a PCRE2 class for \p{category}, with what Unicode 16 added to it.
std::string category_items(std::string_view category) {
    std::string out = "\\p{" + std::string(category) + "}";
    Ranges added;
    for (const UnicodeAddition& a : unicode_additions) {
        if (!a.category.starts_with(category)) continue;
        if (!added.empty() && added.back().second + 1 == a.first) added.back().second = a.last;
        else added.push_back({a.first, a.last});
    }
    return out + spelt(added);
}

/// Oniguruma's \w: letters, marks, digits, connectors and what else is alphabetic; outside of brackets also ² ³ ¹ ¼ ½ ¾.
std::string word_items(bool in_bracket) {
    const Ranges circled = {{0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
    std::string out;
    for (const char* category : {"L", "M", "Nd", "Nl", "Pc"}) out += category_items(category);
    return out + spelt(circled) + (in_bracket ? "" : spelt({{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}}));
}

/// A set of characters: the items of a bracket, and whole expressions for one character each that do not fit into one. Expressions can be repeated as they are.
struct CharacterSet {
    std::string items = "";
    std::vector<std::string> others = {};

    std::string expression() const {
        std::string out = items.empty() ? "" : "[" + items + "]";
        if (others.empty()) return out;
        if (out.empty() && others.size() == 1) return others[0];
        for (const std::string& other : others) out += (out.empty() ? "" : "|") + other;
        return "(?:" + out + ")";
    }
    std::string negated() const { return others.empty() ? "[^" + items + "]" : "(?:(?!" + expression() + ")(?s:.))"; }
};

class Translator {
public:
    Translator(std::string_view pattern, const std::string& origin) : pattern_(pattern), origin_(origin) {}

    std::string translate() {
        alternatives(0);
        if (at_ < pattern_.size()) refuse(at_, "no group to close");
        return std::move(out_);
    }

private:
    std::string_view pattern_;
    const std::string& origin_;
    size_t at_ = 0;
    std::string out_;
    bool caseless_ = false;
    uint32_t letter_before_ = 0;  // in caseless text: the literal just passed

    [[noreturn]] void refuse(size_t at, const std::string& what) const {
        throw InputError(text(origin_, ": regular expression \"", pattern_, "\", byte ", at, ": ", what));
    }
    bool more() const { return at_ < pattern_.size(); }
    bool next_is(std::string_view s) const { return pattern_.substr(at_).starts_with(s); }
    bool take(std::string_view s) {
        if (!next_is(s)) return false;
        at_ += s.size();
        return true;
    }
    uint32_t take_code() {
        if (!more()) refuse(at_, "it ends too early");
        const Utf8Character c = utf8_at(pattern_, at_);
        if (!c.valid) refuse(at_, "not UTF-8");
        at_ += c.length;
        return c.code;
    }

    /// Up to the end or the ) of the group around. Says whether it can match nothing.
    bool alternatives(int depth) {
        if (depth > depth_limit) refuse(at_, text("more than ", depth_limit, " groups within each other"));
        bool any_empty = false;
        while (true) {
            bool empty = true;
            letter_before_ = 0;
            while (more() && !next_is("|") && !next_is(")")) empty &= repeated(depth);
            any_empty |= empty;
            if (!take("|")) return any_empty;
            out_ += '|';
        }
    }

    /// An atom and how often it comes. Says whether that can match nothing.
    bool repeated(int depth) {
        const size_t start = at_;
        const bool group = next_is("(");
        const bool assertion = next_is("(?=") || next_is("(?!") || next_is("(?<=") || next_is("(?<!") || next_is("^") || next_is("$");
        const bool empty = atom(depth);
        const auto [least, most] = quantifier();
        if (least < 0) return empty;
        if (assertion || (empty && !group)) refuse(start, "an assertion cannot be repeated");
        if (empty) refuse(start, "a group that can match nothing is repeated");
        letter_before_ = 0;
        out_ += most >= 0 ? text("{", least, ",", most, "}") : least == 0 ? "*" : least == 1 ? "+" : text("{", least, ",}");
        if (take("?")) out_ += '?';
        else if (next_is("+") && group) refuse(at_, "a possessive group is not supported");
        else if (take("+")) out_ += '+';
        if (next_is("*") || next_is("+") || next_is("?") || next_is("{")) refuse(at_, "a repetition is repeated");
        return least == 0;
    }

    /// Least and most (-1: no limit) times; least -1: there is no quantifier.
    std::pair<int64_t, int64_t> quantifier() {
        if (take("*")) return {0, -1};
        if (take("+")) return {1, -1};
        if (take("?")) return {0, 1};
        if (!next_is("{")) return {-1, -1};
        const size_t start = at_++;
        const int64_t first = number();
        int64_t least = first, most = first;
        if (take(",")) {
            least = first < 0 ? 0 : first;
            most = number();
            if (first < 0 && most < 0) refuse(start, "expected {n}, {n,}, {,m} or {n,m}");
        }
        if (least < 0 || !take("}") || (most >= 0 && most < least)) refuse(start, "expected {n}, {n,}, {,m} or {n,m} with n ≤ m, or \\{");
        // Ruby reads {n}? as "n times or not at all" and {n,m}+ as a repeated repetition.
        if (next_is("+") || (next_is("?") && least == most)) refuse(at_, "after {…} it means something else in other dialects, so it is not supported");
        return {least, most};
    }

    int64_t number() {
        const size_t start = at_;
        int64_t n = -1;
        while (more() && is_digit(uint32_t(pattern_[at_]))) {
            n = (n < 0 ? 0 : n * 10) + (pattern_[at_++] - '0');
            if (n > repeat_limit) refuse(start, text("more than ", repeat_limit, " times"));
        }
        return n;
    }

    bool atom(int depth) {
        const size_t start = at_;
        const uint32_t code = take_code();
        switch (code) {
            case '(': return group(start, depth);
            case '[': {
                if (caseless_) refuse(start, "a class within (?i:…) is not supported");
                letter_before_ = 0;
                out_ += bracket(depth);
                return false;
            }
            case '.':
                letter_before_ = 0;
                out_ += '.';
                return false;
            // A line begins after each line feed but one that ends the text; it ends before each line feed and at the end of the text.
            case '^': return out_ += "(?:\\A|(?<=\\n)(?!\\z))", true;
            case '$': return out_ += "(?=\\n|\\z)", true;
            case '*': case '+': case '?': refuse(start, "nothing to repeat");
            case '\\': return escaped(start);
            default: return put_literal(start, code);
        }
    }

    bool put_literal(size_t start, uint32_t code) {
        if (caseless_) {
            if (code >= 0x80) refuse(start, "a letter that is not ASCII within (?i:…) is not supported");
            // Oniguruma also matches the ligatures and ß there.
            const char pair[] = {char(letter_before_ | 32), char(code | 32), 0};
            for (const char* folded : {"ss", "ff", "fi", "fl", "st"})
                if (std::string_view(pair) == folded) refuse(start, text("\"", folded, "\" within (?i:…) is not supported"));
            letter_before_ = is_letter(code) ? code : 0;
        }
        out_ += literal(code);
        return false;
    }

    bool group(size_t start, int depth) {
        static constexpr std::array<std::string_view, 6> openings = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:"};
        at_ = start;
        std::string_view opening;
        for (std::string_view o : openings)
            if (next_is(o)) opening = o;
        // (?>…) is not among them: PCRE2 10.42's just-in-time compiler goes back into it, for one in (?>b*?a|z?)b on "bba".
        if (opening.empty() && next_is("(?")) refuse(start, "this kind of group is not supported");
        at_ += opening.empty() ? 1 : opening.size();
        const bool outside = caseless_;
        if (opening == "(?i:") caseless_ = true;
        // Nothing refers to what a plain group holds.
        out_ += opening.empty() ? "(?:" : opening;
        const bool empty = alternatives(depth + 1);
        if (!take(")")) refuse(start, "the group is not closed");
        out_ += ')';
        caseless_ = outside;
        letter_before_ = 0;
        const bool assertion = opening == "(?=" || opening == "(?!" || opening == "(?<=" || opening == "(?<!";
        return empty || assertion;
    }

    bool escaped(size_t start) {
        if (take("A")) return out_ += "\\A", true;
        if (take("z")) return out_ += "\\z", true;
        if (take("Z")) return out_ += "\\Z", true;
        if (next_is("b") || next_is("B")) {
            const bool at_border = pattern_[at_++] == 'b';
            const std::string word = "[" + word_items(false) + "]", neither = "(?<!" + word + ")(?!" + word + ")", both = "(?<=" + word + ")(?=" + word + ")";
            out_ += at_border ? "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))" : "(?:" + neither + "|" + both + ")";
            return true;
        }
        CharacterSet set;
        uint32_t code = 0;
        if (!escape(start, false, set, code)) return put_literal(start, code);
        if (caseless_ && (pattern_[start + 1] | 32) == 'p') refuse(start, "\\p within (?i:…) is not supported");
        letter_before_ = 0;
        out_ += set.expression();
        return false;
    }

    /// What follows a backslash: true for a class of characters, false for one character.
    bool escape(size_t start, bool in_bracket, CharacterSet& set, uint32_t& code) {
        const uint32_t c = take_code();
        switch (c) {
            case 's': set.items = spelt(space); return true;
            case 'S': set.items = spelt(complement(space)); return true;
            case 'h': set.items = spelt(hexadecimal); return true;
            case 'H': set.items = spelt(complement(hexadecimal)); return true;
            case 'd': set.items = category_items("Nd"); return true;
            case 'D': set.others = {"[^" + category_items("Nd") + "]"}; return true;
            case 'w': set.items = word_items(in_bracket); return true;
            case 'W': set.others = {"[^" + word_items(in_bracket) + "]"}; return true;
            case 'p': case 'P': property(start, c == 'P', set); return true;
            case 't': code = '\t'; return false;
            case 'n': code = '\n'; return false;
            case 'r': code = '\r'; return false;
            case 'f': code = '\f'; return false;
            case 'v': code = '\v'; return false;
            case 'a': code = '\a'; return false;
            case 'e': code = 0x1b; return false;
            case 'x': code = take("{") ? hexadecimal_digits(start, 1, 8, "}") : hexadecimal_digits(start, 2, 2, ""); return false;
            case 'u': code = hexadecimal_digits(start, 4, 4, ""); return false;
            default:
                if (is_letter(c) || is_digit(c) || c >= 0x80) refuse(start, "this escape is not supported");
                code = c;
                return false;
        }
    }

    uint32_t hexadecimal_digits(size_t start, int least, int most, std::string_view end) {
        uint32_t code = 0;
        int count = 0;
        for (; count < most && more(); count++, at_++) {
            const size_t digit = std::string_view("0123456789abcdef").find(char(pattern_[at_] >= 'A' && pattern_[at_] <= 'F' ? pattern_[at_] + 32 : pattern_[at_]));
            if (digit == std::string_view::npos) break;
            code = code * 16 + uint32_t(digit);
        }
        // \x80 to \xff are bytes, not characters, in Oniguruma.
        if (count < least || !take(end) || code > last_code || (code >= 0xd800 && code < 0xe000) || (least == 2 && code >= 0x80))
            refuse(start, "not the hexadecimal number of a character; expected \\x{…}, \\u with four digits, or \\x00 to \\x7f");
        return code;
    }

    /// The braces after \p and \P.
    void property(size_t start, bool negated, CharacterSet& set) {
        static constexpr std::string_view categories[] = {"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps",
                                                          "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};
        if (!take("{")) refuse(start, "expected {…} after it");
        if (take("^")) negated = !negated;
        const std::string_view name = pattern_.substr(at_, std::min(pattern_.find('}', at_), pattern_.size()) - at_);
        at_ += name.size();
        if (!take("}")) refuse(start, "its } is missing");
        std::string items;
        for (std::string_view category : categories)
            if (name == category) items = category_items(category);
        for (const Script& script : scripts)
            if (name == script.name) items = spelt(script.ranges);
        if (items.empty()) refuse(start, "this property is not supported; known are the general categories L, Lu, …, Co, and Han, Hiragana, Katakana, Hangul");
        if (negated) set.others = {"[^" + items + "]"};
        else set.items = items;
    }

    /// The class whose [ is taken, as a PCRE2 expression for one character.
    std::string bracket(int depth) {
        bool negated = false;
        const CharacterSet set = bracket_set(depth, negated);
        return negated ? set.negated() : set.expression();
    }

    CharacterSet bracket_set(int depth, bool& negated) {
        const size_t start = at_ - 1;
        if (depth > depth_limit) refuse(start, text("more than ", depth_limit, " groups within each other"));
        negated = take("^");
        if (next_is("]")) refuse(at_, "] as the first character of a class; write \\]");
        std::vector<CharacterSet> operands(1);  // of &&
        for (bool first = true; !take("]"); first = false) {
            if (!more()) refuse(start, "the class is not closed");
            if (!first && next_is("-") && !next_is("-]")) refuse(at_, "- in the middle of a class; write \\-");
            if (take("&&")) operands.emplace_back();
            else class_item(operands.back(), depth);
        }
        for (const CharacterSet& operand : operands)
            if (operand.items.empty() && operand.others.empty()) refuse(start, "nothing beside && in the class");
        if (operands.size() == 1) return std::move(operands[0]);
        std::string both = "(?:";
        for (size_t i = 0; i + 1 < operands.size(); i++) both += "(?=" + operands[i].expression() + ")";
        return {"", {both + operands.back().expression() + ")"}};
    }

    void class_item(CharacterSet& set, int depth) {
        const size_t start = at_;
        if (next_is("[:")) refuse(start, "POSIX classes are not supported");
        if (take("[")) {
            bool negated = false;
            CharacterSet inner = bracket_set(depth + 1, negated);
            if (negated) return set.others.push_back(inner.negated());
            return join(set, inner);
        }
        CharacterSet escaped_set;
        uint32_t first = 0;
        if (class_character(start, escaped_set, first)) {
            if (next_is("-") && !next_is("-]")) refuse(at_, "a class cannot begin a range; write \\-");
            return join(set, escaped_set);
        }
        if (!next_is("-") || next_is("-]")) return set.items += literal(first), void();
        at_++;
        const size_t second = at_;
        uint32_t last = 0;
        if (next_is("[") || class_character(second, escaped_set, last)) refuse(second, "a class cannot end a range; write \\-");
        if (last < first) refuse(start, "the range runs backwards");
        add_range(set, first, last);
    }

    static void join(CharacterSet& set, const CharacterSet& other) {
        set.items += other.items;
        set.others.insert(set.others.end(), other.others.begin(), other.others.end());
    }

    static void add_range(CharacterSet& set, uint32_t first, uint32_t last) {
        if (first < 0xd800 && last > 0xdfff) set.items += spelt({{first, 0xd7ff}}), first = 0xe000;
        set.items += spelt({{first, last}});
    }

    /// True for a class of characters such as \s, false for one character.
    bool class_character(size_t start, CharacterSet& set, uint32_t& code) {
        if (!take("\\")) {
            code = take_code();
            return false;
        }
        if (next_is("b")) refuse(start, "this escape is not supported");
        return escape(start, true, set, code);
    }
};

}  // namespace

std::string oniguruma_to_pcre2(std::string_view pattern, const std::string& origin) { return Translator(pattern, origin).translate(); }

}  // namespace clover
