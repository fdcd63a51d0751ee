#include "arms.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace clover {
namespace {

std::map<std::string, std::string> without_seed(std::map<std::string, std::string> config) {
    config.erase("train.seed");
    return config;
}

std::string arm_name(const std::vector<RunData>& runs, const Arm& arm) {
    const std::string& first = runs[arm.runs[0]].name;
    if (arm.runs.size() == 1) return first;
    size_t same = first.size();
    for (const size_t i : arm.runs) {
        const std::string& name = runs[i].name;
        same = size_t(std::mismatch(first.begin(), first.begin() + long(std::min(same, name.size())), name.begin()).first - first.begin());
    }
    std::string name = first.substr(0, same);
    const auto cut = [&](std::string_view end) {
        if (name.ends_with(end)) name.resize(name.size() - end.size());
    };
    const auto cut_marks = [&] {
        while (!name.empty() && std::string_view("-_./= ").find(name.back()) != std::string_view::npos) name.pop_back();
    };
    cut_marks();
    for (const char* end : {"-seed", "_seed", "/seed", "-s", "_s", "/s"}) cut(end);
    cut_marks();
    return name.empty() ? first + " …" : name;
}

}  // namespace

std::vector<Arm> arms_of(const std::vector<RunData>& runs) {
    std::map<std::map<std::string, std::string>, size_t> places;
    std::vector<Arm> arms;
    for (size_t i = 0; i < runs.size(); i++) {
        const auto [place, added] = places.try_emplace(without_seed(runs[i].config), arms.size());
        if (added) arms.emplace_back();
        arms[place->second].runs.push_back(i);
    }
    for (Arm& arm : arms) arm.name = arm_name(runs, arm);
    return arms;
}

std::vector<std::string> differing_keys(const std::vector<RunData>& runs) {
    std::set<std::string> keys;
    for (const RunData& run : runs)
        for (const auto& [key, value] : run.config) keys.insert(key);
    std::vector<std::string> differing;
    const auto value_in = [](const RunData& run, const std::string& key) {
        const auto found = run.config.find(key);
        return found == run.config.end() ? nullptr : &found->second;
    };
    for (const std::string& key : keys) {
        const std::string* first = value_in(runs[0], key);
        const auto same = [&](const RunData& run) {
            const std::string* value = value_in(run, key);
            return value && first ? *value == *first : value == first;
        };
        if (!std::all_of(runs.begin(), runs.end(), same)) differing.push_back(key);
    }
    return differing;
}

}  // namespace clover
