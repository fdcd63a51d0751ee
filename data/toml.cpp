#include "toml.h"

#include <algorithm>

namespace clover {
namespace {

/// toml++ keeps a.b.c as nested tables and frees them by recursion: a bound on the dots of a line (outside quotes) bounds the stack.
void require_shallow(std::string_view toml, const std::string& origin) {
    require(toml.size() <= 1 << 20, origin, ": larger than 1 MiB, which no config file is");
    int64_t line = 1, dots = 0;
    char quoted = 0;
    for (size_t i = 0; i < toml.size(); i++) {
        const char c = toml[i];
        if (c == '\n') line++, dots = 0, quoted = 0;
        else if (quoted == '"' && c == '\\') i++;
        else if (quoted) quoted = c == quoted ? 0 : quoted;
        else if (c == '"' || c == '\'') quoted = c;
        else if (c == '.') require(++dots <= 100, origin, ":", line, ": a line with more than 100 dots is no line of a config file");
    }
}

/// toml++'s report as one line of ours.
std::string parse_message(const toml::parse_error& error, const std::string& origin) {
    const std::string what = one_line(std::string(error.description()), 200);
    const std::string where = text(origin, ":", error.source().begin.line);
    const size_t again = what.find("cannot redefine existing ");
    const size_t name = again == std::string::npos ? again : what.find('\'', again);
    if (name == std::string::npos) return text(where, ": not TOML: ", what);
    return text(where, ": ", what.substr(name, what.find('\'', name + 1) + 1 - name), " is given twice; keep one");
}

}  // namespace

std::string one_line(std::string s, size_t longest) {
    std::replace_if(s.begin(), s.end(), [](char c) { return uint8_t(c) < 0x20; }, ' ');
    return s.size() <= longest ? s : s.substr(0, longest - 3) + "...";
}

toml::table parse_toml(const std::string& toml, const std::string& origin) {
    require_shallow(toml, origin);
    try {
        return toml::parse(std::string_view(toml));
    } catch (const toml::parse_error& error) {
        throw InputError(parse_message(error, origin));
    } catch (const InputError& error) {  // an assertion of toml++
        throw InputError(text(origin, ": not TOML: ", error.what()));
    }
}

}  // namespace clover
