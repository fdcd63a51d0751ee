// The published models: shapes and training settings as the papers' tables and launch scripts give them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace clover {

/// bloom-560m … bloom-176b, gopher-44m … gopher-280b, by size.
const std::vector<std::string_view>& preset_names();
/// bloom or gopher.
std::string preset_family(std::string_view preset);
/// What the preset sets, on top of its family's defaults, in the syntax of a config file.
std::string preset_toml(std::string_view preset);

}  // namespace clover
