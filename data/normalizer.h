// The normalizer of a tokenizer.json: NFC, NFD, NFKC, NFKD (Unicode annex 15, by utf8proc), Lowercase, Replace, Prepend and Sequences of them.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace clover {

class Normalizer {
public:
    /// `spec` is the member "normalizer", or null. Throws InputError naming what is wrong or not supported.
    Normalizer(const nlohmann::json& spec, const std::string& origin);
    bool changes_nothing() const { return steps_.empty(); }
    /// `text` is UTF-8; so is the result.
    std::string normalize(std::string_view text) const;
    /// The names of the steps, for people.
    const std::string& description() const { return description_; }

private:
    std::vector<std::function<std::string(std::string)>> steps_;
    std::string description_;
    void add(const nlohmann::json& spec, const std::string& where, int depth);
};

}  // namespace clover
