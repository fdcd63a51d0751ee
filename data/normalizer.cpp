#include "normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "../kernels/error.h"
#include "object_reader.h"
#include "regular_expression.h"
#include "utf8.h"

namespace clover {
namespace {

std::string unicode_form(const std::string& text, int options) {
    utf8proc_uint8_t* result = nullptr;
    const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), utf8proc_ssize_t(text.size()), &result,
                                                 utf8proc_option_t(options | UTF8PROC_STABLE));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
    CLOVER_CHECK(length >= 0, utf8proc_errmsg(length));
    return std::string(reinterpret_cast<const char*>(result), size_t(length));
}

/// Each character by itself, by its full mapping, of which only U+0130 has more than one character.
std::string lowercase(const std::string& text) {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
        const Utf8Character c = utf8_at(text, at);
        if (c.code == 0x130) out += "i\xcc\x87";
        else append_utf8(out, uint32_t(utf8proc_tolower(utf8proc_int32_t(c.code))));
        at += c.length;
    }
    return out;
}

constexpr std::pair<const char*, int> forms[] = {{"NFC", UTF8PROC_COMPOSE},
                                                 {"NFD", UTF8PROC_DECOMPOSE},
                                                 {"NFKC", UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                                                 {"NFKD", UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};

std::function<std::string(std::string)> replace(ObjectReader& reader) {
    const std::string content = reader.string("content");
    ObjectReader pattern(reader.member("pattern"), reader.where() + ".pattern");
    if (pattern.has("Regex")) {
        const auto expression = std::make_shared<RegularExpression>(pattern.string("Regex"), pattern.where());
        pattern.finish();
        return [=](std::string text) {
            std::string out;
            size_t copied = 0;
            RegularExpression::Search search(*expression, text);
            for (; search.next(); copied = search.last()) out.append(text, copied, search.first() - copied).append(content);
            return out.append(text, copied);
        };
    }
    const std::string wanted = pattern.string("String");
    if (wanted.empty()) pattern.refuse("String", "an empty string cannot be looked for");
    pattern.finish();
    return [=](std::string text) {
        std::string out;
        size_t copied = 0;
        for (size_t at; (at = text.find(wanted, copied)) != std::string::npos; copied = at + wanted.size()) out.append(text, copied, at - copied).append(content);
        return out.append(text, copied);
    };
}

}  // namespace

Normalizer::Normalizer(const nlohmann::json& spec, const std::string& origin) {
    if (!spec.is_null()) add(spec, origin + ": normalizer", 0);
}

void Normalizer::add(const nlohmann::json& spec, const std::string& where, int depth) {
    ObjectReader reader(spec, where);
    const std::string type = reader.string("type");
    const size_t before = steps_.size();
    for (const auto& [name, options] : forms)
        if (type == name) steps_.push_back([options = options](std::string text) { return unicode_form(text, options); });
    if (type == "Lowercase") steps_.push_back(lowercase);
    if (type == "Replace") steps_.push_back(replace(reader));
    if (type == "Prepend") steps_.push_back([prefix = reader.string("prepend")](std::string text) { return text.empty() ? text : prefix + text; });
    if (type == "Sequence") {
        const nlohmann::json& list = reader.member("normalizers");
        if (!list.is_array() || depth >= 10) reader.refuse("normalizers", "expected an array, at most ten within each other");
        for (size_t i = 0; i < list.size(); i++) add(list[i], text(where, ".normalizers[", i, "]"), depth + 1);
    } else if (steps_.size() == before) {
        reader.refuse("type", "supported are NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend and Sequence");
    } else {
        description_ += (description_.empty() ? "" : ", ") + type;
    }
    reader.finish();
}

std::string Normalizer::normalize(std::string_view text) const {
    std::string out(text);
    for (const auto& step : steps_) out = step(std::move(out));
    return out;
}

}  // namespace clover
