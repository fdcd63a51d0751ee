#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "../data/indexed_dataset.h"
#include "../data/tokenize.h"
#include "../kernels/error.h"
#include "gz_file.h"

using namespace clover;
using test::gz_file;
using test::TemporaryFolder;
using doctest::Contains;

namespace {

TokenRecord run(const std::vector<std::string>& inputs, const std::string& out, int threads = 2, bool append_eod = true) {
    TokenizeOptions options;
    options.inputs = inputs, options.out = out, options.threads = threads, options.append_eod = append_eod;
    return tokenize(*load_tokenizer("bytes"), options);
}

/// The bytes as ids, without a token that ends documents.
struct NoEnd final : Tokenizer {
    NoEnd() : Tokenizer({"none", ""}) {}
    void encode(std::string_view text, std::vector<int32_t>& ids) const override { ids.insert(ids.end(), text.begin(), text.end()); }
    std::string token_bytes(int32_t) const override { return ""; }
    std::string token_name(int32_t) const override { return ""; }
    int32_t find_token(std::string_view) const override { return -1; }
    int32_t vocab_size() const override { return 128; }
    int32_t end_of_document() const override { return -1; }
    std::unique_ptr<Decoder> decoder(bool) const override { return nullptr; }
    std::vector<std::pair<std::string, std::string>> description() const override { return {}; }
};

/// Some 3 MB in many documents, so that several batches are under way at once.
std::string many_documents(const TemporaryFolder& folder) {
    std::string lines;
    for (int i = 0; i < 3000; i++) lines += "{\"text\": \"" + std::string(size_t(i % 17 == 0 ? 0 : 1 + i * 37 % 2000), char('a' + i % 26)) + "\"}\n";
    return folder.file("many.jsonl", lines);
}

}  // namespace

TEST_SUITE("tokenize") {
    TEST_CASE("empty documents are dropped and counted; lengths hold the end tokens (A06)") {
        TemporaryFolder folder;
        const std::string path = folder.file("a.jsonl", "{\"text\": \"\"}\n{\"text\": \"ab\"}\n{\"text\": \" \"}\n{\"text\": \"c\"}\n");
        const TokenRecord record = run({path}, folder / "out");
        CHECK(record.documents == 3);
        CHECK(record.empty_documents == 1);
        CHECK(record.tokens == 7);
        CHECK(record.bytes == 4);
        CHECK(record.largest_token == 256);
        const IndexedDataset data(folder / "out");
        CHECK(data.token_count() == 7);
        for (int64_t i = 0; i < 3; i++) CHECK(data.length(i) == (i == 0 ? 3 : 2));
        const std::optional<TokenRecord> read = read_token_record(folder / "out");
        REQUIRE(read);
        CHECK(to_json(*read) == to_json(record));
        CHECK(read->end_of_document == 256);
        CHECK(run({path}, folder / "plain", 2, false).tokens == 4);
        CHECK(read_token_record(folder / "plain")->end_of_document == -1);
    }

    TEST_CASE("the same bytes for any number of threads, from one file or several, packed or not") {
        TemporaryFolder folder;
        const std::string path = many_documents(folder);
        const TokenRecord first = run({path}, folder / "out1", 1);
        const std::string bin = folder.contents("out1.bin"), idx = folder.contents("out1.idx");
        CHECK(first.documents == 3000 - 177);
        for (int threads : {2, 3, 7}) {
            run({path}, folder / "out", threads);
            CHECK(folder.contents("out.bin") == bin);
            CHECK(folder.contents("out.idx") == idx);
        }
        gz_file(folder, "many.jsonl.gz", folder.contents("many.jsonl"));
        run({folder / "many.jsonl.gz"}, folder / "out");
        CHECK(folder.contents("out.bin") == bin);
    }

    TEST_CASE("what cannot be tokenised leaves nothing behind, and what stood there") {
        TemporaryFolder folder;
        const std::string good = folder.file("good.txt", "good");
        run({good}, folder / "out");
        const std::string before = folder.contents("out.idx");
        const size_t files = folder.file_count();
        CHECK_THROWS_WITH_AS(run({folder.file("e.jsonl", "{\"text\": \"\"}\n")}, folder / "out"), Contains("no text in it (1 empty documents)"), InputError);
        CHECK_THROWS_WITH_AS(run({many_documents(folder), folder.file("b.jsonl", "{\"text\": \"x\"}\n{\n")}, folder / "out"), Contains("b.jsonl:2: not valid JSON"), InputError);
        CHECK_THROWS_WITH_AS(run({folder / "none.txt"}, folder / "out"), Contains("none.txt: No such file"), InputError);
        CHECK(folder.file_count() == files + 3);
        CHECK(folder.contents("out.idx") == before);
        TokenizeOptions options;
        options.inputs = {good}, options.out = folder / "new";
        CHECK_THROWS_WITH_AS(tokenize(NoEnd(), options), Contains("no token known to end documents; name one with --eod"), InputError);
        CHECK(!std::filesystem::exists(folder / "new.bin"));
        options.append_eod = false;
        CHECK(tokenize(NoEnd(), options).tokens == 4);
    }

    TEST_CASE("a full disk is an Error, and leaves nothing new") {
        TemporaryFolder folder;
        const std::string path = many_documents(folder);
        const size_t files = folder.file_count();
        rlimit before{}, small{1 << 20, 0};
        ::getrlimit(RLIMIT_FSIZE, &before);
        small.rlim_max = before.rlim_max;
        std::signal(SIGXFSZ, SIG_IGN);
        ::setrlimit(RLIMIT_FSIZE, &small);
        CHECK_THROWS_WITH_AS(run({path}, folder / "out"), Contains("File too large"), Error);
        ::setrlimit(RLIMIT_FSIZE, &before);
        std::signal(SIGXFSZ, SIG_DFL);
        CHECK(folder.file_count() == files);
    }

    TEST_CASE("what a killed writer left goes when the same file is written again, not what a live one holds") {
        TemporaryFolder folder;
        const std::string good = folder.file("good.txt", "good");
        folder.file("out.bin.tmp-1-0", "left");
        folder.file("out.idx.tmp-1-0", "left a moment ago");
        folder.file("other.bin.tmp-1-0", "another's");
        const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
        for (const char* name : {"out.bin.tmp-1-0", "other.bin.tmp-1-0"}) std::filesystem::last_write_time(folder / name, long_ago);
        const NewFile live(folder / "out.bin");
        for (const auto& entry : std::filesystem::directory_iterator(folder.path))
            if (entry.path().filename().string().starts_with("out.bin.tmp-") && entry.path().extension() != ".tmp-1-0") std::filesystem::last_write_time(entry, long_ago);
        run({good}, folder / "out");
        CHECK(!std::filesystem::exists(folder / "out.bin.tmp-1-0"));
        CHECK(std::filesystem::exists(folder / "out.idx.tmp-1-0"));
        CHECK(std::filesystem::exists(folder / "other.bin.tmp-1-0"));
        CHECK(folder.file_count() == 7);  // good.txt, three of out, the live one, two left
    }

    TEST_CASE("merging is tokenising in one go, byte for byte") {
        TemporaryFolder folder;
        const std::string a = folder.file("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"three\"}\n"), b = folder.file("b.txt", "four"), c = many_documents(folder);
        run({a}, folder / "a");
        run({b}, folder / "b");
        run({c}, folder / "c");
        const TokenRecord together = run({a, b, c}, folder / "all");
        merge_token_files_and_records({folder / "a", folder / "b", folder / "c"}, folder / "merged");
        CHECK(folder.contents("merged.bin") == folder.contents("all.bin"));
        CHECK(folder.contents("merged.idx") == folder.contents("all.idx"));
        CHECK(folder.contents("merged.json") == folder.contents("all.json"));
        CHECK_THROWS_WITH_AS(merge_token_files_and_records({folder / "a"}, folder / "a"), Contains("is both an input and the output"), InputError);
        IndexedDatasetWriter wide(folder / "wide", 100000);
        wide.add_document({70000});
        wide.finish();
        CHECK_THROWS_WITH_AS(merge_token_files_and_records({folder / "a", folder / "wide"}, folder / "m2"), Contains("dtype code 4"), InputError);
        CHECK(!std::filesystem::exists(folder / "m2.bin"));
        // A merge that fails takes nothing from what stood there.
        CHECK_THROWS_AS(merge_token_files_and_records({folder / "a", folder / "wide"}, folder / "merged"), InputError);
        CHECK(folder.contents("merged.json") == folder.contents("all.json"));
        // Without a record for every part there is none for the whole; of two tokenizers there is no whole.
        std::filesystem::remove(folder / "b.json");
        merge_token_files_and_records({folder / "a", folder / "b"}, folder / "merged");
        CHECK(!std::filesystem::exists(folder / "merged.json"));
        write_token_record(folder / "b", {.sources = {}, .tokenizer = "another"});
        CHECK_THROWS_WITH_AS(merge_token_files_and_records({folder / "a", folder / "b"}, folder / "merged"), Contains("was made with tokenizer another"), InputError);
    }

    TEST_CASE("info counts, and names damage") {
        TemporaryFolder folder;
        run({folder.file("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"three\"}\n")}, folder / "a");
        const auto info = nlohmann::json::parse(token_file_info(folder / "a", true));
        CHECK(info["dtype"] == "uint16");
        CHECK(info["documents"] == 2);
        CHECK(info["tokens"] == 10);
        CHECK(info["shortest"] == 4);
        CHECK(info["mean"] == 5.0);
        CHECK(info["longest"] == 6);
        CHECK(info["largest_token"] == 256);
        CHECK(info["bytes"] == 8);
        CHECK(info["tokenizer"] == "bytes");
        CHECK(token_file_info(folder / "a", false).find("documents         2\n") != std::string::npos);
        std::filesystem::resize_file(folder / "a.bin", 18);
        CHECK_THROWS_WITH_AS(token_file_info(folder / "a", true), Contains("a.idx: byte "), InputError);
    }
}
