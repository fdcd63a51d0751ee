#include "ablation_runner.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "../data/new_file.h"
#include "../data/text_source.h"
#include "../model/config.h"
#include "../model/run_log.h"
#include "child_process.h"

namespace clover {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

enum class State : uint8_t { waiting, running, done };

/// A run and the processes it still needs: stage 0 trains, stage i is the i-th command.
struct Job {
    const ExperimentRun* run = nullptr;
    Config config;
    State state = State::waiting;
    size_t stage = 0;
    pid_t pid = 0;
    Clock::time_point started{};
    RunOutcome outcome;
    std::string name() const { return text(run->arm->name, "/seed", run->seed); }
    std::string record() const { return run->folder + "/run.json"; }
    std::string output() const { return run->folder + "/output.txt"; }
};

/// The last 4 kB of a file.
std::string tail_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    if (!in) return "";
    const std::streamoff size = in.tellg(), from = std::max<std::streamoff>(0, size - 4096);
    std::string tail(size_t(size - from), 0);
    in.seekg(from);
    in.read(tail.data(), std::streamsize(tail.size()));
    return tail;
}

std::string last_line_of(const std::string& path) {
    std::string tail = tail_of(path);
    while (!tail.empty() && (tail.back() == '\n' || tail.back() == '\r')) tail.pop_back();
    return tail.substr(tail.find_last_of("\r\n") + 1);
}

/// The step of the last whole line of a log.
int64_t step_of(const ExperimentRun& run) {
    const std::string tail = tail_of(run.folder + "/log.jsonl");
    const size_t at = tail.rfind("\"step\":", tail.rfind('\n'));
    return at == std::string::npos ? 0 : std::atoll(tail.c_str() + at + 7);
}

bool ended_by_a_number(const std::string& last_line) { return last_line.find("not finite") != std::string::npos; }

class Runner {
public:
    Runner(const std::vector<ExperimentRun>& runs, const std::vector<ExperimentCommand>& commands, const RunnerOptions& o) : commands_(commands), o_(o) {
        for (const ExperimentRun& r : runs) {
            Job job;
            job.run = &r, job.config = read_config(r.config, r.set);
            read_record(job);
            one_sitting_ &= !fs::exists(r.folder + "/config.toml");
            jobs_.push_back(job);
        }
    }

    RunnerReport run() {
        bool interrupted = false;
        while (start_waiting(), running() > 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            if (!interrupted && (o_.stop_requested() || !failure_.empty())) interrupted = true, interrupt(SIGINT);
            while (const auto ended = ended_child(processes())) finish(*ended);
            show();
        }
        clear_line();
        if (!failure_.empty() && failed_input_) throw InputError(failure_);
        if (!failure_.empty()) throw Error(failure_);
        RunnerReport report;
        for (const Job& j : jobs_) report.outcomes.push_back(j.outcome);
        report.stopped = std::any_of(jobs_.begin(), jobs_.end(), [](const Job& j) { return j.state != State::done; });
        report.one_sitting = one_sitting_, report.seconds = seconds_since(began_);
        return report;
    }

private:
    std::vector<Job> jobs_;
    const std::vector<ExperimentCommand>& commands_;
    const RunnerOptions& o_;
    std::string failure_;
    bool failed_input_ = false, one_sitting_ = true, terminal_ = isatty(STDERR_FILENO) != 0;
    Clock::time_point began_ = Clock::now(), next_show_ = began_ + std::chrono::seconds(1);

    static double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }
    int64_t running() const { return std::count_if(jobs_.begin(), jobs_.end(), [](const Job& j) { return j.state == State::running; }); }
    std::vector<pid_t> processes() const {
        std::vector<pid_t> all;
        for (const Job& j : jobs_)
            if (j.state == State::running) all.push_back(j.pid);
        return all;
    }
    void interrupt(int signal_number) {
        for (const pid_t p : processes()) kill(p, signal_number);
    }

    /// What earlier sittings did: whole runs of the same config are done with, up to their commands.
    void read_record(Job& job) {
        if (!fs::exists(job.record())) return;
        const json record = json::parse(read_text_file(job.record()), nullptr, false);
        if (!record.is_object()) return;
        job.outcome.seconds = record.value("seconds", 0.0);
        const std::string ended = record.value("ended", ""), config = job.run->folder + "/config.toml";
        if (ended.empty() || !fs::exists(config) || read_text_file(config) != to_toml(job.config)) return;
        job.outcome.diverged = ended == "diverged";
        after_stage(job);
    }
    void write_record(const Job& job, const char* ended) {
        write_file_whole(job.record(), json{{"ended", ended}, {"seconds", job.outcome.seconds}}.dump() + "\n");
    }
    /// To the next command that has not printed yet; a run that diverged has no end to be measured.
    void after_stage(Job& job) {
        do job.stage++;
        while (job.stage <= commands_.size() && fs::exists(printed_path(*job.run, commands_[job.stage - 1].name)));
        job.state = job.outcome.diverged || job.stage > commands_.size() ? State::done : State::waiting;
    }

    bool is_ready(const Job& job) const {
        if (job.state != State::waiting) return false;
        if (job.run->arm->after.empty()) return true;
        return std::any_of(jobs_.begin(), jobs_.end(), [&](const Job& j) {
            return j.run->arm->name == job.run->arm->after && j.run->seed == job.run->seed && (j.stage > 0 || j.state == State::done);
        });
    }
    void start_waiting() {
        for (Job& job : jobs_) {
            if (running() >= o_.jobs || o_.stop_requested() || !failure_.empty()) return;
            if (is_ready(job)) start_stage(job);
        }
    }
    void start_stage(Job& job) {
        fs::create_directories(job.run->folder);
        ChildProcess child;
        child.environment = {{"OMP_NUM_THREADS", std::to_string(o_.threads)}};
        child.output = child.errors = job.output();
        if (job.stage == 0) {
            child.arguments = {"train", job.run->config, "--out", job.run->folder};
            for (const std::string& s : job.run->set) child.arguments.insert(child.arguments.end(), {"--set", s});
            if (fs::exists(job.run->folder + "/config.toml")) child.arguments.push_back("--resume");
        } else {
            child.arguments = commands_[job.stage - 1].run;
            for (std::string& word : child.arguments)
                if (const size_t at = word.find("{run}"); at != std::string::npos) word.replace(at, 5, job.run->folder);
            child.output = printed_path(*job.run, commands_[job.stage - 1].name) + ".new", child.append = false;
        }
        job.pid = start(child), job.state = State::running, job.started = Clock::now();
    }
    void finish(const EndedChild& ended) {
        Job& job = *std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.state == State::running && j.pid == ended.pid; });
        job.outcome.seconds += seconds_since(job.started);
        const std::string last = last_line_of(job.output());
        job.outcome.diverged = job.stage == 0 && ended.code == 3 && ended_by_a_number(last);
        if (ended.code == 0 || job.outcome.diverged) return finish_stage(job);
        job.state = State::waiting;
        if (job.stage == 0) write_record(job, "");
        if (ended.code == 130 || !failure_.empty()) return;
        failed_input_ = ended.code == 2;
        failure_ = text(job.name(), ended.code > 128 ? text(" was ended by signal ", ended.code - 128) : text(" failed (exit code ", ended.code, ")"), ": ", last, " (", job.output(), ")");
    }
    void finish_stage(Job& job) {
        if (job.stage == 0) {
            write_record(job, job.outcome.diverged ? "diverged" : "finished");
            // What was measured of an earlier end no longer counts.
            for (const ExperimentCommand& c : commands_) fs::remove(printed_path(*job.run, c.name));
        } else {
            const std::string path = printed_path(*job.run, commands_[job.stage - 1].name);
            fs::rename(path + ".new", path);
        }
        after_stage(job);
        if (job.outcome.diverged && needed_by_others(job))
            failed_input_ = false, failure_ = text(job.name(), " diverged, and other runs were to start from it (", job.output(), ")");
    }
    bool needed_by_others(const Job& job) const {
        return std::any_of(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.run->arm->after == job.run->arm->name && j.run->seed == job.run->seed; });
    }

    // ---- The progress line ----------------------------------------------------------------------------------------------------

    void clear_line() const {
        if (terminal_) std::fprintf(stderr, "\r\033[K");
    }
    void show() {
        if (Clock::now() < next_show_) return;
        next_show_ = Clock::now() + (terminal_ ? std::chrono::seconds(1) : std::chrono::seconds(30));
        int64_t done = 0;
        std::string now;
        for (const Job& j : jobs_) {
            done += j.state == State::done;
            if (j.state != State::running) continue;
            now += (now.empty() ? "" : ", ") + j.name();
            now += j.stage > 0 ? " " + commands_[j.stage - 1].name : text(" ", 100 * step_of(*j.run) / j.config.train.steps, " %");
        }
        std::string line = text(done, " of ", jobs_.size(), " runs done, ", format_seconds(seconds_since(began_)), "; now ", now);
        if (terminal_) line.resize(std::min<size_t>(line.size(), 150));
        clear_line();
        std::fprintf(stderr, "%s%s", line.c_str(), terminal_ ? "" : "\n");
    }
};

}  // namespace

std::string printed_path(const ExperimentRun& run, const std::string& name) { return run.folder + "/" + name + ".json"; }

RunnerReport run_all(const std::vector<ExperimentRun>& runs, const std::vector<ExperimentCommand>& commands, const RunnerOptions& o) { return Runner(runs, commands, o).run(); }

}  // namespace clover
