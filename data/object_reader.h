// Reads one object of a JSON file whose every member must be known: a member that is missing, of another type or not asked for is an InputError that
// names it. Used for the parts of a tokenizer.json, where a member passed over would silently give other ids.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace clover {

class ObjectReader {
public:
    /// `where` opens messages: "t.json: normalizer". The object must outlive the reader.
    ObjectReader(const nlohmann::json& object, std::string where);
    /// null where the member is missing.
    const nlohmann::json& member(const char* name);
    bool has(const char* name) { return !member(name).is_null(); }
    bool boolean(const char* name);
    bool boolean(const char* name, bool otherwise) { return has(name) ? boolean(name) : otherwise; }
    std::string string(const char* name);
    /// Refuses the members that nobody asked for.
    void finish() const;
    /// Throws InputError for the value of a member: `what` says why not, or what was expected.
    [[noreturn]] void refuse(const char* name, const std::string& what) const;
    const std::string& where() const { return where_; }

private:
    const nlohmann::json& object_;
    std::string where_;
    std::vector<std::string_view> known_;
};

/// A value for a message: one line, not too long.
std::string brief(const nlohmann::json& value);

}  // namespace clover
