#include "continuation.h"

#include <algorithm>
#include <sstream>

#include "config_keys.h"
#include "config_print.h"

namespace clover {
namespace {

using config::Key;

bool any_of(const std::string& key, std::initializer_list<std::string_view> names) { return std::find(names.begin(), names.end(), key) != names.end(); }

// They do not touch what is computed.
bool is_free(const Key& key) {
    return key.section == std::string_view("checkpoint") || any_of(key.dotted(), {"train.eval_every", "train.eval_batches", "train.sample_every", "train.sample_tokens",
                                                                "train.sample_prompts", "train.log_every", "train.record_every", "train.stats_every", "data.cache"});
}

// What Megatron's --override-opt_param-scheduler is about.
bool is_scheduled(const Key& key) {
    return any_of(key.dotted(), {"optimizer.lr", "optimizer.min_lr", "optimizer.start_lr", "optimizer.warmup", "optimizer.decay", "optimizer.schedule",
                                 "optimizer.clip", "optimizer.weight_decay", "train.steps"});
}

// Two values that are printed over several lines, cut down to the first line in which they differ.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
    std::istringstream x(a), y(b);
    std::string line, other;
    while (std::getline(x, line) && std::getline(y, other))
        if (line != other) return {line, other};
    return {a, b};
}

std::vector<Override> differences(const Config& had, const Config& has, bool (*compared)(const Key&)) {
    std::vector<Override> found;
    for (const Key& key : config::keys()) {
        if (!compared(key)) continue;
        const std::string a = config::value_text(key, had), b = config::value_text(key, has);
        if (a != b) found.push_back({key.dotted(), a, b});
    }
    return found;
}

std::string said(const Override& o) {
    const auto [had, has] = first_difference(o.had, o.has);
    return text("it has `", o.key, " = ", had, "`, this config `", has, "`");
}

}  // namespace

std::vector<Override> require_continues(const std::string& where, const Config& had, const Config& has, bool allow) {
    const std::vector<Override> fixed = differences(had, has, [](const Key& key) { return !is_free(key) && !is_scheduled(key); });
    require(fixed.empty(), where, ": was made by another config: ", fixed.empty() ? "" : said(fixed[0]),
            "; resume with the same values, or choose another --out");
    std::vector<Override> scheduled = differences(had, has, is_scheduled);
    require(allow || scheduled.empty(), where, ": was made by another config: ", scheduled.empty() ? "" : said(scheduled[0]),
            "; resume with the same values, with --override to change it from here on, or choose another --out");
    return scheduled;
}

void require_same_model(const std::string& where, const Config& had, const Config& has) {
    const std::vector<Override> found = differences(had, has, [](const Key& key) {
        return key.section == std::string_view("model") && !any_of(key.dotted(), {"model.preset", "model.family", "model.context", "model.init", "model.init_std"});
    });
    require(found.empty(), where, ": is of another model: ", found.empty() ? "" : said(found[0]), "; use its [model] section, or begin without checkpoint.start");
}

}  // namespace clover
