#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "../data/indexed_dataset.h"
#include "../data/text_source.h"
#include "../data/tokenizer.h"
#include "../kernels/error.h"
#include "gz_file.h"

using namespace clover;
using test::gz_file;
using test::TemporaryFolder;
using doctest::Contains;

namespace {

std::vector<std::string> documents_of(const std::string& path) {
    std::vector<std::string> documents;
    for_each_document(path, [&](std::string_view text) { documents.emplace_back(text); });
    return documents;
}

std::vector<int32_t> tokens_of(const std::string& prefix) {
    const IndexedDataset data(prefix);
    std::vector<int32_t> all;
    for (int64_t i = 0; i < data.sequence_count(); i++) {
        all.resize(all.size() + size_t(data.length(i)));
        data.read(i, 0, data.length(i), all.data() + all.size() - size_t(data.length(i)));
    }
    return all;
}

/// The bytes with another end-of-document id, to have a second fingerprint.
struct OtherTokenizer final : Tokenizer {
    OtherTokenizer() : Tokenizer({"other", ""}) {}
    void encode(std::string_view text, std::vector<int32_t>& ids) const override {
        for (unsigned char c : text) ids.push_back(c);
    }
    std::string token_bytes(int32_t) const override { return ""; }
    int32_t vocab_size() const override { return 300; }
    int32_t end_of_document() const override { return 299; }
    std::string token_name(int32_t) const override { return ""; }
    int32_t find_token(std::string_view) const override { return -1; }
    std::unique_ptr<Decoder> decoder(bool) const override { return nullptr; }
    std::vector<std::pair<std::string, std::string>> description() const override { return {}; }
};

}  // namespace

TEST_SUITE("text source") {
    TEST_CASE("a .txt file is one document, as it is, packed or not") {
        TemporaryFolder folder;
        std::string text = "A\r\n\xc3\xa9\xff";
        text += '\0';
        for (int i = 0; i < 300000; i++) text += "line " + std::to_string(i) + "\n";
        CHECK(read_text_file(folder.file("a.txt", text)) == text);
        CHECK(read_text_file(gz_file(folder, "a.txt.gz", text)) == text);
        CHECK(documents_of(folder / "a.txt.gz") == std::vector<std::string>{text});
        CHECK(read_text_file(folder.file("empty.txt", "")).empty());
    }

    TEST_CASE("JSONL: the key text, blank lines, escapes, line ends") {
        TemporaryFolder folder;
        const std::string lines =
            "{\"text\": \"one\"}\n\n  \t\r\n{\"meta\": {\"text\": \"no\", \"list\": [\"text\", {\"text\": 1}]}, \"text\": \"\\u00e9\\ud83d\\ude00\\n\", \"n\": 1e3}\r\n"
            "{\"text\":\"\"}\n{\"text\":\"last\"}";
        const std::vector<std::string> expected = {"one", "\xc3\xa9\xf0\x9f\x98\x80\n", "", "last"};
        CHECK(documents_of(folder.file("a.jsonl", lines)) == expected);
        CHECK(documents_of(gz_file(folder, "a.jsonl.gz", lines)) == expected);
    }

    TEST_CASE("JSONL: lines across the reader's chunks") {
        TemporaryFolder folder;
        std::string lines;
        std::vector<std::string> expected;
        for (int i = 0; i < 40; i++) {
            expected.push_back(std::string(size_t(i) * 9973 + 1, char('a' + i % 26)));
            lines += "{\"text\": \"" + expected.back() + "\"}\n";
        }
        CHECK(documents_of(folder.file("a.jsonl", lines)) == expected);
    }

    TEST_CASE("JSONL: what is wrong is named with file:line") {
        TemporaryFolder folder;
        const auto check = [&](const std::string& line, const char* message) {
            CAPTURE(line);
            CHECK_THROWS_WITH_AS(documents_of(folder.file("a.jsonl", "{\"text\": \"ok\"}\n\n" + line + "\n")), Contains(message), InputError);
        };
        check("{\"text\": \"a\"", "a.jsonl:3: not valid JSON at byte 13 of the line");
        check("{\"text\": \"a\"} x", "a.jsonl:3: not valid JSON at byte 15");
        check("{\"text\": \"\xff\"}", "a.jsonl:3: not valid JSON");
        check("{\"text\": \"\\ud83d\"}", "a.jsonl:3: not valid JSON");
        check("{\"TEXT\": \"a\"}", "a.jsonl:3: no string under the key \"text\"");
        check("{\"text\": 7}", "a.jsonl:3: no string");
        check("{\"text\": [\"a\"]}", "a.jsonl:3: no string");
        check("[\"text\", \"a\"]", "a.jsonl:3: no string");
        check("\"text\"", "a.jsonl:3: no string");
        check("{\"a\": {\"text\": \"deep\"}}", "a.jsonl:3: no string");
        check(std::string(1000000, '['), "a.jsonl:3: not valid JSON");
    }

    TEST_CASE("limits: a line and an unpacked file cannot take all memory") {
        TemporaryFolder folder;
        const std::string bomb = gz_file(folder, "bomb.txt.gz", std::string(5000000, ' '));
        CHECK(std::filesystem::file_size(bomb) < 10000);
        CHECK_THROWS_WITH_AS(read_text_file(bomb, 4999999), Contains("bomb.txt.gz: more than 4999999 bytes"), InputError);
        CHECK(read_text_file(bomb, 5000000).size() == 5000000);
        const std::string line = gz_file(folder, "line.jsonl.gz", std::string(256000001, ' '));
        CHECK_THROWS_WITH_AS(documents_of(line), Contains("line.jsonl.gz:1: the line has more than 256000000 bytes"), InputError);
    }

    TEST_CASE("damaged gzip files") {
        TemporaryFolder folder;
        std::string text;
        for (int i = 0; i < 5000; i++) text += std::to_string(i * 7919 % 10007) + " ";
        gz_file(folder, "good.txt.gz", text);
        const std::string packed = folder.contents("good.txt.gz");
        CHECK_THROWS_WITH_AS(read_text_file(folder.file("cut.txt.gz", packed.substr(0, packed.size() / 2))), Contains("cut.txt.gz: damaged gzip file near byte"), InputError);
        CHECK_THROWS_WITH_AS(read_text_file(folder.file("cut.txt.gz", packed.substr(0, packed.size() - 3))), Contains("damaged gzip file"), InputError);
        std::string flipped = packed;
        flipped[packed.size() / 2] = char(flipped[packed.size() / 2] ^ 0x20);
        CHECK_THROWS_WITH_AS(read_text_file(folder.file("flip.txt.gz", flipped)), Contains("flip.txt.gz: damaged gzip file"), InputError);
        CHECK_THROWS_WITH_AS(read_text_file(folder.file("plain.txt.gz", text)), Contains("plain.txt.gz: byte 0: not a gzip file"), InputError);
        CHECK_THROWS_WITH_AS(read_text_file(folder.file("empty.txt.gz", "")), Contains("not a gzip file"), InputError);
        CHECK_THROWS_WITH_AS(read_text_file(folder / "none.txt.gz"), Contains("none.txt.gz: No such file"), InputError);
        CHECK_THROWS_WITH_AS(documents_of(folder.file("a.md", text)), Contains("expected .txt or .jsonl"), InputError);
    }

    TEST_CASE("empty documents are dropped and counted, a blank is text; each document ends with the end token") {
        TemporaryFolder folder;
        const auto tokenizer = load_tokenizer("bytes");
        const std::string path = folder.file("a.jsonl", "{\"text\":\"\"}\n{\"text\":\"ab\"}\n{\"text\":\" \"}\n{\"text\":\"c\"}\n");
        const std::string prefix = resolve_token_file(path, *tokenizer, folder / "cache");
        CHECK(prefix.starts_with(folder / "cache/a-"));
        CHECK(prefix.size() == (folder / "cache/a-").size() + 16);
        const IndexedDataset data(prefix);
        for (int64_t d = 0; d < 3; d++) CHECK(data.length(d) == (d == 0 ? 3 : 2));
        for (int64_t d = 0; d <= 3; d++) CHECK(data.first_sequence(d) == d);
        CHECK(data.dtype_code() == 8);
        CHECK(tokens_of(prefix) == std::vector<int32_t>{'a', 'b', 256, ' ', 256, 'c', 256});
        const auto record = nlohmann::json::parse(read_text_file(prefix + ".json"));
        CHECK(record["documents"] == 3);
        CHECK(record["bytes"] == 4);
        CHECK(record["tokens"] == 7);
        CHECK(record["empty_documents"] == 1);
        CHECK(token_file_tokenizer(prefix) == "bytes");
        // A token file stands for itself.
        CHECK(resolve_token_file(prefix, *tokenizer, folder / "cache") == prefix);
        CHECK_THROWS_WITH_AS(resolve_token_file(prefix, OtherTokenizer(), folder / "cache"), Contains("was made with tokenizer bytes, but the run's is other-"), InputError);
        std::filesystem::remove(prefix + ".json");
        CHECK(token_file_tokenizer(prefix).empty());
        CHECK(resolve_token_file(prefix, OtherTokenizer(), folder / "cache") == prefix);
    }

    TEST_CASE("nothing to tokenise is an error that leaves nothing behind") {
        TemporaryFolder folder;
        const auto tokenizer = load_tokenizer("bytes");
        const auto resolve = [&](const std::string& path) { resolve_token_file(path, *tokenizer, folder / "cache"); };
        CHECK_THROWS_WITH_AS(resolve(folder.file("a.jsonl", "{\"text\":\"\"}\n{\"text\":\"\"}\n")), Contains("no text in it (2 empty documents)"), InputError);
        CHECK_THROWS_WITH_AS(resolve(folder.file("b.txt", "")), Contains("b.txt: the file is empty"), InputError);
        CHECK_THROWS_WITH_AS(resolve(folder / "none.txt"), Contains("neither a text file of that name nor the token file"), InputError);
        std::filesystem::create_directories(folder / "empty");
        CHECK_THROWS_WITH_AS(resolve(folder / "empty"), Contains("no .txt or .jsonl file"), InputError);
        CHECK_THROWS_WITH_AS(resolve(folder.file("c.bin", "x")), Contains("expected .txt or .jsonl"), InputError);
        CHECK_THROWS_WITH_AS(resolve(folder.file("d.jsonl", "{\"text\":\"good\"}\n{")), Contains("d.jsonl:2: not valid JSON"), InputError);
        CHECK(folder.file_count() == 4);
        CHECK_THROWS_WITH_AS(resolve_token_file(folder.file("e.txt", "x"), *tokenizer, folder / "e.txt/cache"), Contains("cannot create the folder"), InputError);
    }

    TEST_CASE("the cache is used until source, time, tokenizer or the cached file itself change") {
        TemporaryFolder folder;
        const auto tokenizer = load_tokenizer("bytes");
        const std::string path = folder.file("a.txt", "one"), cache = folder / "cache";
        const auto resolve = [&] { return resolve_token_file(path, *tokenizer, cache); };
        const auto written = [](const std::string& prefix) { return std::filesystem::last_write_time(prefix + ".idx"); };
        const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
        const std::string prefix = resolve();
        // Used: not written again.
        std::filesystem::last_write_time(prefix + ".idx", long_ago);
        CHECK(resolve() == prefix);
        CHECK(written(prefix) == long_ago);
        // Same size, other time.
        folder.file("a.txt", "two");
        std::filesystem::last_write_time(path, long_ago);
        CHECK(resolve() == prefix);
        CHECK(tokens_of(prefix) == std::vector<int32_t>{'t', 'w', 'o', 256});
        // Same time, other size.
        folder.file("a.txt", "three");
        std::filesystem::last_write_time(path, long_ago);
        CHECK(tokens_of(resolve()).size() == 6);
        // Another tokenizer has a file of its own.
        const std::string other = resolve_token_file(path, OtherTokenizer(), cache);
        CHECK(other != prefix);
        CHECK(tokens_of(other).back() == 299);
        // Damage.
        folder.file("cache/" + std::filesystem::path(prefix).filename().string() + ".bin", "xx");
        CHECK(tokens_of(resolve()) == std::vector<int32_t>{'t', 'h', 'r', 'e', 'e', 256});
        for (const char* record : {"", "[]", "{}", "{\"source\": 1"}) {
            folder.file("cache/" + std::filesystem::path(prefix).filename().string() + ".json", record);
            std::filesystem::last_write_time(prefix + ".idx", long_ago);
            CHECK(resolve() == prefix);
            CHECK(written(prefix) != long_ago);
        }
        CHECK(folder.file_count() == 7);
    }

    TEST_CASE("a folder is tokenised as one set, and again when a file in it changes") {
        TemporaryFolder folder;
        const auto tokenizer = load_tokenizer("bytes");
        std::filesystem::create_directories(folder / "texts/more");
        folder.file("texts/more/b.jsonl", "{\"text\": \"b\"}\n");
        folder.file("texts/a.txt", "a");
        const std::string prefix = resolve_token_file(folder / "texts", *tokenizer, folder / "cache");
        CHECK(tokens_of(prefix) == std::vector<int32_t>{'a', 256, 'b', 256});
        folder.file("texts/more/c.txt", "c");
        CHECK(resolve_token_file(folder / "texts", *tokenizer, folder / "cache") == prefix);
        CHECK(tokens_of(prefix) == std::vector<int32_t>{'a', 256, 'b', 256, 'c', 256});
    }

    TEST_CASE("same names in two folders do not meet in the cache; several at once agree") {
        TemporaryFolder folder;
        const auto tokenizer = load_tokenizer("bytes");
        std::filesystem::create_directories(folder / "x");
        std::filesystem::create_directories(folder / "y");
        const std::string x = folder.file("x/a.txt", "x"), y = folder.file("y/a.txt", "y");
        std::vector<std::string> prefixes(8);
        std::vector<std::thread> threads;
        for (size_t i = 0; i < 8; i++)
            threads.emplace_back([&, i] { prefixes[i] = resolve_token_file(i % 2 ? y : x, *tokenizer, folder / "cache"); });
        for (auto& thread : threads) thread.join();
        CHECK(prefixes[0] != prefixes[1]);
        for (size_t i = 2; i < 8; i++) CHECK(prefixes[i] == prefixes[i - 2]);
        CHECK(tokens_of(prefixes[0]) == std::vector<int32_t>{'x', 256});
        CHECK(tokens_of(prefixes[1]) == std::vector<int32_t>{'y', 256});
        CHECK(folder.file_count() == 8);
    }

    TEST_CASE("who finds the cache locked waits") {
        TemporaryFolder folder;
        const auto tokenizer = load_tokenizer("bytes");
        const std::string path = folder.file("a.txt", "a");
        std::filesystem::create_directories(folder / "cache");
        const int lock = ::open((folder / "cache").c_str(), O_RDONLY | O_DIRECTORY);
        REQUIRE(::flock(lock, LOCK_EX) == 0);
        std::atomic<bool> done = false;
        std::thread other([&] {
            resolve_token_file(path, *tokenizer, folder / "cache");
            done = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        CHECK_FALSE(done);
        ::close(lock);
        other.join();
        CHECK(done);
    }
}
