#include "object_reader.h"

#include <algorithm>

#include "../kernels/error.h"

namespace clover {

std::string brief(const nlohmann::json& value) {
    std::string out = value.is_structured() ? std::string(value.is_array() ? "an array" : "an object")
                                            : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (out.size() > 80) out = out.substr(0, 80) + "…";
    return out;
}

ObjectReader::ObjectReader(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {
    require(object.is_object(), where_, ": is ", brief(object), "; expected an object");
}

const nlohmann::json& ObjectReader::member(const char* name) {
    static const nlohmann::json null;
    known_.push_back(name);
    const auto found = object_.find(name);
    return found == object_.end() ? null : *found;
}

bool ObjectReader::boolean(const char* name) {
    const nlohmann::json& value = member(name);
    if (!value.is_boolean()) refuse(name, "expected true or false");
    return value.get<bool>();
}

std::string ObjectReader::string(const char* name) {
    const nlohmann::json& value = member(name);
    if (!value.is_string()) refuse(name, "expected a string");
    return value.get<std::string>();
}

void ObjectReader::finish() const {
    for (const auto& [name, value] : object_.items())
        require(std::find(known_.begin(), known_.end(), name) != known_.end(), where_, ".", name, ": this member is not supported");
}

void ObjectReader::refuse(const char* name, const std::string& what) const {
    const auto found = object_.find(name);
    if (found == object_.end()) throw InputError(text(where_, ".", name, ": is missing; ", what));
    throw InputError(text(where_, ".", name, ": is ", brief(*found), "; ", what));
}

}  // namespace clover
