#include "normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "../kernels/error.h"
#include "object_reader.h"
#include "regular_expression.h"
#include "utf8.h"

namespace clover {
namespace {

struct CodeRange {
    uint32_t first, last;
};
/// Hugging Face's normal forms are those of Unicode 9, so what was assigned later stands there for itself: it neither decomposes nor moves nor composes. These are the
/// ranges with such characters; the others in them have no part in normal forms in any version. (Every code point compared with tokenizers 0.23.)
constexpr CodeRange after_unicode_9[] = {
    {0x7fb, 0x7ff}, {0x85c, 0x8d3}, {0x9e4, 0xa31}, {0xace, 0xb3b}, {0xb4e, 0xb55}, {0xbd8, 0xc45}, {0xcd7, 0xd3c}, {0xd64, 0xdc9}, {0xeba, 0xec7},
    {0xece, 0xedb}, {0x1715, 0x171f}, {0x17de, 0x187f}, {0x1abf, 0x1aff}, {0x1cf7, 0x1cf7}, {0x1df6, 0x1dfa}, {0x32ff, 0x32ff}, {0xa7af, 0xa7f6},
    {0xa82c, 0xa87f}, {0xa8fe, 0xa8ff}, {0xab66, 0xab6f}, {0x1037b, 0x10a0b}, {0x10ae7, 0x10fff}, {0x1104e, 0x1107e}, {0x110c2, 0x110ff},
    {0x11135, 0x1114f}, {0x111ce, 0x11212}, {0x1123f, 0x112af}, {0x112eb, 0x1133b}, {0x11375, 0x113ff}, {0x1145a, 0x1147f}, {0x1172c, 0x11c37},
    {0x11c46, 0x16aef}, {0x16b46, 0x1bc9b}, {0x1bca4, 0x1d128}, {0x1e02b, 0x1e8c6}, {0x1f16c, 0x1f16f}, {0x1f252, 0x2f7ff},
};

/// Lower case that Unicode 15 to 17 brought, which Rust's standard library knows and utf8proc not yet: first and last of the upper case, and where it goes.
constexpr struct {
    uint32_t first, last, lower;
} new_lower_case[] = {{0x1c89, 0x1c89, 0x1c8a}, {0xa7cb, 0xa7cb, 0x264}, {0xa7cc, 0xa7cc, 0xa7cd}, {0xa7ce, 0xa7ce, 0xa7cf}, {0xa7d2, 0xa7d2, 0xa7d3}, {0xa7d4, 0xa7d4, 0xa7d5},
                      {0xa7da, 0xa7da, 0xa7db}, {0xa7dc, 0xa7dc, 0x19b}, {0x10d50, 0x10d65, 0x10d70}, {0x16ea0, 0x16eb8, 0x16ebb}};

bool is_after_unicode_9(uint32_t code) {
    if (code < after_unicode_9[0].first) return false;
    const auto* found = std::upper_bound(std::begin(after_unicode_9), std::end(after_unicode_9), code, [](uint32_t c, const CodeRange& r) { return c < r.first; }) - 1;
    return code <= found->last;
}

/// A normal form of text (Unicode annex 15). utf8proc_map would do, but for texts of nothing but combining marks, on which it takes quadratic time.
class UnicodeForm {
public:
    explicit UnicodeForm(int options) : options_(utf8proc_option_t(options | UTF8PROC_STABLE)) {}

    std::string operator()(const std::string& text) const {
        if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) return text;
        std::string out;
        out.reserve(text.size());
        std::vector<utf8proc_int32_t> run;  // decomposed
        for (size_t at = 0; at < text.size();) {
            const Utf8Character c = utf8_at(text, at);
            at += c.length;
            if (is_after_unicode_9(c.code)) {
                flush(run, out);
                append_utf8(out, c.code);
            } else {
                decompose(c.code, run);
            }
        }
        flush(run, out);
        return out;
    }

private:
    utf8proc_option_t options_;

    void decompose(uint32_t code, std::vector<utf8proc_int32_t>& run) const {
        utf8proc_int32_t parts[32];  // the longest decomposition has 18
        int boundary = 0;
        const utf8proc_ssize_t count = utf8proc_decompose_char(utf8proc_int32_t(code), parts, 32, options_, &boundary);
        CLOVER_CHECK(count >= 0 && count <= 32, utf8proc_errmsg(count));
        run.insert(run.end(), parts, parts + count);
    }
    /// Brings combining marks into canonical order, composes, and empties the run.
    void flush(std::vector<utf8proc_int32_t>& run, std::string& out) const {
        const auto combining_class = [](utf8proc_int32_t c) { return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class; };
        const auto is_starter = [&](utf8proc_int32_t c) { return combining_class(c) == 0; };
        for (auto first = run.begin(); (first = std::find_if_not(first, run.end(), is_starter)) != run.end();) {
            const auto last = std::find_if(first, run.end(), is_starter);
            std::stable_sort(first, last, [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
            first = last;
        }
        if (!run.empty()) run.resize(size_t(utf8proc_normalize_utf32(run.data(), utf8proc_ssize_t(run.size()), options_)));
        for (utf8proc_int32_t c : run) append_utf8(out, uint32_t(c));
        run.clear();
    }
};

/// Each character by itself, by its full mapping, of which only U+0130 has more than one character.
std::string lowercase(const std::string& text) {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
        const Utf8Character c = utf8_at(text, at);
        uint32_t lower = uint32_t(utf8proc_tolower(utf8proc_int32_t(c.code)));
        for (const auto& range : new_lower_case)
            if (c.code >= range.first && c.code <= range.last) lower = range.lower + (c.code - range.first);
        if (c.code == 0x130) out += "i\xcc\x87";
        else append_utf8(out, lower);
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
        if (type == name) steps_.push_back(UnicodeForm(options));
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
