// Values in the syntax of a config file.
#pragma once
#include <string>
#include <string_view>

#include "config_keys.h"

namespace clover::config {

/// A TOML string, for UTF-8 of any characters.
std::string quote(std::string_view s);
/// The key's value; reads back to the same.
std::string value_text(const Key& key, const Config& config);

}  // namespace clover::config
