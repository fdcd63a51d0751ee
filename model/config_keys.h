// The one table of keys: section, name, member of Config, type and range, default, meaning. Reading, messages, the printout and the
// reference all follow from it.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "../kernels/error.h"
#include "config.h"

namespace clover::config {

// Steps and batches fit the 32 bits that the random generator and the logs have for them; samples may be more.
constexpr int64_t most_steps = (int64_t{1} << 31) - 1, most_samples = int64_t{1} << 40;

struct Integer {
    int64_t& (*at)(Config&);
    int64_t least, most;
};
struct Number {
    double& (*at)(Config&);
    double least, most;
    bool least_itself, most_itself;
};
struct Boolean {
    bool& (*at)(Config&);
};
struct Text {
    std::string& (*at)(Config&);
    bool may_be_empty = false;
};
/// One of a few strings.
struct Word {
    std::string& (*at)(Config&);
    const std::vector<std::string_view>& words;
};
/// An enumeration: the value is the place in `spellings`. The enums are bytes, and a byte may be looked at as unsigned char.
struct Choice {
    unsigned char& (*at)(Config&);
    std::span<const std::string_view> spellings;
};
struct Prompts {
    std::vector<std::string>& (*at)(Config&);
};
struct Ramp {
    RampUp& (*at)(Config&);
};
struct Sources {
    std::vector<DataSource>& (*at)(Config&);
};
/// Shares of train, valid and test.
struct Split {
    std::vector<double>& (*at)(Config&);
};
using Binding = std::variant<Integer, Number, Boolean, Text, Word, Choice, Prompts, Ramp, Sources, Split>;

/// A value in TOML per family, or words for a value that is derived or must be given.
struct Default {
    const char *bloom, *gopher, *words;
    bool required;
};

struct Key {
    const char *section, *name;
    Binding binding;
    Default fallback;
    const char* help;
    const char* aliases = "";  // what other programs call it, for suggestions
    std::string dotted() const { return text(section, ".", name); }
};

/// In the order of the printout and the reference.
const std::vector<Key>& keys();
/// Null if there is none.
const Key* find_key(std::string_view section, std::string_view name);
bool is_section(std::string_view name);
/// What model.family may be.
const std::vector<std::string_view>& families();

/// "an integer from 1 to 16384": what the key may be set to, in words.
std::string expected(const Key& key);

/// The words that are not empty, with commas between.
template <class Words>
std::string joined(const Words& words) {
    std::string all;
    for (const std::string_view word : words)
        if (!word.empty()) all += (all.empty() ? "" : ", ") + std::string(word);
    return all;
}

}  // namespace clover::config
