#include <doctest/doctest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include "../data/bpe_trainer.h"
#include "../data/byte_alphabet.h"
#include "../data/tokenizer.h"
#include "../kernels/error.h"
#include "temporary_folder.h"

using namespace clover;
using doctest::Contains;
using nlohmann::json;
using test::TemporaryFolder;

namespace {

using Words = std::vector<std::pair<std::string, int64_t>>;

/// What Hugging Face's trainer made of some texts (tests/golden/make_bpe_trainer.py).
std::vector<json> golden_cases() {
    std::ifstream in(std::filesystem::path(__FILE__).parent_path() / "golden/bpe_trainer.jsonl");
    std::vector<json> cases;
    for (std::string line; std::getline(in, line);) cases.push_back(json::parse(line));
    REQUIRE(cases.size() == 16);
    return cases;
}

std::string jsonl_of(const std::vector<std::string>& documents) {
    std::string lines;
    for (const std::string& document : documents) lines += json{{"text", document}}.dump() + "\n";
    return lines;
}

BpeTraining options_of(const json& golden) {
    return {.vocab = golden["vocab"], .style = golden["style"], .special = golden["special"], .min_frequency = golden["min_frequency"]};
}

/// The tokens beyond the special ones and the bytes, in the order of their ids.
std::vector<std::string> learnt_tokens(const json& vocab, const std::vector<std::string>& special) {
    std::map<int64_t, std::string> by_id;
    for (const auto& [token, id] : vocab.items()) CHECK(by_id.emplace(id.get<int64_t>(), token).second);
    CHECK(by_id.begin()->first == 0);
    CHECK(by_id.rbegin()->first == int64_t(by_id.size()) - 1);
    std::vector<std::string> learnt;
    for (const auto& [id, token] : by_id) {
        const std::string bytes = bytes_of_spelling(token);
        const bool a_byte = bytes.size() == 1 && spelling_of_bytes(bytes) == token;
        if (!a_byte && std::find(special.begin(), special.end(), token) == special.end()) learnt.push_back(token);
    }
    return learnt;
}

/// Text in some twenty letters, a few words far more frequent than others; the same in every run.
std::vector<std::string> made_documents(int count) {
    uint64_t state = 1;
    const auto next = [&](uint64_t n) {
        state = state * 6364136223846793005 + 1442695040888963407;
        return (state >> 33) % n;
    };
    std::vector<std::string> documents;
    for (int i = 0; i < count; i++) {
        std::string text;
        for (int w = 0; w < 60; w++) {
            const uint64_t word = next(1 + next(300));
            for (uint64_t k = 0; k < 2 + word % 7; k++) text += char('a' + (word * 31 + k * k * 7 + word / 7) % 20);
            text += w % 9 == 8 ? ", " : " ";
        }
        documents.push_back(text);
    }
    return documents;
}

}  // namespace

TEST_SUITE("bpe trainer") {
    TEST_CASE("the same tokens and merges as Hugging Face's trainer, and the file encodes as its own does") {
        TemporaryFolder folder;
        for (const json& golden : golden_cases()) {
            CAPTURE(golden["documents"][0].get<std::string>());
            const BpeTrainingReport report =
                train_bpe(options_of(golden), {folder.file("a.jsonl", jsonl_of(golden["documents"]))}, folder / "tokenizer.json");
            const json file = json::parse(folder.contents("tokenizer.json"));
            CHECK(learnt_tokens(file["model"]["vocab"], golden["special"]) == golden["tokens"].get<std::vector<std::string>>());
            std::vector<std::vector<int32_t>> merges;
            for (const json& merge : file["model"]["merges"]) merges.push_back({file["model"]["vocab"].at(merge[0].get<std::string>()), file["model"]["vocab"].at(merge[1].get<std::string>())});
            CHECK(merges == golden["merges"].get<std::vector<std::vector<int32_t>>>());
            CHECK(report.merges == int64_t(merges.size()));
            CHECK(report.tokens == int64_t(file["model"]["vocab"].size()));
            CHECK(report.documents == int64_t(golden["documents"].size()));
            const auto tokenizer = load_tokenizer(folder / "tokenizer.json");
            for (const json& encoded : golden["encoded"]) {
                std::vector<int32_t> ids;
                tokenizer->encode(encoded[0].get<std::string>(), ids);
                CHECK(ids == encoded[1].get<std::vector<int32_t>>());
            }
        }
    }

    TEST_CASE("the file: members as Hugging Face lays them out, special tokens first, then the bytes by their characters") {
        TemporaryFolder folder;
        train_bpe({.vocab = 262}, {folder.file("a.txt", "the the the then")}, folder / "t.json");
        const json file = json::parse(folder.contents("t.json"));
        CHECK(file["version"] == "1.0");
        for (const char* none : {"truncation", "padding", "normalizer"}) CHECK(file.at(none).is_null());
        const json expected = {{"id", 3}, {"content", "<pad>"}, {"single_word", false}, {"lstrip", false}, {"rstrip", false}, {"normalized", false}, {"special", true}};
        CHECK(file["added_tokens"].size() == 4);
        CHECK(file["added_tokens"][3] == expected);
        CHECK(file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] == " ?[^(\\s|[.,!?…。，、।۔،])]+");
        CHECK(file["decoder"]["type"] == "ByteLevel");
        json model = file["model"];
        // BLOOM's special tokens; "!" is the first character of the alphabet, U+0100 (byte 0) comes after U+00FF, U+0143 (byte AD) last.
        for (const auto& [token, id] : std::map<std::string, int>{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"<pad>", 3}, {"!", 4}, {"~", 97}, {"¡", 98}, {"ÿ", 191}, {"Ā", 192}, {"Ġ", 224}, {"Ń", 259}})
            CHECK(model["vocab"][token] == id);
        // h e and t h both occur four times; "h" has the smaller id than "t", "e" is of no weight.
        CHECK(model["merges"] == json::parse(R"([["h", "e"], ["t", "he"]])"));
        CHECK(model["vocab"]["the"] == 261);
        model.erase("vocab"), model.erase("merges");
        CHECK(model == json{{"type", "BPE"}, {"dropout", nullptr}, {"unk_token", nullptr}, {"continuing_subword_prefix", nullptr}, {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false}, {"byte_fallback", false}, {"ignore_merges", false}});
    }

    TEST_CASE("gpt2: one special token, its own cuts; special tokens may be given") {
        TemporaryFolder folder;
        const std::string path = folder.file("a.txt", "don't won't can't");
        train_bpe({.vocab = 258, .style = "gpt2"}, {path}, folder / "t.json");
        const json file = json::parse(folder.contents("t.json"));
        CHECK(file["model"]["vocab"]["<|endoftext|>"] == 0);
        CHECK(file["model"]["merges"] == json::parse(R"([["'", "t"]])"));
        CHECK(file["pre_tokenizer"]["use_regex"] == true);
        CHECK(load_tokenizer(folder / "t.json")->end_of_document() == 0);
        train_bpe({.vocab = 258, .style = "gpt2", .special = {"[EOS]", "\"quoted\\\""}}, {path}, folder / "u.json");
        const auto tokenizer = load_tokenizer(folder / "u.json");
        CHECK(tokenizer->find_token("[EOS]") == 0);
        CHECK(tokenizer->find_token("\"quoted\\\"") == 1);
    }

    TEST_CASE("the same bytes for every number of threads and every order and packing of the documents") {
        TemporaryFolder folder;
        std::vector<std::string> documents = made_documents(300);
        const std::string all = folder.file("all.jsonl", jsonl_of(documents));
        train_bpe({.vocab = 400, .threads = 1}, {all}, folder / "1.json");
        const std::string expected = folder.contents("1.json");
        CHECK(json::parse(expected)["model"]["vocab"].size() == 400);
        for (int threads : {2, 7}) {
            train_bpe({.vocab = 400, .threads = threads}, {all}, folder / "n.json");
            CHECK(folder.contents("n.json") == expected);
        }
        std::reverse(documents.begin(), documents.end());
        const std::string first = folder.file("x.jsonl", jsonl_of({documents.begin(), documents.begin() + 50})), name = folder / "y.jsonl.gz";
        const std::string rest = jsonl_of({documents.begin() + 50, documents.end()});
        gzFile packed = ::gzopen(name.c_str(), "wb");
        CHECK(::gzwrite(packed, rest.data(), unsigned(rest.size())) == int(rest.size()));
        ::gzclose(packed);
        const BpeTrainingReport report = train_bpe({.vocab = 400, .threads = 2}, {name, first}, folder / "n.json");
        CHECK(folder.contents("n.json") == expected);
        CHECK(report.documents == 300);
        int64_t bytes = 0;
        for (const std::string& document : documents) bytes += int64_t(document.size());
        CHECK(report.bytes == bytes);
    }

    TEST_CASE("what is not UTF-8 counts as U+FFFD, as in encoding") {
        TemporaryFolder folder;
        train_bpe({.vocab = 270}, {folder.file("a.txt", "\xff \xff \xff")}, folder / "a.json");
        train_bpe({.vocab = 270}, {folder.file("b.txt", "\xef\xbf\xbd \xef\xbf\xbd \xef\xbf\xbd")}, folder / "b.json");
        CHECK(folder.contents("a.json") == folder.contents("b.json"));
        CHECK(json::parse(folder.contents("a.json"))["model"]["merges"].size() == 3);
    }

    TEST_CASE("counts beyond 32 bits; a pair below the least frequency is not merged") {
        const int64_t many = int64_t{3} << 32;
        const BpeVocabulary v = learn_merges({{"ab", many}, {"cd", many + 1}, {"ef", 4}, {"gh", 5}}, 1000, 5, {});
        CHECK(v.tokens.size() == 259);
        CHECK(std::vector<std::string>(v.tokens.begin() + 256, v.tokens.end()) == std::vector<std::string>{"cd", "ab", "gh"});
        CHECK(v.merges.size() == 3);
    }

    TEST_CASE("one word of two million letters takes seconds") {
        std::string word;
        for (uint64_t i = 0, state = 1; i < 2000000; i++) state = state * 6364136223846793005 + 1442695040888963407, word += char('A' + (state >> 60) % 4);
        const BpeVocabulary v = learn_merges({{word, 1}}, 600, 2, {});
        CHECK(v.tokens.size() == 600);
    }

    TEST_CASE("text too small for the vocabulary gives fewer tokens, which the report says") {
        TemporaryFolder folder;
        const BpeTrainingReport report = train_bpe({.vocab = 5000}, {folder.file("a.txt", "abc abc")}, folder / "t.json");
        // " abc" is a word of its own, met once.
        CHECK(report.tokens == 262);
        CHECK(report.merges == 2);
        CHECK(report.words == 2);
        CHECK(report.distinct_words == 2);
        CHECK(to_text(report, "t.json", false).find("262 tokens, 2 merges") != std::string::npos);
        CHECK(json::parse(to_text(report, "t.json", true))["tokens"] == 262);
    }

    TEST_CASE("what is wrong is named, and nothing is written") {
        TemporaryFolder folder;
        const std::string path = folder.file("a.txt", "abc"), out = folder / "t.json";
        const auto check = [&](const BpeTraining& options, const std::vector<std::string>& inputs, const char* message) {
            CHECK_THROWS_WITH_AS(train_bpe(options, inputs, out), Contains(message), InputError);
            CHECK_FALSE(std::filesystem::exists(out));
        };
        check({.vocab = 259}, {path}, "a vocabulary of 259 has no room for 4 special tokens and 256 bytes; at least 260");
        check({.vocab = -1, .style = "gpt2"}, {path}, "at least 257");
        check({.vocab = 300, .style = "gpt3"}, {path}, "no tokenizer style \"gpt3\"; expected one of bloom, gpt2");
        check({.vocab = 300, .special = {"<s>", "<e>", "<s>"}}, {path}, "<s> is given twice");
        check({.vocab = 300, .special = {""}}, {path}, "empty");
        check({.vocab = 300, .special = {"\xff"}}, {path}, "not UTF-8");
        check({.vocab = 300}, {folder.file("e.jsonl", "{\"text\": \"\"}\n\n")}, "there is no text in ");
        check({.vocab = 300}, {folder / "none.txt"}, "none.txt");
        check({.vocab = 300}, {folder.file("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n")}, "bad.jsonl:2");
        CHECK_THROWS_AS(train_bpe({.vocab = 300}, {path}, folder / "no/such/folder/t.json"), Error);
        CHECK(folder.file_count() == 3);
    }
}
