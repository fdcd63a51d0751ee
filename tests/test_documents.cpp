#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include "../data/documents.h"
#include "../kernels/error.h"
#include "gz_file.h"

using namespace clover;
using test::gz_file;
using test::TemporaryFolder;
using doctest::Contains;

namespace {

/// Place and text of every document.
std::vector<std::pair<std::string, std::string>> read_all(const std::vector<std::string>& inputs, const DocumentOptions& options = {}) {
    DocumentReader reader(inputs, options);
    RawDocument raw;
    std::string scratch;
    std::vector<std::pair<std::string, std::string>> all;
    while (reader.next(raw)) all.emplace_back(reader.place(raw), document_text(raw, options, reader.place(raw), scratch));
    if (reader.bytes_total() > 0) CHECK(reader.bytes_read() == reader.bytes_total());
    return all;
}

using Documents = std::vector<std::pair<std::string, std::string>>;

/// Standard input comes from a file while it lives.
class Stdin {
public:
    explicit Stdin(const std::string& path) : before_(::dup(0)) {
        const int fd = ::open(path.c_str(), O_RDONLY);
        ::dup2(fd, 0);
        ::close(fd);
    }
    ~Stdin() {
        ::dup2(before_, 0);
        ::close(before_);
    }

private:
    int before_;
};

}  // namespace

TEST_SUITE("documents") {
    TEST_CASE("files one after the other, each in its format, packed or not") {
        TemporaryFolder folder;
        const std::string a = folder.file("a.txt", "plain\ntext\xff"), b = gz_file(folder, "b.jsonl.gz", "{\"text\": \"one\"}\n\n \r\n{\"x\": 1, \"text\": \"tw\\u006f\"}\r\n"),
                          c = gz_file(folder, "c.txt.gz", "packed"), d = folder.file("d.jsonl", "\xef\xbb\xbf{\"text\": \"last, without a line feed\"}");
        CHECK(read_all({a, b, c, d}) == Documents{{a, "plain\ntext\xff"}, {b + ":1", "one"}, {b + ":4", "two"}, {c, "packed"}, {d + ":1", "last, without a line feed"}});
    }

    TEST_CASE("a folder is its text files, to any depth, by path") {
        TemporaryFolder folder;
        std::filesystem::create_directories(folder / "in/deep");
        folder.file("in/b.txt", "b");
        folder.file("in/a.md", "left out");
        folder.file("in/deep/c.jsonl", "{\"text\": \"c\"}\n");
        CHECK(read_all({folder / "in"}) == Documents{{folder / "in/b.txt", "b"}, {folder / "in/deep/c.jsonl:1", "c"}});
        std::filesystem::create_directories(folder / "none");
        CHECK_THROWS_WITH_AS(read_all({folder / "none"}), Contains("no .txt or .jsonl file"), InputError);
    }

    TEST_CASE("standard input is JSONL, or what is said") {
        TemporaryFolder folder;
        const std::string lines = folder.file("lines", "{\"body\": \"x\"}\n{\"body\": \"y\"}\n");
        {
            const Stdin in(lines);
            CHECK(read_all({"-"}, {.key = "body"}) == Documents{{"standard input:1", "x"}, {"standard input:2", "y"}});
        }
        const Stdin in(lines);
        CHECK(read_all({"-"}, {.format = DocumentFormat::text}) == Documents{{"standard input", "{\"body\": \"x\"}\n{\"body\": \"y\"}\n"}});
    }

    TEST_CASE("a format that is said goes before the name") {
        TemporaryFolder folder;
        const std::string path = folder.file("data.log", "{\"text\": \"x\"}\n");
        CHECK_THROWS_WITH_AS(read_all({path}), Contains("data.log: cannot tell the format from the name"), InputError);
        CHECK(read_all({path}, {.format = DocumentFormat::jsonl}) == Documents{{path + ":1", "x"}});
        CHECK(read_all({path}, {.format = DocumentFormat::text})[0].second == "{\"text\": \"x\"}\n");
    }

    TEST_CASE("what is wrong is named with file and line") {
        TemporaryFolder folder;
        const auto check = [&](const std::string& line, const char* message) {
            CAPTURE(line);
            CHECK_THROWS_WITH_AS(read_all({folder.file("a.jsonl", "{\"text\": \"good\"}\n\n" + line + "\n")}), Contains(message), InputError);
        };
        check("{\"text\": \"cut", "a.jsonl:3: not valid JSON at byte");
        check("[\"text\"]", "a.jsonl:3: no string under the key \"text\"");
        check("{\"text\": 3}", "a.jsonl:3: no string under the key \"text\"");
        check("{\"a\": {\"text\": \"inner\"}}", "a.jsonl:3: no string under the key");
        check("{\"text\": \"\\ud800\"}", "a.jsonl:3: not valid JSON");
        check("{\"text\": \"\xff\"}", "a.jsonl:3: not valid JSON");
        check("{\"text\": \"a\"} x", "a.jsonl:3: not valid JSON");
        check(std::string("{\"text\": \"a\"}\0{\"text\": \"lost\"}", 30), "a.jsonl:3: not valid JSON at byte 14 of the line: a zero byte");
        CHECK_THROWS_WITH_AS(read_all({folder / "none.txt"}), Contains("none.txt: No such file"), InputError);
        CHECK_THROWS_WITH_AS(read_all({folder.file("z.txt.gz", "not packed")}), Contains("z.txt.gz: byte 0: not a gzip file"), InputError);
        std::string packed = folder.contents(std::filesystem::path(gz_file(folder, "p.txt.gz", std::string(100000, 'x') + "end")).filename().string());
        packed.resize(packed.size() - 9);
        CHECK_THROWS_WITH_AS(read_all({folder.file("cut.txt.gz", packed)}), Contains("cut.txt.gz: damaged gzip file near byte"), InputError);
    }

    TEST_CASE("a line longer than the chunk, and a hundred thousand nested arrays") {
        TemporaryFolder folder;
        const std::string big(3'000'000, 'x');
        CHECK(read_all({folder.file("big.jsonl", "{\"text\": \"" + big + "\"}\n{\"text\": \"y\"}\n")})[0].second == big);
        const std::string deep = std::string(100000, '[');
        CHECK_THROWS_AS(read_all({folder.file("deep.jsonl", deep + "\n")}), InputError);
    }
}
