#include "config_print.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace clover::config {

std::string quote(std::string_view s) {
    std::string quoted = "\"";
    for (const char c : s) {
        char escape[8];
        if (c == '"' || c == '\\') quoted += {'\\', c};
        else if (c == '\n') quoted += "\\n";
        else if (uint8_t(c) < 0x20 || c == 0x7f) std::snprintf(escape, sizeof escape, "\\u%04X", unsigned(uint8_t(c))), quoted += escape;
        else quoted += c;
    }
    return quoted + '"';
}

namespace {

/// The shortest decimal that reads back to the same double, with a point or an exponent so that it stays a TOML float.
std::string number_text(double x) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, x).ptr;
    std::string s(digits, end);
    return s.find_first_of(".e") == std::string::npos ? s + ".0" : s;
}

std::string value_text(const Integer& b, Config& c) { return std::to_string(b.at(c)); }
std::string value_text(const Number& b, Config& c) { return number_text(b.at(c)); }
std::string value_text(const Boolean& b, Config& c) { return b.at(c) ? "true" : "false"; }
std::string value_text(const Text& b, Config& c) { return quote(b.at(c)); }
std::string value_text(const Word& b, Config& c) { return quote(b.at(c)); }
std::string value_text(const Choice& b, Config& c) { return quote(b.spellings[b.at(c)]); }

std::string value_text(const Prompts& b, Config& c) {
    std::string list;
    for (const std::string& prompt : b.at(c)) list += (list.empty() ? "" : ", ") + quote(prompt);
    return "[" + list + "]";
}

std::string value_text(const Ramp& b, Config& c) {
    const RampUp& r = b.at(c);
    return r.samples == 0 ? "[]" : text("[", r.start, ", ", r.increment, ", ", r.samples, "]");
}

std::string value_text(const Sources& b, Config& c) {
    const std::vector<DataSource>& sets = b.at(c);
    if (sets.empty()) return "[]";
    const bool weighted = std::any_of(sets.begin(), sets.end(), [](const DataSource& s) { return s.weight != 0; });
    std::string list = "[\n";
    for (const DataSource& s : sets)
        list += text("    {path = ", quote(s.path), ", name = ", quote(s.name), weighted ? ", weight = " + number_text(s.weight) : "",
                     s.from > 0 || s.to < 1 ? text(", range = [", number_text(s.from), ", ", number_text(s.to), "]") : "", "},\n");
    return list + "]";
}

std::string value_text(const Split& b, Config& c) {
    std::string list;
    for (double share : b.at(c)) list += (list.empty() ? "" : ", ") + number_text(share);
    return "[" + list + "]";
}

}  // namespace

std::string value_text(const Key& key, const Config& config) {
    Config copy = config;
    return std::visit([&](const auto& b) { return value_text(b, copy); }, key.binding);
}

}  // namespace clover::config

namespace clover {

using namespace config;

std::string to_toml(const Config& config) {
    std::string toml;
    std::string_view section;
    for (const Key& key : keys()) {
        if (section != key.section) toml += text(section.empty() ? "" : "\n", "[", key.section, "]\n");
        section = key.section;
        toml += text(key.name, " = ", value_text(key, config), "\n");
    }
    return toml;
}

}  // namespace clover
