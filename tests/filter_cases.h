// The documents of golden/filter_cases.jsonl with the values that datatrove's filters see in them (golden/make_filter_cases.py).
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "../data/quality_filter.h"

namespace clover::test {

/// `values(text)` gives the values of `rules`. Returns how many were compared.
template <class F>
int compare_filter_cases(const std::vector<FilterRule>& rules, F values) {
    int compared = 0;
    std::ifstream in("tests/golden/filter_cases.jsonl");
    for (std::string line; std::getline(in, line);) {
        const auto record = nlohmann::json::parse(line);
        const auto text = record["text"].get<std::string>();
        const std::vector<double> found = values(text);
        REQUIRE(found.size() == rules.size());
        for (size_t i = 0; i < rules.size() && !record["values"].empty(); i++, compared++) {
            INFO(rules[i].name, " of document ", compared, ": ", text);
            CHECK(std::abs(found[i] - record["values"][rules[i].name].get<double>()) < 1e-9);
        }
    }
    return compared;
}

/// Whether the rule of this name drops a document with these values.
inline bool drops(const std::vector<FilterRule>& rules, const std::vector<double>& values, std::string_view name) {
    for (size_t i = 0; i < rules.size(); i++)
        if (rules[i].name == name) return rules[i].broken_by(values[i]);
    FAIL("no rule " << name);
    return false;
}

inline std::string repeated(std::string_view what, size_t n) {
    std::string all;
    all.reserve(what.size() * n);
    for (size_t i = 0; i < n; i++) all += what;
    return all;
}

}  // namespace clover::test
