// Checkpoint folders: whole or not there, checked, and never lost to a kill, a full disk or a damaged file (case A16).
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "../kernels/error.h"
#include "../model/checkpoint_directory.h"
#include "../model/safetensors.h"
#include "temporary_folder.h"

namespace fs = std::filesystem;
using namespace clover;
using test::TemporaryFolder;

namespace {

constexpr int64_t tensor_bytes = 200'000;

/// A checkpoint whose every byte tells its step.
std::string save(const std::string& checkpoints, int64_t step, int64_t keep, int64_t bytes = tensor_bytes) {
    CheckpointWriter writer(checkpoints, step);
    const std::string data(size_t(bytes), char(step % 251));
    SafetensorsWriter tensors(writer.path("model.safetensors"), {{"t", "U8", {bytes}}}, {{"step", std::to_string(step)}});
    tensors.write(data.data(), data.size());
    writer.add("model.safetensors", tensors.finish());
    writer.add_text("state.json", std::to_string(step));
    return writer.commit(keep);
}

std::vector<std::string> names(const std::vector<std::string>& folders) {
    std::vector<std::string> last;
    for (const std::string& folder : folders) last.push_back(fs::path(folder).filename());
    return last;
}

std::vector<std::string> everything_in(const std::string& folder) {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder)) all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
}

std::string newest(const std::string& checkpoints) {
    std::vector<std::string> warnings;
    const std::string folder = newest_checkpoint(checkpoints, warnings);
    CHECK(warnings.empty());
    return fs::path(folder).filename();
}

void flip_bit(const std::string& path, std::streamoff byte) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(byte);
    const int old = file.get();
    file.seekp(byte);
    file.put(char(old ^ 1));
}

template <class Call>
std::string message_of(Call call) {
    try {
        call();
    } catch (const Error& e) {
        const std::string message = e.what();
        CHECK(message.find('\n') == std::string::npos);
        return message;
    }
    FAIL("nothing was thrown");
    return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_SUITE_BEGIN("checkpoint_directory");

TEST_CASE("saves whole folders, lists them by step, keeps the newest") {
    const TemporaryFolder out;
    const std::string checkpoints = out / "run/checkpoints";
    CHECK(list_checkpoints(checkpoints).empty());
    for (const int64_t step : {5, 10, 100'000'000, 200'000'000}) {
        const std::string folder = save(checkpoints, step, 0);
        CHECK(folder == list_checkpoints(checkpoints).back());
    }
    CHECK(names(list_checkpoints(checkpoints)) == std::vector<std::string>{"step_00000005", "step_00000010", "step_100000000", "step_200000000"});
    CHECK(newest(checkpoints) == "step_200000000");
    save(checkpoints, 200'000'001, 2);
    CHECK(everything_in(checkpoints) == std::vector<std::string>{"step_200000000", "step_200000001"});
    save(checkpoints + "/", 200'000'002, 1);
    CHECK(everything_in(checkpoints) == std::vector<std::string>{"step_200000002"});
    CHECK(everything_in(checkpoints + "/step_200000002") == std::vector<std::string>{"manifest.json", "model.safetensors", "state.json"});
    verify_checkpoint(checkpoints + "/step_200000002/");
    CHECK(SafetensorsFile(checkpoints + "/step_200000002/model.safetensors").metadata().at("step") == "200000002");
}

TEST_CASE("the manifest has sizes and CRC-32") {
    const TemporaryFolder out;
    CheckpointWriter writer(out / "c", 7);
    writer.add_text("text.json", "123456789");
    const std::string folder = writer.commit(0);
    std::string manifest = out.contents("c/step_00000007/manifest.json");
    manifest.erase(std::remove_if(manifest.begin(), manifest.end(), [](char c) { return c == ' ' || c == '\n'; }), manifest.end());
    // cbf43926 is the CRC-32 of "123456789" in every catalogue of checksums.
    CHECK(manifest == "{\"step\":7,\"files\":[{\"name\":\"text.json\",\"size\":9,\"crc32\":\"cbf43926\"}]}");
    verify_checkpoint(folder);
}

TEST_CASE("an uncommitted checkpoint leaves nothing, a killed one nothing that counts") {
    const TemporaryFolder out;
    const std::string c = out / "c";
    save(c, 1, 0);
    {
        CheckpointWriter writer(c, 2);
        writer.add_text("a", "b");
        CHECK(names(list_checkpoints(c)) == std::vector<std::string>{"step_00000001"});
    }
    CHECK(everything_in(c) == std::vector<std::string>{"step_00000001"});
    fs::create_directories(c + "/.tmp_step_00000002");
    out.file("c/.tmp_step_00000002/model.safetensors", "half");
    fs::create_directories(c + "/step_3");
    out.file("c/notes.txt", "of the user");
    CHECK(newest(c) == "step_00000001");
    save(c, 4, 0);
    CHECK(everything_in(c) == std::vector<std::string>{"notes.txt", "step_00000001", "step_00000004", "step_3"});
}

TEST_CASE("a step saved again replaces the folder; at every moment of that one of the two is there") {
    const TemporaryFolder out;
    const std::string c = out / "c";
    save(c, 1, 0, 1000);
    save(c, 1, 1, 2000);
    CHECK(everything_in(c) == std::vector<std::string>{"step_00000001"});
    CHECK(fs::file_size(c + "/step_00000001/model.safetensors") > 2000);
    // Killed between the two renames: the old one stands in, and gets its name back from the next writer.
    fs::rename(c + "/step_00000001", c + "/.old_step_00000001");
    CHECK(newest(c) == ".old_step_00000001");
    save(c, 2, 0);
    CHECK(everything_in(c) == std::vector<std::string>{"step_00000001", "step_00000002"});
    // Killed after them: the new one counts, the old one goes.
    fs::copy(c + "/step_00000001", c + "/.old_step_00000002");
    CHECK(newest(c) == "step_00000002");
    save(c, 3, 0);
    CHECK(everything_in(c) == std::vector<std::string>{"step_00000001", "step_00000002", "step_00000003"});
}

TEST_CASE("after a resume at an earlier step, saving removes neither the new checkpoint nor the ones ahead of it") {
    const TemporaryFolder out;
    const std::string c = out / "c";
    for (const int64_t step : {10, 20, 30}) save(c, step, 0);
    out.file("c/step_00000030/state.json", "31");
    save(c, 25, 1);
    CHECK(everything_in(c) == std::vector<std::string>{"step_00000025", "step_00000030"});
    std::vector<std::string> warnings;
    CHECK(newest_checkpoint(c, warnings) == c + "/step_00000025");
    CHECK(warnings.size() == 1);
}

TEST_CASE("a file missing, cut by a byte or with one bit changed: named, and the checkpoint before it is taken") {
    const TemporaryFolder out;
    const std::string c = out / "c", newest_folder = c + "/step_00000002", victim = newest_folder + "/model.safetensors";
    const auto damage = [&](const std::string& file, auto&& act, const std::string& part) {
        CAPTURE(part);
        save(c, 1, 0);
        save(c, 2, 0);
        act();
        const std::string message = message_of([&] { verify_checkpoint(newest_folder); });
        CHECK(contains(message, newest_folder + "/" + file));
        CHECK(contains(message, part));
        std::vector<std::string> warnings;
        CHECK(newest_checkpoint(c, warnings) == c + "/step_00000001");
        REQUIRE(warnings.size() == 1);
        CHECK(warnings[0] == "skipping the checkpoint of step 2: " + message);
        fs::remove_all(c);
    };
    damage("model.safetensors", [&] { fs::remove(victim); }, "No such file");
    damage("model.safetensors", [&] { fs::resize_file(victim, fs::file_size(victim) - 1); }, "bytes, but its manifest.json says");
    damage("model.safetensors", [&] { fs::resize_file(victim, fs::file_size(victim) + 1); }, "bytes, but its manifest.json says");
    damage("model.safetensors", [&] { flip_bit(victim, 100'000); }, "CRC-32");
    damage("model.safetensors", [&] { fs::remove(victim), fs::create_directory(victim); }, "not a regular file");
    damage("model.safetensors", [&] { fs::remove(victim), ::mkfifo(victim.c_str(), 0666); }, "not a regular file");
    damage("manifest.json", [&] { fs::remove(newest_folder + "/manifest.json"); }, "No such file");
    for (const std::string& manifest :
         {std::string(), std::string("{}"), std::string("{\"step\":2,\"files\":{\"a\":1}}"), std::string("{\"step\":3,\"files\":[]}"), std::string("{\"step\":1e30,\"files\":[]}"),
          std::string("{\"step\":2,\"files\":[{\"name\":\"../step_00000001/state.json\",\"size\":1,\"crc32\":\"83dcefb7\"}]}"),
          std::string("{\"step\":2,\"files\":[{\"name\":\"state.json\",\"size\":-1,\"crc32\":\"83dcefb7\"}]}"), std::string(1'000'000, '['), std::string("\0\xff", 2)})
        damage("manifest.json", [&] { out.file("c/step_00000002/manifest.json", manifest); }, "manifest");
}

TEST_CASE("no checkpoint, none whole, no folder") {
    const TemporaryFolder out;
    std::vector<std::string> warnings;
    CHECK(contains(message_of([&] { newest_checkpoint(out / "absent", warnings); }), "no checkpoint in " + (out / "absent")));
    CHECK(contains(message_of([&] { newest_checkpoint(out / ".", warnings); }), "no checkpoint in"));
    CHECK(contains(message_of([&] { verify_checkpoint(out / "absent"); }), "absent: no such folder"));
    save(out / "c", 1, 0);
    out.file("c/step_00000001/state.json", "");
    CHECK(contains(message_of([&] { newest_checkpoint(out / "c", warnings); }), "no whole checkpoint in " + (out / "c") + ", all 1 are damaged; the newest: "));
    CHECK(warnings.size() == 1);
    const std::string file = out.file("file", "x");
    CHECK(contains(message_of([&] { newest_checkpoint(file, warnings); }), file + ": Not a directory"));
    CHECK(contains(message_of([&] { CheckpointWriter(file, 1); }), file + ": Not a directory"));
    CHECK(contains(message_of([&] { CheckpointWriter(file + "/c", 1); }), file + "/c: Not a directory"));
}

TEST_CASE("names that would leave the folder are refused") {
    const TemporaryFolder out;
    CheckpointWriter writer(out / "c", 1);
    for (const char* name : {"", "../a", "a/b", "/etc/passwd", ".hidden", "manifest.json"}) CHECK_THROWS_AS(writer.path(name), Error);
    CHECK(contains(message_of([&] { writer.add("never-written", 0); }), "never-written: No such file"));
}

TEST_CASE("a full disk: saving fails with path and reason, the old checkpoint stays, nothing else does (A16)") {
    const TemporaryFolder out;
    const std::string c = out / "c";
    save(c, 1, 1);
    struct rlimit before;
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    const struct rlimit low = {tensor_bytes / 2, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &low);
    const std::string message = message_of([&] { save(c, 2, 1); });
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    CHECK(message == "cannot write " + c + "/.tmp_step_00000002/model.safetensors: File too large");
    CHECK(everything_in(c) == std::vector<std::string>{"step_00000001"});
    CHECK(newest(c) == "step_00000001");
}

/// Runs `save` in a child that is killed on entering its n-th system call. True if it was killed, false if it ended before.
template <class Save>
bool killed_at_call(int64_t n, Save save) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(2);
        ::raise(SIGSTOP);
        try {
            save();
        } catch (...) {
            _exit(1);
        }
        _exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    // Each call stops twice, at its entry and at its end.
    for (int64_t stops = 0; WIFSTOPPED(status) && stops < 2 * n - 1; stops++) {
        ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
        ::waitpid(child, &status, 0);
    }
    if (!WIFSTOPPED(status)) {
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0);
        return false;
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return true;
}

/// The debugger's system call may be forbidden, as in some containers.
bool can_trace() {
    const pid_t child = ::fork();
    if (child == 0) _exit(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
    int status = 1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("killed at each system call of saving, the checkpoint before or the new one is there, whole (A16)") {
    if (!can_trace()) {
        MESSAGE("skipped: ptrace is not allowed here");
        return;
    }
    const TemporaryFolder out;
    const std::string before = out / "before", c = out / "c";
    save(before, 1, 0, 1000);
    for (const int64_t step : {1, 2}) {  // 1 replaces the only checkpoint, 2 removes it after
        int64_t killed = 0, new_ones = 0;
        for (bool more = true; more; killed += more) {
            fs::remove_all(c);
            fs::copy(before, c, fs::copy_options::recursive);
            more = killed_at_call(killed + 1, [&] { save(c, step, 1, 2000); });
            std::vector<std::string> warnings;
            const std::string folder = newest_checkpoint(c, warnings);
            const SafetensorsFile tensors(folder + "/model.safetensors");
            const bool is_new = tensors.at("t").end == 2000;
            CHECK(warnings.empty());
            CHECK(tensors.at("t").end == (is_new ? 2000 : 1000));
            CHECK(tensors.metadata().at("step") == std::to_string(is_new ? step : 1));
            CHECK(is_new >= (new_ones > 0));
            new_ones += is_new;
        }
        // Some kills came before and some after the moment of the new name.
        CHECK(killed > 30);
        CHECK(new_ones > 1);
        CHECK(new_ones < killed);
        save(c, 3, 0);
        CHECK(everything_in(c) == std::vector<std::string>{step == 1 ? "step_00000001" : "step_00000002", "step_00000003"});
    }
}

/// Saves steps without end from `first` on; every other step is saved twice. Writes one byte to `ready` after the first.
[[noreturn]] void save_for_ever(const std::string& checkpoints, int64_t first, int ready) {
    try {
        for (int64_t step = first;; step++) {
            for (int64_t again = 0; again <= step % 2; again++) save(checkpoints, step, 2);
            if (step == first && ::write(ready, "x", 1) != 1) break;
        }
    } catch (...) {
    }
    _exit(1);
}

TEST_CASE("killed at 20 random moments of saving, a complete step is there each time, and steps go forward (A16)") {
    const TemporaryFolder out;
    const std::string c = out / "c";
    std::mt19937 random(7);
    int64_t last = 0;
    for (int kill_number = 0; kill_number < 20; kill_number++) {
        int pipe[2];
        REQUIRE(::pipe(pipe) == 0);
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) save_for_ever(c, last + 1, pipe[1]);
        ::close(pipe[1]);
        char ready;
        CHECK(::read(pipe[0], &ready, 1) == 1);
        ::usleep(random() % 30'000);
        ::kill(child, SIGKILL);
        int status = 0;
        ::waitpid(child, &status, 0);
        ::close(pipe[0]);
        CHECK(WIFSIGNALED(status));

        std::vector<std::string> warnings;
        const std::string folder = newest_checkpoint(c, warnings);
        CHECK(warnings.empty());
        const SafetensorsFile tensors(folder + "/model.safetensors");
        const int64_t step = std::stoll(tensors.metadata().at("step"));
        CHECK(step > last);
        CHECK(folder.ends_with(std::to_string(step)));
        CHECK(out.contents("c/" + std::string(fs::path(folder).filename()) + "/state.json") == std::to_string(step));
        const SafetensorsEntry& t = tensors.at("t");
        CHECK(t.end == uint64_t(tensor_bytes));
        CHECK(std::all_of(tensors.data(t), tensors.data(t) + t.end, [&](unsigned char byte) { return byte == step % 251; }));
        last = step;
    }
}

TEST_SUITE_END();

}  // namespace
