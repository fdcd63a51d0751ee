#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "../data/byte_alphabet.h"
#include "../data/text_source.h"
#include "../data/tokenizer_json.h"
#include "../kernels/error.h"

using namespace clover;
using doctest::Contains;
using nlohmann::json;

namespace {

std::string from_hex(const std::string& digits) {
    std::string bytes;
    for (size_t i = 0; i + 1 < digits.size(); i += 2) bytes += char(std::stoi(digits.substr(i, 2), nullptr, 16));
    return bytes;
}

std::unique_ptr<Tokenizer> load_text(const std::string& file, const std::string& end = "") { return load_tokenizer_json({"tokenizer.json", file}, "t.json", end); }
std::unique_ptr<Tokenizer> load(const json& spec) { return load_text(spec.dump()); }

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    return ids;
}

using Merges = std::vector<std::pair<std::string, std::string>>;
/// Ids 0 to 255 are the bytes; merges make the ids from 256 on.
json base256(const Merges& merges = {}) {
    json vocab = json::object(), pairs = json::array();
    for (int b = 0; b < 256; b++) vocab[spelling_of_bytes(std::string(1, char(b)))] = b;
    for (const auto& [left, right] : merges) {
        const int id = int(vocab.size());
        vocab.emplace(spelling_of_bytes(left + right), id);
        pairs.push_back({spelling_of_bytes(left), spelling_of_bytes(right)});
    }
    const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    return {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", json::array()}, {"normalizer", nullptr}, {"pre_tokenizer", byte_level},
            {"post_processor", nullptr}, {"decoder", byte_level}, {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
}

json with(json spec, const char* pointer, const json& value) {
    spec[json::json_pointer(pointer)] = value;
    return spec;
}

json added(int id, const std::string& content) { return {{"id", id}, {"content", content}, {"special", true}}; }

/// aa, aaaa, aaaaaaaa (case A03).
Merges powers_of_two() { return {{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}; }

}  // namespace

TEST_SUITE("tokenizer.json") {
    TEST_CASE("ids and text are those of Hugging Face tokenizers (tests/golden/make_tokenizer_cases.py)") {
        std::istringstream lines(read_text_file(std::filesystem::path(__FILE__).parent_path() / "golden/tokenizer_cases.jsonl.gz"));
        std::unique_ptr<Tokenizer> tokenizer;
        std::string name;
        int cases = 0;
        for (std::string line; std::getline(lines, line);) {
            const json entry = json::parse(line);
            if (entry.contains("name")) {
                name = entry["name"];
                tokenizer = load(entry["tokenizer"]);
                continue;
            }
            CAPTURE(name);
            CAPTURE(entry["text"].get<std::string>());
            cases++;
            std::vector<int32_t> ids = encode(*tokenizer, from_hex(entry["text"]));
            CHECK(ids == entry["ids"].get<std::vector<int32_t>>());
            CHECK(tokenizer->decode(ids) == entry["decoded"].get<std::string>());
            CHECK(tokenizer->decode(ids, true) == entry.value("decoded_special", entry["decoded"].get<std::string>()));
            tokenizer->add_special_tokens(ids, 0);
            CHECK(ids == entry.value("with_special", entry["ids"]).get<std::vector<int32_t>>());
        }
        CHECK(cases > 900);
    }

    TEST_CASE("A02: merges in both spellings; ties; rank before position") {
        json spec = base256({{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}});
        CHECK(encode(*load(spec), "hello hello") == std::vector<int32_t>{259, 32, 259});
        spec["model"]["merges"] = {"h e", "l l", "he ll", "hell o"};
        CHECK(encode(*load(spec), "hello hello") == std::vector<int32_t>{259, 32, 259});
        spec["model"]["merges"] = {"#version: 0.2", "h e", "l l", "he ll", "hell o"};
        CHECK(encode(*load(spec), "hello hello") == std::vector<int32_t>{259, 32, 259});
        const auto aa = load(base256({{"a", "a"}}));
        CHECK(encode(*aa, "aaa") == std::vector<int32_t>{256, 'a'});
        CHECK(encode(*aa, "aaaaa") == std::vector<int32_t>{256, 256, 'a'});
        CHECK(encode(*load(base256({{"b", "c"}, {"a", "b"}})), "abc") == std::vector<int32_t>{'a', 256});

        json characters = base256();
        characters["pre_tokenizer"] = characters["decoder"] = nullptr;
        characters["model"] = {{"type", "BPE"}, {"vocab", {{"a", 0}, {" ", 1}, {"b", 2}, {"a ", 3}, {"a b", 4}}}, {"merges", json::array({json::array({"a", " "}), json::array({"a ", "b"})})}};
        CHECK(encode(*load(characters), "a ba b") == std::vector<int32_t>{4, 4});
        characters["model"]["merges"] = {"a  ", "a  b"};
        CHECK_THROWS_WITH_AS(load(characters), Contains("model.merges[0]: \"a  \" has more than one space"), InputError);
    }

    TEST_CASE("A02: lists of merges that are none") {
        const auto check = [](const json& merges, const char* message) {
            CAPTURE(merges.dump());
            CHECK_THROWS_WITH_AS(load(with(base256(), "/model/merges", merges)), Contains(message), InputError);
        };
        check(json::array({json::array({"h", "e"})}), "model.merges[0]: it makes \"he\", which is not in the vocabulary");
        check(json::array({json::array({"h", "zz"})}), "model.merges[0]: \"zz\" is not in the vocabulary");
        check(json::array({1}), "model.merges[0]: expected");
        check(json::array({"he"}), "model.merges[0]: expected");
        check(json::array({json::array({"h"})}), "expected \"LEFT RIGHT\"");
        check(json::array({json::array({"h", "e", "l"})}), "expected \"LEFT RIGHT\"");
        check(json::array({json::object()}), "model.merges[0]: expected");
        check(json::array({json::array({json::array()})}), "expected \"LEFT RIGHT\"");
        check("h e", "model.merges: is \"h e\"; expected an array");
        check(nullptr, "model.merges: is null; expected an array");
        check(json::object(), "model.merges: is an object; expected an array");
    }

    TEST_CASE("A03: one long piece") {
        const auto tokenizer = load(base256(powers_of_two()));
        CHECK(encode(*tokenizer, std::string(100'000, 'a')) == std::vector<int32_t>(12'500, 258));
        const std::vector<int32_t> ids = encode(*tokenizer, std::string(1'000'003, 'a'));
        CHECK(ids.size() == 125'002);
        CHECK(std::vector<int32_t>(ids.end() - 3, ids.end()) == std::vector<int32_t>{258, 256, 'a'});
        // Twice the length takes less than three times as long, by the best of three.
        const auto seconds = [&](const std::string& text) {
            double best = 1e9;
            for (int i = 0; i < 3; i++) {
                const auto start = std::chrono::steady_clock::now();
                encode(*tokenizer, text);
                best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
            }
            return best;
        };
        for (const char* unit : {"a", " ", "\xe6\x97\xa5", "ab"}) {
            CAPTURE(unit);
            std::string text;
            while (text.size() < 400'000) text += unit;
            const double half = seconds(text.substr(0, text.size() / 2)), whole = seconds(text);
            CHECK(whole < 3 * half + 0.02);
            CHECK(whole < 4);
        }
    }

    TEST_CASE("an incremental decoder shows whole characters, U+FFFD where there is none, and no special tokens") {
        const auto tokenizer = load(with(base256(), "/added_tokens", json::array({added(256, "<s>")})));
        const auto decoder = tokenizer->decoder();
        std::string text;
        const auto push = [&](int32_t id) {
            text.clear();
            decoder->push(id, text);
            return text;
        };
        CHECK(push('a') == "a");
        CHECK(push(0xe6).empty());
        CHECK(push(256).empty());  // does not break the character: tokenizers joins the bytes without it
        CHECK(push(0x97).empty());
        CHECK(push(0xa5) == "\xe6\x97\xa5");
        CHECK(push(0xf0).empty());
        CHECK(push(0x9f).empty());
        CHECK(push('b') == "\xef\xbf\xbd" "b");
        CHECK(push(0xff) == "\xef\xbf\xbd");
        CHECK(push(0xc3).empty());
        text.clear();
        decoder->finish(text);
        CHECK(text == "\xef\xbf\xbd");
        CHECK(tokenizer->decode({256, 'a'}, true) == "<s>a");
        CHECK_THROWS_AS(decoder->push(257, text), Error);
        CHECK(tokenizer->token_bytes(0xe6) == "\xe6");
        CHECK(tokenizer->token_bytes(256).empty());
        CHECK(tokenizer->token_name(256) == "<s>");
        CHECK(tokenizer->token_name(' ') == "\xc4\xa0");  // Ġ
    }

    TEST_CASE("ids, names and the token that ends a document") {
        const json spec = with(base256(), "/added_tokens", json::array({added(256, "</s>"), added(257, "<eot>")}));
        const auto tokenizer = load(spec);
        CHECK(tokenizer->vocab_size() == 258);
        CHECK(tokenizer->end_of_document() == 256);
        CHECK(tokenizer->find_token("<eot>") == 257);
        CHECK(tokenizer->find_token("none") == -1);
        CHECK(load_text(spec.dump(), "<eot>")->end_of_document() == 257);
        CHECK_THROWS_WITH_AS(load_text(spec.dump(), "<none>"), Contains("t.json: has no token \"<none>\""), InputError);
        CHECK(load(base256())->end_of_document() == -1);
        // A hole: no token, no text.
        json holes = base256();
        holes["model"]["vocab"]["hole"] = 299;
        CHECK(load(holes)->vocab_size() == 300);
        CHECK(load(holes)->decode({298, 'a'}) == "a");
        CHECK(load(holes)->token_bytes(298).empty());
    }

    TEST_CASE("what is not supported or wrong is named") {
        const auto check = [](const char* pointer, const json& value, const char* message) {
            CAPTURE(message);
            CHECK_THROWS_WITH_AS(load(with(base256(), pointer, value)), Contains(message), InputError);
        };
        check("/surprise", 1, "t.json.surprise: this member is not supported");
        check("/model/type", "WordPiece", "t.json: model.type: is \"WordPiece\"; only BPE is supported");
        check("/model/dropout", 0.1, "t.json: model.dropout: is 0.1");
        check("/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix: is \"</w>\"; not supported");
        check("/model/surprise", true, "model.surprise: this member is not supported");
        check("/model/unk_token", "<unk>", "model.unk_token: the vocabulary has no token \"<unk>\"");
        check("/model/vocab", 7, "model.vocab: is 7; expected an object");
        check("/model/vocab/x", "y", "the token \"x\" has no id but \"y\"");
        check("/model/vocab/x", -1, "the token \"x\" has the id -1");
        check("/model/vocab/x", 1.5, "the token \"x\" has no id but 1.5");
        check("/model/vocab/x", json::object(), "the token \"x\" is an object");
        check("/model/vocab/xyz", 7, "two tokens have the id 7");
        check("/model/vocab/xyz", 1000000000, "expected ids without large gaps");
        check("/normalizer", {{"type", "BertNormalizer"}}, "normalizer.type: is \"BertNormalizer\"; supported are NFC");
        check("/normalizer", {{"type", "NFC"}, {"strip", true}}, "normalizer.strip: this member is not supported");
        check("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "("}}}, {"content", ""}}, "normalizer.pattern: regular expression \"(\", byte 0: the group is not closed");
        check("/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer.type: is \"Metaspace\"");
        check("/post_processor", {{"type", "BertProcessing"}}, "post_processor.type: is \"BertProcessing\"");
        check("/decoder", {{"type", "WordPiece"}}, "decoder.type: is \"WordPiece\"");
        check("/added_tokens", "x", "added_tokens: is \"x\"; expected an array");
        check("/added_tokens", json::array({json::object({{"id", 256}})}), "added_tokens[0].content: is missing");
        check("/added_tokens", json::array({json::object({{"id", "x"}, {"content", "x"}})}), "added_tokens[0].id: is \"x\"");
        check("/added_tokens", json::array({json::object({{"id", 256}, {"content", "xx"}, {"surprise", 1}})}), "added_tokens[0].surprise: this member is not supported");
        check("/added_tokens", json::array({added(300, "<z>")}), "\"<z>\" has the id 300, but Hugging Face's tokenizers gives it 256");
        check("/added_tokens", json::array({added(256, "a")}), "\"a\" has the id 256, but Hugging Face's tokenizers gives it 97");
        json vanishing = with(base256(), "/normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", ""}});
        vanishing["added_tokens"] = json::array({json({{"id", 256}, {"content", "  "}, {"normalized", true}})});
        CHECK_THROWS_WITH_AS(load(vanishing), Contains("added_tokens: nothing is left of \"  \" when it is normalized"), InputError);
        CHECK_THROWS_WITH_AS(load_text("{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}, \"model\": 1}"), Contains("\"model\" is given twice"), InputError);
        CHECK_THROWS_WITH_AS(load_text("{\"a\": "), Contains("t.json: not valid JSON at byte 7"), InputError);
        CHECK_THROWS_WITH_AS(load_text("[]"), Contains("t.json: is an array, expected an object"), InputError);
        CHECK_THROWS_WITH_AS(load_text(std::string(1000000, '[')), Contains("t.json"), InputError);
        CHECK_THROWS_WITH_AS(load_text("{\"model\": " + std::string(1000000, '[')), Contains("nested more than"), InputError);
    }

    TEST_CASE("many threads at once encode as one does") {
        const auto tokenizer = load(base256({{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}}));
        std::string text;
        for (int i = 0; i < 2000; i++) text += "hello " + std::to_string(i * 7919) + (i % 3 ? " shell\n" : "");
        const std::vector<int32_t> expected = encode(*tokenizer, text);
        std::vector<std::vector<int32_t>> results(8);
        std::vector<std::thread> threads;
        for (auto& result : results)
            threads.emplace_back([&] {
                for (int i = 0; i < 5; i++) result = encode(*tokenizer, text);
            });
        for (std::thread& thread : threads) thread.join();
        for (const auto& result : results) CHECK(result == expected);
    }
}
