#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "../data/commands.h"
#include "../kernels/error.h"
#include "temporary_folder.h"

using namespace clover;
using test::TemporaryFolder;
using doctest::Contains;

namespace {

/// A file descriptor means a file while it lives.
class Redirected {
public:
    Redirected(int fd, const std::string& path, int flags) : fd_(fd), before_(::dup(fd)) {
        std::fflush(stdout);
        const int file = ::open(path.c_str(), flags, 0600);
        ::dup2(file, fd);
        ::close(file);
    }
    ~Redirected() {
        std::fflush(stdout);
        std::clearerr(stdout);
        ::dup2(before_, fd_);
        ::close(before_);
    }

private:
    int fd_, before_;
};

/// Runs one command as train.cu does. Returns its standard output; a mistake in the command line is an InputError.
std::string clover_command(const TemporaryFolder& folder, std::vector<std::string> words, const std::string& input = "", const std::string& output = "") {
    const std::string in = folder.file("stdin", input), out = output.empty() ? folder / "stdout" : output;
    {
        const Redirected from(0, in, O_RDONLY), to(1, out, O_WRONLY | O_CREAT | O_TRUNC);
        CLI::App app;
        app.require_subcommand(1);
        const std::vector<DataCommand> commands = add_data_commands(app);
        std::reverse(words.begin(), words.end());
        try {
            app.parse(words);
        } catch (const CLI::ParseError& e) {
            throw InputError(e.what());
        }
        for (const DataCommand& command : commands)
            if (app.got_subcommand(command.name)) command.run();
    }
    return output.empty() ? folder.contents("stdout") : "";
}

}  // namespace

TEST_SUITE("data commands") {
    TEST_CASE("tokenizer encode: lines, whole texts, JSON, names") {
        TemporaryFolder folder;
        const std::vector<std::string> encode = {"tokenizer", "encode", "--tokenizer", "bytes"};
        const auto run = [&](const std::string& option, const std::string& input) {
            std::vector<std::string> words = encode;
            if (!option.empty()) words.push_back(option);
            return clover_command(folder, words, input);
        };
        CHECK(run("", "ab\n\nc") == "97 98\n\n99\n");
        CHECK(run("--document", "a\nb") == "97 10 98\n");
        CHECK(run("--json", "\"a\\nb\"\n{\"text\": \"c\"}\n\"\"\n") == "[97,10,98]\n[99]\n[]\n");
        CHECK(run("--pieces", "ab\n") == "a b\n");
        CHECK_THROWS_WITH_AS(run("--json", "\"a\"\nb\n"), Contains("standard input:2: expected a JSON string"), InputError);
    }

    TEST_CASE("tokenizer decode gives encode's text back, and names what is no id by line and column") {
        TemporaryFolder folder;
        const std::vector<std::string> decode = {"tokenizer", "decode", "--tokenizer", "bytes"};
        const auto run = [&](const std::string& option, const std::string& input) {
            std::vector<std::string> words = decode;
            if (!option.empty()) words.push_back(option);
            return clover_command(folder, words, input);
        };
        CHECK(run("", "97  98\n\n195 169\n") == "ab\n\n\xc3\xa9\n");
        CHECK(run("--document", "97\n195\n169") == "a\xc3\xa9");
        CHECK(run("--json", "[97, 10]\n[]\n") == "\"a\\n\"\n\"\"\n");
        CHECK(run("--special", "97 256\n") == "a<eod>\n");
        CHECK_THROWS_WITH_AS(run("", "97\n1 x\n"), Contains("standard input:2:3: \"x\" is no token id"), InputError);
        CHECK_THROWS_WITH_AS(run("", "1 257\n"), Contains("standard input:1:3: there is no token 257; ids go from 0 to 256"), InputError);
        CHECK_THROWS_WITH_AS(run("", "99999999999999999999\n"), Contains("is no token id"), InputError);
    }

    TEST_CASE("tokenize from standard input, merge, info") {
        TemporaryFolder folder;
        const std::vector<std::string> tokenize = {"tokenize", "--tokenizer", "bytes", "--json", "--out"};
        const auto made = [&](const std::string& name, std::vector<std::string> more, const std::string& input) {
            std::vector<std::string> words = tokenize;
            words.push_back(folder / name);
            words.insert(words.end(), more.begin(), more.end());
            return nlohmann::json::parse(clover_command(folder, words, input));
        };
        CHECK(made("a", {"-"}, "{\"text\": \"ab\"}\n")["tokens"] == 3);
        CHECK(made("b", {"--key", "body", "--no-append-eod", "-"}, "{\"body\": \"ab\"}\n")["tokens"] == 2);
        CHECK(made("c", {"--format", "text", "-"}, "{}\n")["bytes"] == 3);
        clover_command(folder, {"merge", "--out", folder / "m", folder / "a", folder / "c"});
        CHECK(nlohmann::json::parse(clover_command(folder, {"info", "--json", folder / "m"}))["documents"] == 2);
        CHECK_THROWS_WITH_AS(made("d", {"-"}, "{\"text\": \"a\"}\n{\"text\": 1}\n"), Contains("standard input:2: no string under the key"), InputError);
        CHECK_THROWS_WITH_AS(made("d", {"-"}, "{\"text\": \"\"}\n"), Contains("no text in it"), InputError);
        CHECK(!std::filesystem::exists(folder / "d.bin"));
    }

    TEST_CASE("mistakes in the command line are refused (A19)") {
        TemporaryFolder folder;
        const auto refused = [&](std::vector<std::string> words, const char* message) {
            CAPTURE(words.back());
            CHECK_THROWS_WITH_AS(clover_command(folder, words), Contains(message), InputError);
        };
        refused({"tokenize", "--tokenizer", "bytes", "--out", folder / "x", "--thread", "2", "-"}, "--thread");
        refused({"tokenize", "--tokenizer", "bytes", "--out", folder / "x", "--threads", "2x", "-"}, "--threads");
        refused({"tokenize", "--tokenizer", "bytes", "--out", folder / "x", "--threads", "-1", "-"}, "--threads");
        refused({"tokenize", "--tokenizer", "bytes", "--out", folder / "x", "--format", "json", "-"}, "--format");
        refused({"tokenize", "--tokenizer", "bytes", "-"}, "--out");
        refused({"tokenize", "--tokenizer", "bytes", "--out"}, "--out");
        refused({"tokenizer", "encode", "--tokenizer", "bytes", "--json", "--document"}, "excludes");
        refused({"tokenizer", "encode", "--tokenizer", "nope"}, "tokenizer \"nope\" is not known");
        refused({"tokenizer"}, "subcommand");
        refused({"merge", "--out", folder / "x"}, "PREFIX");
        refused({"info", folder / "none"}, "none.bin: No such file");
    }

    TEST_CASE("output that cannot be written is an Error") {
        TemporaryFolder folder;
        clover_command(folder, {"tokenize", "--tokenizer", "bytes", "--out", folder / "a", "-"}, "{\"text\": \"a\"}\n");
        const std::vector<std::vector<std::string>> commands = {{"info", folder / "a"}, {"tokenizer", "info", "--tokenizer", "bytes"}, {"tokenizer", "encode", "--tokenizer", "bytes"}};
        for (const std::vector<std::string>& command : commands)
            CHECK_THROWS_WITH_AS(clover_command(folder, command, "text\n", "/dev/full"), Contains("cannot write the output: No space left on device"), Error);
    }
}
