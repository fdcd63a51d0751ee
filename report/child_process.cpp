#include "child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "../kernels/error.h"

namespace clover {
namespace {

std::vector<std::string> environment_with(const std::map<std::string, std::string>& more) {
    std::vector<std::string> all;
    for (char** entry = environ; *entry; entry++) {
        const std::string line = *entry;
        if (more.count(line.substr(0, line.find('='))) == 0) all.push_back(line);
    }
    for (const auto& [name, value] : more) all.push_back(name + "=" + value);
    return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> all;
    for (std::string& w : words) all.push_back(w.data());
    all.push_back(nullptr);
    return all;
}

int open_output(const std::string& path, bool append) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC), 0666);
    require(file >= 0, path, ": cannot be written: ", std::strerror(errno));
    return file;
}

}  // namespace

pid_t start(const ChildProcess& child) {
    std::vector<std::string> arguments = child.arguments, environment = environment_with(child.environment);
    arguments.insert(arguments.begin(), "clover");
    const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
    const int output = open_output(child.output, child.append), errors = child.errors == child.output ? output : open_output(child.errors, true);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {  // only system calls from here on
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGINT);
        if (getppid() != parent) _exit(130);
        signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL);
        const int nothing = open("/dev/null", O_RDONLY);
        dup2(nothing, 0), dup2(output, 1), dup2(errors, 2);
        execve("/proc/self/exe", argv.data(), envp.data());
        _exit(127);
    }
    const int error = errno;
    close(output);
    if (errors != output) close(errors);
    if (pid < 0) throw Error(text("cannot start another process: ", std::strerror(error)));
    return pid;
}

std::optional<EndedChild> ended_child(const std::vector<pid_t>& children) {
    for (const pid_t pid : children) {
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid) return EndedChild{pid, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    }
    return {};
}

}  // namespace clover
