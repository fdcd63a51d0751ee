// The commands that prepare data, for train.cu: their options, and what runs them.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace clover {

/// Adds the commands to `app`. Each entry: the command's name, and what runs it after parsing and returns the exit code.
struct DataCommand {
    std::string name;
    std::function<int()> run;
};
std::vector<DataCommand> add_data_commands(CLI::App& app);

}  // namespace clover
