#include "manual.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>

namespace clover {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Takes one of the prefixes off the line; false if it starts with none.
bool take(std::string_view& line, std::initializer_list<std::string_view> prefixes) {
    for (std::string_view prefix : prefixes)
        if (line.starts_with(prefix)) {
            line.remove_prefix(prefix.size());
            return true;
        }
    return false;
}

/// A space, a no-break space or an ideographic space.
bool take_space(std::string_view& line) { return take(line, {" ", "\u00a0", "\u3000"}); }

/// "2", "12" or "B"; `first` only, for the parts after a dot are digits.
bool take_number(std::string_view& line, bool first) {
    if (first && !line.empty() && line[0] >= 'A' && line[0] <= 'Z') {
        line.remove_prefix(1);
        return true;
    }
    const size_t n = size_t(std::find_if_not(line.begin(), line.end(), is_digit) - line.begin());
    line.remove_prefix(n);
    return n > 0;
}

bool is_numbered_title(std::string_view line, bool parts) {
    if (!take_number(line, true)) return false;
    while (parts && line.size() > 1 && line[0] == '.' && is_digit(line[1])) {
        line.remove_prefix(1);
        take_number(line, false);
    }
    if (!take(line, {".", "章", "장."})) {
        if (!take_space(line) || !take(line, {"章"})) return false;
    }
    return take_space(line) && !line.empty();
}

bool is_blank(std::string_view line) { return std::all_of(line.begin(), line.end(), [](unsigned char c) { return std::isspace(c) != 0; }); }

/// Where the sections start: 0 and each heading.
std::vector<size_t> section_starts(std::string_view text) {
    std::vector<size_t> starts = {0};
    bool blank_before = true;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string_view line = text.substr(at, end - at);
        if (blank_before && at > 0 && is_heading(line)) {
            const size_t next = std::min(end + 1, text.size());
            if (is_blank(text.substr(next, text.find('\n', next) - next))) starts.push_back(at);
        }
        blank_before = is_blank(line);
        at = end + 1;
    }
    return starts;
}

/// The length of the first piece of a text that is longer than `most`.
size_t first_piece(std::string_view text, size_t most) {
    size_t end = text.rfind("\n\n", most - 2);
    if (end != std::string_view::npos && end > 0) return end + 2;
    end = text.rfind('\n', most - 1);
    if (end != std::string_view::npos && end > 0) return end + 1;
    end = most;
    while (end > 1 && (text[end] & 0xc0) == 0x80) end--;  // not within a character of UTF-8
    return end;
}

}  // namespace

bool is_heading(std::string_view line) {
    if (line.size() > 160 || line.empty()) return false;
    if (is_numbered_title(line, true)) return true;
    // A word in front ("Chapter", "Κεφάλαιο", "第") takes a single number: "Table 1.2. Title" belongs to its section.
    const size_t word = std::min({line.find(' '), line.find("\u00a0"), size_t(std::find_if(line.begin(), line.end(), is_digit) - line.begin())});
    const unsigned char first = static_cast<unsigned char>(line[0]);
    if (word == 0 || word > 30 || word >= line.size() || (first < 0x80 && !std::isalpha(first))) return false;
    line.remove_prefix(word);
    take_space(line);
    return is_numbered_title(line, false);
}

std::vector<std::string_view> cut_manual(std::string_view text, size_t least, size_t most) {
    std::vector<std::string_view> documents;
    std::vector<size_t> starts = section_starts(text);
    starts.push_back(text.size());
    size_t begin = 0;
    for (size_t i = 1; i < starts.size(); i++) {
        const bool last = i + 1 == starts.size();
        if (!last && starts[i] - begin < least) continue;
        std::string_view rest = text.substr(begin, starts[i] - begin);
        for (; rest.size() > most; rest.remove_prefix(documents.back().size())) documents.push_back(rest.substr(0, first_piece(rest, most)));
        if (last && rest.size() < least && !documents.empty() && documents.back().size() + rest.size() <= most)
            documents.back() = std::string_view(documents.back().data(), documents.back().size() + rest.size());
        else if (!rest.empty())
            documents.push_back(rest);
        begin = starts[i];
    }
    return documents;
}

}  // namespace clover
