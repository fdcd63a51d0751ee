// Programs run beside this one: each in a process group of its own, so that Ctrl-C reaches them only from here; they end (SIGINT: they save) if this program dies.
#pragma once
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace clover {

struct ChildProcess {
    std::vector<std::string> arguments;               // after the program's name
    std::string output, errors;                       // files: `output` is made anew or appended to, `errors` appended to; the same: one file
    bool append = true;
    std::map<std::string, std::string> environment;   // on top of this program's
};

/// Starts this very program (/proc/self/exe).
pid_t start(const ChildProcess& child);

struct EndedChild {
    pid_t pid;
    int code;  // exit code; 128 + signal
};
/// A child that has ended, if one has; does not wait.
std::optional<EndedChild> ended_child(const std::vector<pid_t>& children);

}  // namespace clover
