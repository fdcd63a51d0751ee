#include "escape.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace clover {
namespace {

std::string replaced(std::string_view s, const std::initializer_list<std::pair<char, std::string_view>>& replacements) {
    std::string out;
    for (const char c : s) {
        const auto* r = std::find_if(replacements.begin(), replacements.end(), [&](const auto& pair) { return pair.first == c; });
        if (r != replacements.end()) out += r->second;
        else out += c;
    }
    return out;
}

// As JSON, bytes that are no UTF-8 replaced by U+FFFD.
std::string json_text(std::string_view s) { return nlohmann::json(s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

}  // namespace

std::string escape_xml(std::string_view s) {
    std::string valid = nlohmann::json::parse(json_text(s)).get<std::string>();
    std::replace_if(valid.begin(), valid.end(), [](char c) { return uint8_t(c) < 0x20 || c == 0x7f; }, ' ');
    return replaced(valid, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}});
}

std::string script_string(std::string_view s) { return replaced(json_text(s), {{'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}}); }

std::string csv_field(std::string_view s) {
    if (s.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(s);
    return '"' + replaced(s, {{'"', "\"\""}}) + '"';
}

std::string escape_markdown(std::string_view s) {
    return replaced(s, {{'|', "\\|"}, {'<', "&lt;"}, {'\n', " "}, {'\r', " "}});
}

}  // namespace clover
