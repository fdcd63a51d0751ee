// What a misspelt key or section was meant to be: the ends of messages.
#pragma once
#include <string>
#include <string_view>

namespace clover::config {

/// "; did you mean optimizer.lr?" for the key whose name, or name elsewhere, is nearest; the same section wins a tie. Empty if none is near.
std::string suggestion(std::string_view section, std::string name);
/// "; did you mean [train]?" for the nearest section, or the list of them.
std::string section_suggestion(const std::string& name);

}  // namespace clover::config
