// Reading: TOML text and overrides into a Config. The only part of model/ that knows toml++, whose header is slow to compile.
//
// A config is built in layers, each read as if it were a config file: the family's defaults, the preset, the file, the overrides.
// A later layer wins. What no layer gave is derived from the rest or missing.
#include "config.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "../data/toml.h"
#include "config_draft.h"
#include "config_suggestions.h"
#include "presets.h"

namespace clover::config {
namespace {

// ---- Reading one value ---------------------------------------------------------------------------------------------------------

/// A node as the user may have written it, short enough for a message.
std::string shown(const toml::node& node) {
    std::ostringstream out;
    node.visit([&](const auto& n) {
        if constexpr (toml::is_string<decltype(n)>) out << quote(*n);
        else if constexpr (toml::is_table<decltype(n)>) out << "a table";
        else out << n;
    });
    return one_line(out.str(), 60);
}

/// Where a value stands and what it should have been, for messages.
struct Place {
    std::string where, key, expected;
};

[[noreturn]] void refuse(const Place& at, const std::string& instead) {
    throw InputError(text(at.where, ": ", at.key, " must be ", at.expected, ", not ", instead));
}

std::string read_string(const toml::node& node, const Place& at) {
    const auto* value = node.as_string();
    if (!value) refuse(at, shown(node));
    // A path with a NUL in it would be cut short by the system.
    if (value->get().find('\0') != std::string::npos) refuse(at, shown(node));
    return value->get();
}

int64_t read_integer(const toml::node& node, int64_t least, int64_t most, const Place& at) {
    const auto* value = node.as_integer();
    if (!value || value->get() < least || value->get() > most) refuse(at, shown(node));
    return value->get();
}

double read_number(const toml::node& node, const Place& at) {
    if (const auto* value = node.as_floating_point(); value && std::isfinite(value->get())) return value->get();
    if (const auto* value = node.as_integer()) return double(value->get());
    refuse(at, shown(node));
}

void read(const Integer& b, const toml::node& node, const Place& at, Config& c) { b.at(c) = read_integer(node, b.least, b.most, at); }

void read(const Number& b, const toml::node& node, const Place& at, Config& c) {
    const double x = read_number(node, at);
    if (x < b.least || x > b.most || (x == b.least && !b.least_itself) || (x == b.most && !b.most_itself)) refuse(at, shown(node));
    b.at(c) = x;
}

void read(const Boolean& b, const toml::node& node, const Place& at, Config& c) {
    const auto* value = node.as_boolean();
    if (!value) refuse(at, shown(node));
    b.at(c) = value->get();
}

void read(const Text& b, const toml::node& node, const Place& at, Config& c) {
    b.at(c) = read_string(node, at);
    if (b.at(c).empty() && !b.may_be_empty) refuse(at, "an empty one");
}

void read(const Word& b, const toml::node& node, const Place& at, Config& c) {
    const std::string word = read_string(node, at);
    if (std::find(b.words.begin(), b.words.end(), word) == b.words.end()) refuse(at, shown(node));
    b.at(c) = word;
}

void read(const Choice& b, const toml::node& node, const Place& at, Config& c) {
    const auto found = std::find(b.spellings.begin(), b.spellings.end(), read_string(node, at));
    if (found == b.spellings.end()) refuse(at, shown(node));
    b.at(c) = static_cast<unsigned char>(found - b.spellings.begin());
}

void read(const Prompts& b, const toml::node& node, const Place& at, Config& c) {
    std::vector<std::string> prompts;
    if (const toml::array* list = node.as_array())
        for (const toml::node& prompt : *list) prompts.push_back(read_string(prompt, at));
    else
        prompts.push_back(read_string(node, at));
    b.at(c) = prompts;
}

void read(const Ramp& b, const toml::node& node, const Place& at, Config& c) {
    const toml::array* list = node.as_array();
    if (!list || (list->size() != 0 && list->size() != 3)) refuse(at, shown(node));
    b.at(c) = {};
    if (list->empty()) return;
    b.at(c) = {read_integer((*list)[0], 1, most_steps, at), read_integer((*list)[1], 1, most_steps, at),
               read_integer((*list)[2], 1, most_samples, at)};
}

/// The last part of a path without the endings of text files. (Others stay: c4.en and c4.de are two sets.)
std::string name_of(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    path.erase(0, path.rfind('/') + 1);
    for (const std::string_view ending : {".gz", ".jsonl", ".json", ".txt"})
        if (path.size() > ending.size() && path.ends_with(ending)) path.resize(path.size() - ending.size());
    return path;
}

/// One set: a path, or a table of path, weight and name. `weighted` counts the sets that give a weight.
DataSource read_source(const toml::node& node, const Place& at, int64_t& weighted) {
    DataSource set;
    const toml::table* table = node.as_table();
    if (!table) set.path = read_string(node, at);
    else
        for (const auto& [name, value] : *table) {
            if (name.str() == "path") set.path = read_string(value, {at.where, at.key + " path", "a string"});
            else if (name.str() == "name") set.name = read_string(value, {at.where, at.key + " name", "a string"});
            else if (name.str() == "weight") {
                const Place weight{at.where, at.key + " weight", "a number of at least 0"};
                set.weight = read_number(value, weight);
                if (set.weight < 0) refuse(weight, shown(value));
                weighted++;
            } else if (name.str() == "range") {
                const Place range{at.where, at.key + " range", "[from, to], 0 <= from < to <= 1"};
                const toml::array* bounds = value.as_array();
                if (!bounds || bounds->size() != 2) refuse(range, shown(value));
                set.from = read_number((*bounds)[0], range);
                set.to = read_number((*bounds)[1], range);
                if (!(set.from >= 0 && set.from < set.to && set.to <= 1)) refuse(range, shown(value));
            } else
                throw InputError(text(at.where, ": unknown key ", quote(name.str()), " in a set of ", at.key,
                                      "; it has path, weight, name and range"));
        }
    if (set.path.empty()) refuse(at, table ? "a set without a path" : "an empty path (for no data write [])");
    if (set.name.empty()) set.name = name_of(set.path);
    return set;
}

void read(const Sources& b, const toml::node& node, const Place& at, Config& c) {
    std::vector<DataSource> sets;
    int64_t weighted = 0;
    if (const toml::array* list = node.as_array())
        for (const toml::node& set : *list) sets.push_back(read_source(set, at, weighted));
    else
        sets.push_back(read_source(node, at, weighted));
    require(weighted == 0 || weighted == int64_t(sets.size()), at.where, ": ", at.key, " gives a weight to ", weighted, " of ",
            sets.size(), " sets; give one to each or to none");
    require(weighted == 0 || std::any_of(sets.begin(), sets.end(), [](const DataSource& s) { return s.weight > 0; }), at.where, ": ",
            at.key, " has only weights of 0; leave them out to weigh by the number of tokens");
    std::set<std::string> names;
    for (const DataSource& set : sets)
        require(names.insert(set.name).second, at.where, ": ", at.key, " has two sets called ", quote(set.name),
                "; tell them apart by {path = ..., name = ...}");
    b.at(c) = sets;
}

void read(const Split& b, const toml::node& node, const Place& at, Config& c) {
    const toml::array* list = node.as_array();
    if (!list || (list->size() != 0 && list->size() != 3)) refuse(at, shown(node));
    std::vector<double> shares;
    double sum = 0;
    for (const toml::node& share : *list) {
        shares.push_back(read_number(share, at));
        if (shares.back() < 0) refuse(at, shown(node));
        sum += shares.back();
    }
    if (!shares.empty() && !(sum > 0)) refuse(at, shown(node));
    b.at(c) = shares;
}

// ---- The file ------------------------------------------------------------------------------------------------------------------

std::string read_file(const std::string& path) {
    const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
    require(file != nullptr, "cannot read ", path, ": ", std::strerror(errno));
    std::string contents;
    char block[1 << 16];
    // One byte past the limit of parse_toml is enough to know.
    while (contents.size() <= 1 << 20) {
        const size_t n = std::fread(block, 1, sizeof block, file.get());
        if (n == 0) break;
        contents.append(block, n);
    }
    require(!std::ferror(file.get()), "cannot read ", path, ": ", std::strerror(errno));
    return contents;
}

// ---- TOML text -----------------------------------------------------------------------------------------------------------------

/// The value of an override as a table with the one key v.
toml::table override_value(const Key& key, const std::string& value, const std::string& where) {
    const auto is = [&](auto... type) { return (std::holds_alternative<decltype(type)>(key.binding) || ...); };
    const bool stringy = is(Text{}) || std::holds_alternative<Word>(key.binding) || is(Choice{}, Prompts{}, Sources{});
    const bool written_as_toml = !value.empty() && std::strchr("\"'[{", value[0]);
    if (!stringy || written_as_toml) {
        try {
            toml::table parsed = parse_toml("v = " + value, where);
            if (parsed.size() == 1 && parsed.contains("v")) return parsed;
        } catch (const InputError&) {
            // Not a value: taken as a string, it gets the key's own message.
        }
    }
    try {
        return toml::parse("v = " + quote(value));
    } catch (const toml::parse_error&) {
        throw InputError(text(where, ": not valid UTF-8"));
    }
}

// ---- The layers ----------------------------------------------------------------------------------------------------------------

struct Override {
    std::string where;
    const Key* key;
    toml::table value;
};

std::vector<Override> read_overrides(const std::vector<std::string>& arguments) {
    std::vector<Override> overrides;
    for (const std::string& argument : arguments) {
        const std::string where = "--set " + one_line(argument, 100);
        const size_t equals = argument.find('='), dot = argument.find('.');
        require(equals != std::string::npos && dot < equals, where, ": an override is section.key=value");
        const std::string section = argument.substr(0, dot), name = argument.substr(dot + 1, equals - dot - 1);
        const Key* key = find_key(section, name);
        require(key, where, ": unknown key ", section, ".", name, suggestion(section, name));
        overrides.push_back({where, key, override_value(*key, argument.substr(equals + 1), where)});
    }
    return overrides;
}

void assign(Draft& draft, const Key& key, const toml::node& node, const std::string& where, bool users) {
    const Place place{where, key.dotted(), expected(key)};
    std::visit([&](const auto& b) { read(b, node, place, draft.config); }, key.binding);
    draft.set_origin(key.dotted(), where, users);
}

/// All keys of one layer. The place of a value is `origin`, with the line if it is a file of the user's.
void apply(Draft& draft, const toml::table& layer, const std::string& origin, bool users) {
    for (const auto& [section, node] : layer) {
        const std::string where = users ? text(origin, ":", section.source().begin.line) : origin;
        const std::string name(section.str());
        if (!is_section(name)) {
            require(node.is_table() || node.is_array_of_tables(), where, ": unknown key ", name, " outside of any section",
                    suggestion("", name));
            throw InputError(text(where, ": unknown section [", name, "]", section_suggestion(name)));
        }
        require(node.is_table(), where, ": ", name, " must be a section, [", name, "], not ", shown(node));
        for (const auto& [key, value] : *node.as_table()) {
            const std::string line = users ? text(origin, ":", key.source().begin.line) : origin;
            const Key* known = find_key(name, key.str());
            require(known, line, ": unknown key ", name, ".", key.str(), suggestion(name, std::string(key.str())));
            assign(draft, *known, value, line, users);
        }
    }
}

std::string family_toml(const std::string& family) {
    std::string layer;
    for (const Key& key : keys())
        if (const char* value = family == "bloom" ? key.fallback.bloom : key.fallback.gopher)
            layer += text(key.dotted(), " = ", value, "\n");
    return layer;
}

/// What the file and the overrides say, without anything beneath.
Draft users_own(const toml::table& file, const std::vector<Override>& overrides, const std::string& origin, Draft draft) {
    apply(draft, file, origin, true);
    for (const Override& o : overrides) assign(draft, *o.key, *o.value.get("v"), o.where, true);
    return draft;
}

/// The two layers beneath the file, chosen by what file and overrides say of family and preset.
Draft foundations(const Draft& users, const std::string& origin) {
    const ModelConfig& m = users.config.model;
    const std::string family = m.family.empty() && !m.preset.empty() ? preset_family(m.preset) : m.family;
    require(!family.empty(), origin, ": model.family is missing; give it (", joined(families()), ") or a model.preset");
    require(m.preset.empty() || family == preset_family(m.preset), users.blame({"model.family", "model.preset"}, origin), ": ",
            users.said("model.family"), " does not fit ", users.said("model.preset"), "; leave model.family out");
    Draft draft;
    apply(draft, parse_toml(family_toml(family), "defaults"), "default of family " + family, false);
    draft.config.model.family = family;
    if (!m.preset.empty()) apply(draft, parse_toml(preset_toml(m.preset), "preset"), "preset " + m.preset, false);
    return draft;
}

/// The weights of data.train from a file of NAME = WEIGHT, which the finished config then holds itself.
void look_up_weights(Draft& draft, const std::string& origin) {
    DataConfig& data = draft.config.data;
    const std::string path = std::exchange(data.weights, "");
    if (path.empty()) return;
    const toml::table table = parse_toml(read_file(path), path);
    const auto names = [&] {
        std::vector<std::string> all;
        for (const auto& [name, weight] : table) all.emplace_back(name.str());
        return joined(all);
    };
    for (DataSource& set : data.train) {
        const toml::node* weight = table.get(set.name);
        require(weight, draft.blame({"data.train", "data.weights"}, origin), ": ", path, " has no weight for the set ", quote(set.name), " of data.train, only for ",
                names(), "; name the set after one of them with {path = ..., name = ...}, or leave it out");
        const Place place{text(path, ":", weight->source().begin.line), set.name, "a number of at least 0"};
        require(set.weight == 0, draft.blame({"data.train"}, origin), ": the set ", quote(set.name), " has a weight of its own beside data.weights; keep one");
        set.weight = read_number(*weight, place);
        if (set.weight < 0) refuse(place, shown(*weight));
    }
    require(std::any_of(data.train.begin(), data.train.end(), [](const DataSource& set) { return set.weight > 0; }),
            draft.blame({"data.weights"}, origin), ": data.weights = ", quote(path), " gives the sets of data.train only weights of 0");
}

void fill_derived(Draft& draft, const std::string& origin) {
    for (const Key& key : keys())
        require(!key.fallback.required || draft.has(key.dotted()), origin, ": ", key.dotted(), " is missing; give ", expected(key), " (",
                key.help, ") or a model.preset");
    Config& c = draft.config;
    if (!draft.has("model.head_size")) c.model.head_size = c.model.hidden / c.model.heads;
    if (!draft.has("model.ffn")) c.model.ffn = 4 * c.model.hidden;
    if (!draft.has("train.global_batch")) c.train.global_batch = c.train.micro_batch;
    if (!draft.has("optimizer.min_lr")) c.optimizer.min_lr = c.optimizer.lr / 10;
    look_up_weights(draft, origin);
}

}  // namespace
}  // namespace clover::config

namespace clover {

using namespace config;

Config parse_config(const std::string& toml, const std::string& origin, const std::vector<std::string>& overrides) {
    const toml::table file = parse_toml(toml, origin);
    const std::vector<Override> on_top = read_overrides(overrides);
    // Read twice: once to learn family and preset, then onto their values.
    const Draft users = users_own(file, on_top, origin, {});
    Draft draft = users_own(file, on_top, origin, foundations(users, origin));
    fill_derived(draft, origin);
    check_combinations(draft, origin);
    return draft.config;
}

Config read_config(const std::string& path, const std::vector<std::string>& overrides) {
    return parse_config(read_file(path), path, overrides);
}

}  // namespace clover
