#include "config_suggestions.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

#include "config_keys.h"

namespace clover::config {
namespace {

/// Levenshtein's distance.
size_t distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); j++) row[j] = j;
    for (size_t i = 0; i < a.size(); i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b.size(); j++) {
            const size_t replaced = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
        }
    }
    return row.back();
}

}  // namespace

std::string suggestion(std::string_view section, std::string name) {
    if (name.size() > 64) return "";
    for (char& c : name) c = c == '-' ? '_' : char(std::tolower(uint8_t(c)));
    const Key* best = nullptr;
    size_t least = SIZE_MAX;
    for (const Key& key : keys()) {
        std::istringstream spellings(text(key.name, " ", key.aliases));
        for (std::string spelling; spellings >> spelling;) {
            const size_t edits = distance(name, spelling);
            if (edits > (name.size() + 1) / 3 || edits >= name.size()) continue;
            const size_t cost = 2 * edits + (key.section != section);
            if (cost < least) least = cost, best = &key;
        }
    }
    return best ? text("; did you mean ", best->dotted(), "?") : "";
}

std::string section_suggestion(const std::string& name) {
    std::set<std::string_view> sections;
    for (const Key& key : keys()) sections.insert(key.section);
    for (const std::string_view section : sections)
        if (name.size() <= 64 && distance(name, section) <= (name.size() + 1) / 3) return text("; did you mean [", section, "]?");
    return "; the sections are " + joined(sections);
}

}  // namespace clover::config
