#include "pre_tokenizer.h"

#include <optional>
#include <utility>
#include <vector>

#include "../kernels/error.h"
#include "object_reader.h"
#include "regular_expression.h"

namespace clover {
namespace {

using Piece = std::function<void(std::string_view)>;

/// Radford et al. 2019 (openai/gpt-2, encoder.py).
constexpr const char* gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

enum class Behavior : uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

constexpr std::pair<const char*, Behavior> behaviors[] = {{"Isolated", Behavior::isolated},
                                                          {"Removed", Behavior::removed},
                                                          {"MergedWithPrevious", Behavior::merged_with_previous},
                                                          {"MergedWithNext", Behavior::merged_with_next},
                                                          {"Contiguous", Behavior::contiguous}};

/// What to look for: a regular expression, or a string.
struct Pattern {
    std::optional<RegularExpression> expression = {};
    std::string string = "";

    /// Cuts `text` into matches and what lies between them: span(first, last, is_match). Only matches can be empty.
    template <class F>
    void for_each_span(std::string_view text, F&& span) const {
        size_t end = 0;
        const auto match = [&](size_t first, size_t last) {
            if (first > end) span(end, first, false);
            span(first, last, true);
            end = last;
        };
        if (expression) {
            RegularExpression::Search search(*expression, text);
            while (search.next()) match(search.first(), search.last());
        } else {
            for (size_t at = 0; (at = text.find(string, at)) != std::string_view::npos; at += string.size()) match(at, at + string.size());
        }
        if (end < text.size()) span(end, text.size(), false);
    }
};

/// One step of the pre-tokenizer.
struct Step {
    Pattern pattern;
    Behavior behavior = Behavior::isolated;
    bool invert = false;
    bool prefix_space = false;  // ByteLevel's add_prefix_space; the pattern is then looked for in what comes of it
    bool splits = true;

    void split(std::string_view text, const Piece& piece) const {
        std::string prefixed;
        if (prefix_space && !text.starts_with(' ')) text = (prefixed = ' ').append(text);
        if (splits) split_spans(text, piece);
        else piece(text);
    }

private:
    void split_spans(std::string_view text, const Piece& piece) const {
        size_t first = 0, last = 0;  // the piece that the next span may still join
        bool last_matched = false, none = true;
        pattern.for_each_span(text, [&](size_t from, size_t to, bool matched) {
            matched = matched != invert;
            if (behavior == Behavior::removed && matched) return;
            const bool joins = !none && ((behavior == Behavior::contiguous && matched == last_matched) ||
                                         (behavior == Behavior::merged_with_previous && matched && !last_matched) ||
                                         (behavior == Behavior::merged_with_next && !matched && last_matched));
            if (!joins) {
                if (last > first) piece(text.substr(first, last - first));
                first = from;
            }
            last = to;
            last_matched = matched;
            none = false;
        });
        if (last > first) piece(text.substr(first, last - first));
    }
};

}  // namespace

struct PreTokenizer::Impl {
    std::vector<Step> steps;
    bool byte_level = false;

    void add(const nlohmann::json& spec, const std::string& where, int depth) {
        ObjectReader reader(spec, where);
        const std::string type = reader.string("type");
        require(!byte_level, where, ": ", type, " after ByteLevel is not supported; ByteLevel must come last");
        if (type == "Sequence") add_sequence(reader, depth);
        else if (type == "Split") add_split(reader);
        else if (type == "Digits") add_digits(reader);
        else if (type == "WhitespaceSplit") steps.push_back({{RegularExpression(R"(\s)", where)}, Behavior::removed});
        else if (type == "ByteLevel") add_byte_level(reader);
        else reader.refuse("type", "supported are Sequence, Split, Digits, WhitespaceSplit and ByteLevel");
        reader.finish();
    }

private:
    void add_sequence(ObjectReader& reader, int depth) {
        const nlohmann::json& list = reader.member("pretokenizers");
        if (!list.is_array() || depth >= 10) reader.refuse("pretokenizers", "expected an array, at most ten within each other");
        for (size_t i = 0; i < list.size(); i++) add(list[i], text(reader.where(), ".pretokenizers[", i, "]"), depth + 1);
    }

    void add_split(ObjectReader& reader) {
        Step step;
        ObjectReader pattern(reader.member("pattern"), reader.where() + ".pattern");
        if (pattern.has("Regex")) {
            step.pattern.expression.emplace(pattern.string("Regex"), reader.where() + ".pattern");
        } else {
            step.pattern.string = pattern.string("String");
            if (step.pattern.string.empty()) pattern.refuse("String", "an empty string cannot be looked for");
        }
        pattern.finish();
        const std::string name = reader.string("behavior");
        bool known = false;
        for (const auto& [spelling, behavior] : behaviors)
            if (name == spelling) step.behavior = behavior, known = true;
        if (!known) reader.refuse("behavior", "expected Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
        step.invert = reader.boolean("invert");
        steps.push_back(std::move(step));
    }

    void add_digits(ObjectReader& reader) {
        // Rust's is_numeric has Unicode 17, whose digits of Tolong Siki and Chisoi are not in \p{N} yet.
        steps.push_back({{RegularExpression(R"([\p{N}\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6}])", reader.where())},
                         reader.boolean("individual_digits") ? Behavior::isolated : Behavior::contiguous});
    }

    void add_byte_level(ObjectReader& reader) {
        byte_level = true;
        reader.boolean("trim_offsets", true);  // of offsets, which nobody asks for here
        Step step;
        step.prefix_space = reader.boolean("add_prefix_space");
        step.splits = reader.boolean("use_regex", true);
        if (step.splits) step.pattern.expression.emplace(gpt2_pattern, reader.where());
        if (step.prefix_space || step.splits) steps.push_back(std::move(step));
    }
};

PreTokenizer::PreTokenizer(const nlohmann::json& spec, const std::string& origin) : impl_(std::make_unique<Impl>()) {
    if (!spec.is_null()) impl_->add(spec, origin + ": pre_tokenizer", 0);
}
PreTokenizer::~PreTokenizer() = default;

bool PreTokenizer::byte_level() const { return impl_->byte_level; }

void PreTokenizer::split(std::string_view text, const Piece& piece) const {
    const std::vector<Step>& steps = impl_->steps;
    const std::function<void(std::string_view, size_t)> run = [&](std::string_view part, size_t step) {
        if (step == steps.size()) return piece(part);
        if (step + 1 == steps.size()) return steps[step].split(part, piece);
        steps[step].split(part, [&, step](std::string_view next) { run(next, step + 1); });
    };
    if (!text.empty()) run(text, 0);
}

}  // namespace clover
