// A config under construction, and what its values must fulfil together.
#pragma once
#include <initializer_list>
#include <map>
#include <string>

#include "config_print.h"

namespace clover::config {

/// A config under construction, with the origin of each of its values.
class Draft {
public:
    Config config;

    /// Notes where the value of this key, now in `config`, comes from; `users` if from the file or an override.
    void set_origin(const std::string& dotted, const std::string& where, bool users) { origins_[dotted] = {where, users}; }

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

/// Throws InputError if values that are right alone do not fit each other. `origin` is the file, for what nobody gave.
void check_combinations(const Draft& draft, const std::string& origin);

}  // namespace clover::config
