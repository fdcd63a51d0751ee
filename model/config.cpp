// The table of keys (every key once: section, name, member, type and range, default, meaning) and all that follows from it:
// reading, error messages, the resolved printout, the reference.
//
// A config is built in layers, each read as if it were a config file: the family's defaults, the preset, the file, the overrides.
// A later layer wins. What no layer gave is derived from the rest or missing.
#include "config.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <variant>

#define TOML_HEADER_ONLY 1
#if __has_include(<toml++/toml.hpp>)
#include <toml++/toml.hpp>
#else
#include <toml++/toml.h>
#endif

#include "../kernels/error.h"
#include "presets.h"

namespace clover {
namespace {

// ---- The table -----------------------------------------------------------------------------------------------------------------

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
using Binding = std::variant<Integer, Number, Boolean, Text, Word, Choice, Prompts, Ramp, Sources>;

/// A value in TOML per family, or words for a value that is derived or must be given.
struct Default {
    const char *bloom, *gopher, *words;
    bool required;
};
constexpr Default fixed(const char* value) { return {value, value, nullptr, false}; }
constexpr Default by_family(const char* bloom, const char* gopher) { return {bloom, gopher, nullptr, false}; }
constexpr Default derived(const char* words) { return {nullptr, nullptr, words, false}; }
constexpr Default required(const char* words) { return {nullptr, nullptr, words, true}; }

struct Key {
    const char *section, *name;
    Binding binding;
    Default fallback;
    const char* help;
    const char* aliases = "";  // what other programs call it, for suggestions
    std::string dotted() const { return text(section, ".", name); }
};

// The order of each list is that of the enum.
constexpr std::string_view norm_spellings[] = {"layernorm", "rmsnorm"};
constexpr std::string_view position_spellings[] = {"alibi", "relative", "learned", "sinusoidal"};
constexpr std::string_view bias_spellings[] = {"all", "output", "none"};
constexpr std::string_view init_spellings[] = {"normal", "xavier", "fan_in"};
constexpr std::string_view recipe_spellings[] = {"fp32", "mixed", "bf16-master"};
constexpr std::string_view schedule_spellings[] = {"cosine-samples", "cosine-steps", "constant"};
constexpr std::string_view optimizer_spellings[] = {"adamw", "adam"};

const std::vector<std::string_view>& families() {
    static const std::vector<std::string_view> names = {"bloom", "gopher"};
    return names;
}

const std::vector<std::string_view>& presets_or_none() {
    static const std::vector<std::string_view> names = [] {
        std::vector<std::string_view> all = preset_names();
        all.insert(all.begin(), "");
        return all;
    }();
    return names;
}

// Steps and batches fit the 32 bits that the random generator and the logs have for them; samples may be more.
constexpr int64_t most_steps = (int64_t{1} << 31) - 1, most_samples = int64_t{1} << 40;

#define AT(member) [](Config & c) -> auto& { return c.member; }
#define ENUM_AT(member) [](Config & c) -> unsigned char& { return reinterpret_cast<unsigned char&>(c.member); }

std::vector<Key> make_keys() {
    return {
        {"model", "family", Word{AT(model.family), families()}, derived("the preset's, required without one"),
         "whose architecture and training defaults", "architecture arch type"},
        {"model", "preset", Word{AT(model.preset), presets_or_none()}, fixed("''"),
         "a published size: its shape and training settings", "size name"},
        {"model", "layers", Integer{AT(model.layers), 1, 1 << 14}, required("the preset's"),
         "transformer blocks", "n_layer n_layers num_layers num_hidden_layers depth"},
        {"model", "hidden", Integer{AT(model.hidden), 1, 1 << 20}, required("the preset's"),
         "width of the residual stream", "d_model n_embd hidden_size dim width"},
        {"model", "heads", Integer{AT(model.heads), 1, 1 << 14}, required("the preset's"),
         "attention heads", "n_head n_heads num_heads num_attention_heads"},
        {"model", "head_size", Integer{AT(model.head_size), 1, 1 << 20}, derived("hidden / heads"),
         "width of one head", "head_dim kv_channels d_head"},
        {"model", "ffn", Integer{AT(model.ffn), 1, 1 << 22}, derived("4 * hidden"),
         "width of the feed-forward layer", "d_ff ffn_hidden_size intermediate_size ffn_size"},
        {"model", "vocab", Integer{AT(model.vocab), 1, 1 << 24}, by_family("250880", "32000"),
         "rows of the token embedding", "vocab_size n_vocab padded_vocab_size"},
        {"model", "context", Integer{AT(model.context), 1, 1 << 20}, fixed("2048"),
         "positions of a training sequence", "seq_length seq_len sequence_length block_size n_ctx context_length"},
        {"model", "norm", Choice{ENUM_AT(model.norm), norm_spellings}, by_family("'layernorm'", "'rmsnorm'"),
         "normalisation before each sub-layer", "normalization norm_type"},
        {"model", "position", Choice{ENUM_AT(model.position), position_spellings}, by_family("'alibi'", "'relative'"),
         "how attention knows positions", "position_embedding positional_encoding"},
        {"model", "embedding_norm", Boolean{AT(model.embedding_norm)}, by_family("true", "false"),
         "a norm right after the token embedding", "embed_layernorm"},
        {"model", "bias", Choice{ENUM_AT(model.bias), bias_spellings}, by_family("'all'", "'output'"),
         "linear layers with a bias: all, attention output and feed-forward, none", "biases"},
        {"model", "tie_embeddings", Boolean{AT(model.tie_embeddings)}, fixed("true"),
         "one matrix for embedding and logits", "tie_word_embeddings tied"},
        {"model", "norm_eps", Number{AT(model.norm_eps), 0, 1, false, true}, fixed("1e-5"),
         "added to the variance in the norms", "layer_norm_epsilon layernorm_epsilon"},
        {"model", "init", Choice{ENUM_AT(model.init), init_spellings}, fixed("'normal'"),
         "initialisation: N(0, init_std), the same with a Xavier embedding, N(0, 1 / inputs)", "initialization init_method"},
        {"model", "init_std", Number{AT(model.init_std), 0, 10, false, true}, by_family("0.0048", "0.02"),
         "standard deviation of init normal and xavier", "init_method_std initializer_range"},

        {"data", "train", Sources{AT(data.train)}, fixed("[]"),
         "training text: .txt, .jsonl, .gz, or the prefix of a .bin/.idx pair", "train_data data_path training"},
        {"data", "valid", Sources{AT(data.valid)}, fixed("[]"),
         "validation text, likewise", "val valid_data validation eval"},
        {"data", "tokenizer", Text{AT(data.tokenizer)}, fixed("'bytes'"),
         "bytes, a tokenizer.json or a SentencePiece .model", "tokenizer_file vocab_file tokenizer_path"},
        {"data", "cache", Text{AT(data.cache)}, fixed("'.clover-cache'"),
         "folder where text is tokenised to", "cache_dir"},

        {"train", "steps", Integer{AT(train.steps), 1, most_steps}, required("the preset's"),
         "optimizer steps of the run", "train_iters max_steps num_steps iterations max_iters"},
        {"train", "micro_batch", Integer{AT(train.micro_batch), 1, 1 << 20}, fixed("1"),
         "sequences that go through the model at once", "micro_batch_size device_batch_size"},
        {"train", "global_batch", Integer{AT(train.global_batch), 1, most_steps}, derived("micro_batch"),
         "sequences per step", "global_batch_size batch_size batch total_batch_size"},
        {"train", "ramp_up", Ramp{AT(train.ramp_up)}, fixed("[]"),
         "[start, increment, samples]: grow the batch from start to global_batch over so many samples", "rampup_batch_size ramp rampup"},
        {"train", "seed", Integer{AT(train.seed), 0, UINT32_MAX}, fixed("42"),
         "of initialisation, data order and rounding", "random_seed rng_seed"},
        {"train", "eval_every", Integer{AT(train.eval_every), 0, most_steps}, fixed("0"),
         "steps between validations; 0: only at the end", "eval_interval val_every val_check_interval"},
        {"train", "eval_batches", Integer{AT(train.eval_batches), 0, most_steps}, fixed("8"),
         "micro-batches of each validation set; 0: all of it", "eval_iters val_batches"},
        {"train", "sample_every", Integer{AT(train.sample_every), 0, most_steps}, fixed("0"),
         "steps between sampled texts; 0: never", "sample_interval generate_every"},
        {"train", "sample_tokens", Integer{AT(train.sample_tokens), 1, 1 << 20}, fixed("128"),
         "length of a sampled text", "max_new_tokens"},
        {"train", "sample_prompts", Prompts{AT(train.sample_prompts)}, fixed("[]"),
         "beginnings of the sampled texts", "prompts sample_prompt"},
        {"train", "log_every", Integer{AT(train.log_every), 1, most_steps}, fixed("1"),
         "steps between printed lines", "log_interval logging_steps"},

        {"optimizer", "name", Choice{ENUM_AT(optimizer.name), optimizer_spellings}, by_family("'adamw'", "'adam'"),
         "adamw decays weights, adam does not", "type optimizer"},
        {"optimizer", "lr", Number{AT(optimizer.lr), 0, 100, false, true}, required("the preset's"),
         "highest learning rate", "learning_rate max_lr peak_lr"},
        {"optimizer", "min_lr", Number{AT(optimizer.min_lr), 0, 100, true, true}, derived("the preset's, else lr / 10"),
         "learning rate after the decay", "min_learning_rate final_lr end_lr"},
        {"optimizer", "start_lr", Number{AT(optimizer.start_lr), 0, 100, true, true}, by_family("0.0", "1e-7"),
         "learning rate where the warm-up begins", "warmup_init_lr initial_lr"},
        {"optimizer", "warmup", Integer{AT(optimizer.warmup), 0, most_samples}, by_family("0", "1500"),
         "length of the warm-up, in samples or steps as the schedule counts", "warmup_steps lr_warmup_samples lr_warmup_iters warmup_iters warmup_samples"},
        {"optimizer", "decay", Integer{AT(optimizer.decay), 0, most_samples}, fixed("0"),
         "where the decay ends, from the start of the run; 0: at the end of the run", "decay_steps lr_decay_samples lr_decay_iters decay_samples"},
        {"optimizer", "schedule", Choice{ENUM_AT(optimizer.schedule), schedule_spellings}, by_family("'cosine-samples'", "'cosine-steps'"),
         "cosine counted in samples (BLOOM) or steps (Gopher), or constant after the warm-up", "lr_decay_style scheduler lr_scheduler"},
        {"optimizer", "beta1", Number{AT(optimizer.beta1), 0, 1, true, false}, fixed("0.9"),
         "Adam's decay of the mean gradient", "adam_beta1"},
        {"optimizer", "beta2", Number{AT(optimizer.beta2), 0, 1, true, false}, fixed("0.95"),
         "Adam's decay of the mean squared gradient", "adam_beta2"},
        {"optimizer", "eps", Number{AT(optimizer.eps), 0, 1, false, true}, fixed("1e-8"),
         "added to Adam's denominator", "adam_eps epsilon"},
        {"optimizer", "weight_decay", Number{AT(optimizer.weight_decay), 0, 10, true, true}, by_family("0.1", "0.0"),
         "decoupled weight decay of the matrices (adamw)", "wd"},
        {"optimizer", "clip", Number{AT(optimizer.clip), 0, 1e6, true, true}, fixed("1.0"),
         "largest global gradient norm; 0: no clipping", "clip_grad grad_clip max_grad_norm gradient_clip"},

        {"precision", "recipe", Choice{ENUM_AT(recipe), recipe_spellings}, by_family("'bf16-master'", "'mixed'"),
         "dtypes of parameters, activations and the optimizer's copy", "precision dtype bf16 fp16"},

        {"checkpoint", "every", Integer{AT(checkpoint.every), 0, most_steps}, fixed("0"),
         "steps between checkpoints; 0: only at the end and on Ctrl-C", "save_interval save_every checkpoint_every"},
        {"checkpoint", "keep", Integer{AT(checkpoint.keep), 0, most_steps}, fixed("3"),
         "newest checkpoints to keep; 0: all", "keep_last save_total_limit"},
    };
}
#undef AT
#undef ENUM_AT

const std::vector<Key>& keys() {
    static const std::vector<Key> table = make_keys();
    return table;
}

const Key* find_key(std::string_view section, std::string_view name) {
    for (const Key& key : keys())
        if (key.section == section && key.name == name) return &key;
    return nullptr;
}

bool is_section(std::string_view name) {
    return std::any_of(keys().begin(), keys().end(), [&](const Key& key) { return key.section == name; });
}

// ---- Values as TOML ------------------------------------------------------------------------------------------------------------

/// The shortest decimal that reads back to the same double, with a point or an exponent so that it stays a TOML float.
std::string number_text(double x) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, x).ptr;
    std::string s(digits, end);
    return s.find_first_of(".e") == std::string::npos ? s + ".0" : s;
}

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
                     "},\n");
    return list + "]";
}

std::string value_text(const Key& key, const Config& config) {
    Config copy = config;
    return std::visit([&](const auto& b) { return value_text(b, copy); }, key.binding);
}

// ---- What a key expects, in words ----------------------------------------------------------------------------------------------

template <class Words>
std::string joined(const Words& words) {
    std::string all;
    for (const std::string_view word : words)
        if (!word.empty()) all += (all.empty() ? "" : ", ") + std::string(word);
    return all;
}

/// 0.5 as "0.5" and 3.0 as "3", as one says it.
std::string plain(double x) { return text(x); }

std::string expected(const Integer& b) {
    return b.most == INT64_MAX ? text("an integer of at least ", b.least) : text("an integer from ", b.least, " to ", b.most);
}
std::string expected(const Number& b) {
    return text("a number ", b.least_itself ? "of at least " : "above ", plain(b.least), b.most_itself ? " and at most " : " and below ", plain(b.most));
}
std::string expected(const Boolean&) { return "true or false"; }
std::string expected(const Text&) { return "a string"; }
std::string expected(const Word& b) { return "one of " + joined(b.words); }
std::string expected(const Choice& b) { return "one of " + joined(b.spellings); }
std::string expected(const Prompts&) { return "a list of strings"; }
std::string expected(const Ramp&) { return "[] or [start, increment, samples], three integers of at least 1"; }
std::string expected(const Sources&) { return "a path, a list of paths, or a list of {path, weight, name}"; }

std::string expected(const Key& key) {
    return std::visit([](const auto& b) { return expected(b); }, key.binding);
}

// ---- Suggestions for a misspelt key --------------------------------------------------------------------------------------------

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

/// "; did you mean optimizer.lr?" for the key whose name, or name elsewhere, is nearest; the same section wins a tie. Empty if none is near.
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

// ---- Reading one value ---------------------------------------------------------------------------------------------------------

/// Fit for the middle of a message.
std::string one_line(std::string s, size_t longest) {
    std::replace_if(s.begin(), s.end(), [](char c) { return uint8_t(c) < 0x20; }, ' ');
    return s.size() <= longest ? s : s.substr(0, longest - 3) + "...";
}

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
    if (b.at(c).empty()) refuse(at, "an empty one");
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
            } else
                throw InputError(text(at.where, ": unknown key ", quote(name.str()), " in a set of ", at.key,
                                      "; it has path, weight and name"));
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

// ---- TOML text -----------------------------------------------------------------------------------------------------------------

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

toml::table parse_toml(const std::string& toml, const std::string& origin) {
    require_shallow(toml, origin);
    try {
        return toml::parse(std::string_view(toml));
    } catch (const toml::parse_error& error) {
        throw InputError(parse_message(error, origin));
    }
}

/// The value of an override as a table with the one key v.
toml::table override_value(const Key& key, const std::string& value, const std::string& where) {
    const auto is = [&](auto... type) { return (std::holds_alternative<decltype(type)>(key.binding) || ...); };
    const bool stringy = is(Text{}) || std::holds_alternative<Word>(key.binding) || is(Choice{}, Prompts{}, Sources{});
    const bool written_as_toml = !value.empty() && std::strchr("\"'[{", value[0]);
    if (!stringy || written_as_toml) {
        require_shallow(value, where);
        try {
            toml::table parsed = toml::parse("v = " + value);
            if (parsed.size() == 1 && parsed.contains("v")) return parsed;
        } catch (const toml::parse_error&) {
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

/// A config under construction, with the origin of each of its values.
class Draft {
public:
    Config config;

    /// All keys of one layer. The place of a value is `origin`, with the line if it is a file of the user's.
    void apply(const toml::table& layer, const std::string& origin, bool users) {
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
                assign(*known, value, line, users);
            }
        }
    }

    void assign(const Key& key, const toml::node& node, const std::string& where, bool users) {
        const Place place{where, key.dotted(), expected(key)};
        std::visit([&](const auto& b) { read(b, node, place, config); }, key.binding);
        origins_[key.dotted()] = {where, users};
    }

    bool has(const std::string& dotted) const { return origins_.count(dotted) != 0; }

    /// "train.steps = 5", with the origin where that is not the user.
    std::string said(const std::string& dotted) const {
        const size_t dot = dotted.find('.');
        const std::string value = value_text(*find_key(dotted.substr(0, dot), dotted.substr(dot + 1)), config);
        const auto origin = origins_.find(dotted);
        const std::string from = origin == origins_.end() ? "derived" : origin->second.users ? "" : origin->second.where;
        return text(dotted, " = ", value, from.empty() ? "" : " (" + from + ")");
    }

    /// Where the user gave one of these keys; `file` if nowhere.
    std::string blame(std::initializer_list<const char*> dotted, const std::string& file) const {
        for (const char* key : dotted)
            if (const auto origin = origins_.find(key); origin != origins_.end() && origin->second.users) return origin->second.where;
        return file;
    }

private:
    struct Origin {
        std::string where;
        bool users;
    };
    std::map<std::string, Origin> origins_;
};

std::string family_toml(const std::string& family) {
    std::string layer;
    for (const Key& key : keys())
        if (const char* value = family == "bloom" ? key.fallback.bloom : key.fallback.gopher)
            layer += text(key.dotted(), " = ", value, "\n");
    return layer;
}

/// What the file and the overrides say, without anything beneath.
Draft users_own(const toml::table& file, const std::vector<Override>& overrides, const std::string& origin, Draft draft) {
    draft.apply(file, origin, true);
    for (const Override& o : overrides) draft.assign(*o.key, *o.value.get("v"), o.where, true);
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
    draft.apply(parse_toml(family_toml(family), "defaults"), "default of family " + family, false);
    draft.config.model.family = family;
    if (!m.preset.empty()) draft.apply(parse_toml(preset_toml(m.preset), "preset"), "preset " + m.preset, false);
    return draft;
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
}

// ---- Combinations --------------------------------------------------------------------------------------------------------------

void check_model(const Draft& d, const std::string& origin) {
    const ModelConfig& m = d.config.model;
    const std::string where = d.blame({"model.head_size", "model.heads", "model.hidden"}, origin);
    require(d.has("model.head_size") || m.hidden % m.heads == 0, where, ": ", d.said("model.hidden"), " is not a multiple of ",
            d.said("model.heads"));
    require((m.position != Position::relative && m.position != Position::sinusoidal) || m.hidden % 2 == 0, where, ": ",
            d.said("model.hidden"), " must be even for ", d.said("model.position"), ", which pairs sines with cosines");
}

void check_batches(const Draft& d, const std::string& origin) {
    const TrainConfig& t = d.config.train;
    require(t.global_batch % t.micro_batch == 0, d.blame({"train.micro_batch", "train.global_batch"}, origin), ": ",
            d.said("train.global_batch"), " must be a multiple of ", d.said("train.micro_batch"));
    if (t.ramp_up.samples == 0) return;
    const RampUp& r = t.ramp_up;
    const std::string where = d.blame({"train.ramp_up", "train.global_batch", "train.micro_batch"}, origin);
    require(r.start < t.global_batch, where, ": ", d.said("train.ramp_up"), " must start below ", d.said("train.global_batch"),
            "; for no ramp-up write []");
    require((t.global_batch - r.start) % r.increment == 0, where, ": ", d.said("train.ramp_up"), " does not reach ",
            d.said("train.global_batch"), " from ", r.start, " in increments of ", r.increment);
    require(r.start % t.micro_batch == 0 && r.increment % t.micro_batch == 0, where, ": start and increment of ", d.said("train.ramp_up"),
            " must be multiples of ", d.said("train.micro_batch"));
}

void check_optimizer(const Draft& d, const std::string& origin) {
    const OptimizerConfig& o = d.config.optimizer;
    require(o.min_lr <= o.lr, d.blame({"optimizer.min_lr", "optimizer.lr"}, origin), ": ", d.said("optimizer.min_lr"),
            " must not be above ", d.said("optimizer.lr"));
    require(o.start_lr <= o.lr, d.blame({"optimizer.start_lr", "optimizer.lr"}, origin), ": ", d.said("optimizer.start_lr"),
            " must not be above ", d.said("optimizer.lr"));
    require(o.decay == 0 || o.warmup <= o.decay, d.blame({"optimizer.warmup", "optimizer.decay"}, origin), ": ",
            d.said("optimizer.warmup"), " must not be longer than ", d.said("optimizer.decay"));
    require(o.name != OptimizerName::adam || o.weight_decay == 0, d.blame({"optimizer.weight_decay", "optimizer.name"}, origin), ": ",
            d.said("optimizer.name"), " has no weight decay, but ", d.said("optimizer.weight_decay"), "; use optimizer.name = \"adamw\"");
}

std::string read_file(const std::string& path) {
    const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
    require(file != nullptr, "cannot read ", path, ": ", std::strerror(errno));
    std::string contents;
    char block[1 << 16];
    // One byte past the limit of require_shallow is enough to know.
    while (contents.size() <= 1 << 20) {
        const size_t n = std::fread(block, 1, sizeof block, file.get());
        if (n == 0) break;
        contents.append(block, n);
    }
    require(!std::ferror(file.get()), "cannot read ", path, ": ", std::strerror(errno));
    return contents;
}

}  // namespace

Config parse_config(const std::string& toml, const std::string& origin, const std::vector<std::string>& overrides) {
    const toml::table file = parse_toml(toml, origin);
    const std::vector<Override> on_top = read_overrides(overrides);
    // Read twice: once to learn family and preset, then onto their values.
    const Draft users = users_own(file, on_top, origin, {});
    Draft draft = users_own(file, on_top, origin, foundations(users, origin));
    fill_derived(draft, origin);
    check_model(draft, origin);
    check_batches(draft, origin);
    check_optimizer(draft, origin);
    return draft.config;
}

Config read_config(const std::string& path, const std::vector<std::string>& overrides) {
    return parse_config(read_file(path), path, overrides);
}

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

std::string config_reference() {
    std::string lines;
    for (const Key& key : keys()) {
        const Default& f = key.fallback;
        const bool same = !f.words && std::string_view(f.bloom) == f.gopher;
        const std::string value = f.required ? text("required, or ", f.words)
                                  : f.words  ? text("default: ", f.words)
                                  : same     ? text("default: ", f.bloom)
                                             : text("default: ", f.bloom, " (bloom), ", f.gopher, " (gopher)");
        lines += text(key.dotted(), ": ", expected(key), "; ", value, "; ", key.help, "\n");
    }
    return lines;
}

std::string to_string(Position p) { return std::string(position_spellings[size_t(p)]); }
std::string to_string(NormKind n) { return std::string(norm_spellings[size_t(n)]); }
std::string to_string(Bias b) { return std::string(bias_spellings[size_t(b)]); }
std::string to_string(Init i) { return std::string(init_spellings[size_t(i)]); }
std::string to_string(Recipe r) { return std::string(recipe_spellings[size_t(r)]); }
std::string to_string(Schedule s) { return std::string(schedule_spellings[size_t(s)]); }
std::string to_string(OptimizerName n) { return std::string(optimizer_spellings[size_t(n)]); }

}  // namespace clover
