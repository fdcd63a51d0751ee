// Against the reference programs: those installed here (case A05, on a corpus made in the test), and the golden cases of make_sentencepiece_cases.py.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <sstream>

#include "../data/sentencepiece.h"
#include "../data/text_source.h"
#include "../kernels/error.h"
#include "temporary_folder.h"

using namespace clover;
using test::TemporaryFolder;
using doctest::Contains;

namespace {

using Ids = std::vector<int32_t>;

Ids encoded(const Tokenizer& tokenizer, std::string_view text) {
    Ids ids;
    tokenizer.encode(text, ids);
    return ids;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

Ids ids_of(const std::string& text) {
    Ids ids;
    std::istringstream in(text);
    for (int32_t id; in >> id;) ids.push_back(id);
    return ids;
}

std::string pieces_of(const Tokenizer& tokenizer, const Ids& ids) {
    std::string out;
    for (int32_t id : ids) {
        if (!out.empty()) out += ' ';
        out += tokenizer.token_name(id);
    }
    return out;
}

std::string streamed(Decoder& decoder, const Ids& ids) {
    std::string text;
    for (int32_t id : ids) decoder.push(id, text);
    decoder.finish(text);
    return text;
}

// ---- The programs of Debian's package sentencepiece ----------------------------------------------------------------

void run_program(const std::string& command) {
    const int status = std::system((command + " 2>/dev/null").c_str());
    if (status != 0) FAIL("\"", command, "\" ended with ", status, "; is Debian's package sentencepiece installed? (make deps)");
}

struct Trained {
    TemporaryFolder folder;
    std::string model = folder / "m.model";

    explicit Trained(const std::string& options, int vocabulary = 340) {
        std::mt19937 random(5);
        std::string corpus;
        std::vector<std::string> words = {"hello", "world", "lower", "lowest", "newer", "wider"};
        for (int i = 0; i < 300; i++) {
            std::string word;
            for (size_t n = 2 + random() % 8; n > 0; n--) word += "etaoinshrdlucmfwypvbgkjqxz"[std::min(random() % 26, random() % 26)];
            words.push_back(word);
        }
        for (int line = 0; line < 2000; line++) {
            for (size_t n = 3 + random() % 8; n > 0; n--) corpus += words[std::min(random() % words.size(), random() % words.size())] + (n > 1 ? " " : "\n");
        }
        run_program("spm_train --input=" + folder.file("corpus", corpus) + " --model_prefix=" + (folder / "m") + " --vocab_size=" + std::to_string(vocabulary) +
                    " --hard_vocab_limit=false --num_threads=1 --minloglevel=2 " + options);
    }
    std::vector<Ids> reference_ids(const std::vector<std::string>& texts) const {
        std::string input;
        for (const std::string& text : texts) input += text + "\n";
        run_program("spm_encode --model=" + model + " --output_format=id < " + folder.file("in", input) + " > " + (folder / "out"));
        std::vector<Ids> all;
        for (const std::string& line : lines_of(folder.contents("out"))) all.push_back(ids_of(line));
        return all;
    }
    /// What spm_decode makes of pieces separated by spaces.
    std::string reference_text(const std::string& pieces) const {
        run_program("spm_decode --model=" + model + " < " + folder.file("in", pieces + "\n") + " > " + (folder / "out"));
        const std::string out = folder.contents("out");
        return out.substr(0, out.size() - 1);
    }
};

Ids ids_of_pieces(const Tokenizer& tokenizer, const std::string& pieces) {
    Ids ids;
    std::istringstream in(pieces);
    for (std::string piece; in >> piece;) {
        ids.push_back(tokenizer.find_token(piece));
        REQUIRE(ids.back() >= 0);
    }
    return ids;
}

std::vector<std::string> texts_of_a05() {
    std::vector<std::string> texts = {"hello  world ", " hello", "", "hello\r", "\xe2\x96\x81lower", "f\xc3\xa9 f", "\xff\xfe", "caf\xc3\xa9\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87"};
    std::mt19937 random(6);
    for (int i = 0; i < 400; i++) {
        std::string text;
        for (size_t n = 1 + random() % 40; n > 0; n--) text += char(random() % 6 == 0 ? ' ' : 'a' + random() % 26);
        texts.push_back(text);
    }
    return texts;
}

void check_against_reference(const std::string& options) {
    CAPTURE(options);
    const Trained trained(options);
    const auto tokenizer = load_tokenizer(trained.model);
    const std::vector<std::string> texts = texts_of_a05();
    const std::vector<Ids> reference = trained.reference_ids(texts);
    REQUIRE(reference.size() == texts.size());
    for (size_t i = 0; i < texts.size(); i++) {
        CAPTURE(texts[i]);
        CHECK(encoded(*tokenizer, texts[i]) == reference[i]);
    }
}

// ---- Hand-made models ---------------------------------------------------------------------------------------------

std::string varint(uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out += char(value | 0x80);
    return out + char(value);
}
std::string field(int number, const std::string& bytes) { return varint(uint64_t(number) << 3 | 2) + varint(bytes.size()) + bytes; }
std::string field(int number, uint64_t value) { return varint(uint64_t(number) << 3) + varint(value); }
std::string piece(const std::string& text, float score = 0, int type = 1) {
    std::string bytes(4, '\0');
    std::memcpy(bytes.data(), &score, 4);
    return field(1, field(1, text) + varint(2 << 3 | 5) + bytes + field(3, uint64_t(type)));
}
const std::string unknown = piece("<unk>", 0, 2);
std::string trainer(int kind) { return field(2, field(3, uint64_t(kind))); }
/// identity, no dummy prefix, spaces kept.
const std::string plain = field(3, field(3, 0) + field(4, 0));
constexpr int unigram = 1, bpe = 2;

std::unique_ptr<Tokenizer> load(const std::string& contents) { return load_sentencepiece({"tokenizer.model", contents}, "m.model"); }

double seconds_to_encode(const Tokenizer& tokenizer, const std::string& text, Ids& ids) {
    const auto begin = std::chrono::steady_clock::now();
    ids = encoded(tokenizer, text);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_SUITE("sentencepiece") {
    TEST_CASE("golden cases: ids of spm_encode, texts of spm_decode, the same in a stream") {
        int models = 0, cases = 0;
        for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(__FILE__).parent_path() / "golden")) {
            const std::string path = entry.path().string(), ending = ".cases.gz";
            if (path.find("/sentencepiece-") == std::string::npos || !path.ends_with(ending)) continue;
            models++;
            CAPTURE(path);
            const auto tokenizer = load_tokenizer(path.substr(0, path.size() - ending.size()) + ".model.gz");
            const auto decoder = tokenizer->decoder();
            const auto bytes_of = [](const std::string& hex) {
                std::string bytes;
                for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
                return bytes;
            };
            for (const std::string& line : lines_of(read_text_file(path))) {
                const size_t first = line.find('\t'), second = line.find('\t', first + 1);
                const Ids ids = ids_of(line.substr(first + 1, second - first - 1));
                CAPTURE(line);
                if (line[0] != '-') CHECK(encoded(*tokenizer, bytes_of(line.substr(0, first))) == ids);
                const std::string text = bytes_of(line.substr(second + 1));
                CHECK(tokenizer->decode(ids) == text);
                CHECK(streamed(*decoder, ids) == text);
                cases++;
            }
        }
        CHECK(models == 8);
        CHECK(cases > 2000);
    }

    TEST_CASE("case A05: models trained here, ids of spm_encode") {
        for (const std::string type : {"bpe", "unigram"}) {
            check_against_reference("--model_type=" + type + " --byte_fallback=true");
            check_against_reference("--model_type=" + type + " --byte_fallback=false");
            check_against_reference("--model_type=" + type + " --byte_fallback=true --normalization_rule_name=identity --remove_extra_whitespaces=false");
        }
    }

    TEST_CASE("case A05: the facts, with the default flags") {
        const Trained trained("--model_type=bpe --byte_fallback=true", 600);
        const auto tokenizer = load_tokenizer(trained.model);
        const auto pieces = [&](std::string_view text) { return pieces_of(*tokenizer, encoded(*tokenizer, text)); };
        CHECK(pieces("hello  world ") == "\xe2\x96\x81hello \xe2\x96\x81world");
        CHECK(pieces(" hello") == pieces("hello\r"));
        CHECK(pieces("").empty());
        CHECK(pieces("\xe2\x96\x81lower") == pieces("lower"));  // nmt_nfkc makes U+2581 a space
        CHECK(pieces("\xc3\xa9") == "\xe2\x96\x81 <0xC3> <0xA9>");
        CHECK(pieces("\xff\xfe") == "\xe2\x96\x81 <0xEF> <0xBF> <0xBD> <0xEF> <0xBF> <0xBD>");
        const std::pair<std::string, std::string> texts[] = {{"\xe2\x96\x81hello \xe2\x96\x81world", "hello world"},
                                                             {"\xe2\x96\x81 \xe2\x96\x81hello", "hello"},
                                                             {"\xe2\x96\x81 <0xC3> <0xA9>", "\xc3\xa9"},
                                                             {"<0xC3> a", "\xef\xbf\xbd" "a"},
                                                             {"<s> \xe2\x96\x81hello </s>", "hello"}};
        for (const auto& [from, text] : texts) {
            CHECK(tokenizer->decode(ids_of_pieces(*tokenizer, from)) == text);
            CHECK(trained.reference_text(from) == text);
        }
        CHECK(tokenizer->decode(ids_of_pieces(*tokenizer, "<s> \xe2\x96\x81hello </s>"), true) == "<s>hello</s>");
        CHECK(tokenizer->end_of_document() == 2);
        CHECK(tokenizer->token_bytes(2).empty());
        CHECK(tokenizer->token_bytes(0).empty());
        CHECK(tokenizer->token_bytes(tokenizer->find_token("<0x00>")) == std::string(1, '\0'));
        CHECK(tokenizer->token_bytes(tokenizer->find_token("\xe2\x96\x81hello")) == " hello");
        CHECK(tokenizer->find_token("no such piece") == -1);
        CHECK(load_tokenizer(trained.model, "<s>")->end_of_document() == 1);
        CHECK_THROWS_WITH_AS(load_tokenizer(trained.model, "<eot>"), Contains("has no token \"<eot>\""), InputError);
    }

    TEST_CASE("case A05: the facts, with identity normalization and spaces kept; without byte pieces") {
        const Trained trained("--model_type=bpe --byte_fallback=true --normalization_rule_name=identity --remove_extra_whitespaces=false", 600);
        const auto tokenizer = load_tokenizer(trained.model);
        const std::string space = "\xe2\x96\x81";
        const Ids ids = encoded(*tokenizer, "  hello  world ");
        CHECK(pieces_of(*tokenizer, ids) == space + " " + space + " " + space + "hello " + space + " " + space + "world " + space);
        CHECK(tokenizer->decode(ids) == "  hello  world ");
        CHECK(pieces_of(*tokenizer, encoded(*tokenizer, "\r")) == space + " <0x0D>");
        CHECK(tokenizer->decode(ids_of_pieces(*tokenizer, space + " " + space + "hello")) == " hello");
        const Trained without("--model_type=bpe");
        const auto no_bytes = load_tokenizer(without.model);
        const Ids run = encoded(*no_bytes, "\xc3\xa9\xc3\xa8\xc3\xaa\xe4\xb8\xad");
        CHECK(run == Ids{no_bytes->find_token(space), 0});
        CHECK(no_bytes->decode({0}) == " \xe2\x81\x87 ");
    }

    TEST_CASE("case A03: time is linear in the length of one word") {
        std::string letters;
        for (char c = 'a'; c <= 'z'; c++) letters += piece(std::string(1, c), -50.f - float(c));
        for (int kind : {bpe, unigram}) {
            CAPTURE(kind);
            const auto tokenizer = load(unknown + letters + piece("aa", -1) + piece("aaaa", -2) + piece("aaaaaaaa", -3) + piece("th", -4) + piece("the", -5) +
                                        piece("\xe2\x96\x81", -9) + piece("\xe2\x96\x81\xe2\x96\x81", -8) + piece("\xe4\xb8\xad", -9) +
                                        piece("\xe4\xb8\xad\xe4\xb8\xad", -9) + trainer(kind) + plain);
            Ids ids;
            const double seconds = seconds_to_encode(*tokenizer, std::string(1'000'003, 'a'), ids);
            CHECK(seconds < 10);
            CHECK(ids.size() == 125'002);
            const int32_t a = tokenizer->find_token("a");
            if (kind == bpe) CHECK(Ids(ids.end() - 3, ids.end()) == Ids{tokenizer->find_token("aaaaaaaa"), tokenizer->find_token("aa"), a});
            std::mt19937 random(3);
            std::string text;
            for (int i = 0; i < 1'000'000; i++) text += char('a' + random() % 26);
            CHECK(seconds_to_encode(*tokenizer, text, ids) < 10);
            CHECK(tokenizer->decode(ids) == text);
            CHECK(seconds_to_encode(*tokenizer, std::string(1'000'000, ' '), ids) < 10);
            CHECK(ids.size() == 500'000);
            text.clear();
            for (int i = 0; i < 333'334; i++) text += "\xe4\xb8\xad";
            CHECK(seconds_to_encode(*tokenizer, text, ids) < 10);
            CHECK(ids.size() == 166'667);
            double best[2] = {1e9, 1e9};
            for (int repeat = 0; repeat < 3; repeat++)
                for (int i = 0; i < 2; i++) best[i] = std::min(best[i], seconds_to_encode(*tokenizer, std::string(size_t(400'000) << i, 'a'), ids));
            CHECK(best[1] / best[0] < 3);
        }
    }

    TEST_CASE("user-defined pieces win, control pieces are never read from text, unused pieces are taken apart") {
        // ids from spm_encode 0.1.97 on the same model
        const std::string pieces = unknown + piece("<s>", 0, 3) + piece("a", -1) + piece("b", -2) + piece("c", -3) + piece("ab", -2.5) + piece("abc", -5, 5) + piece("bc", 0, 4);
        const auto merging = load(pieces + trainer(bpe) + plain), likely = load(pieces + trainer(unigram) + plain);
        CHECK(encoded(*merging, "abcab<s>") == Ids{2, 7, 5, 0});
        CHECK(encoded(*likely, "abcab<s>") == Ids{2, 7, 5, 0});
        const std::string unused = unknown + piece("a", -1) + piece("b", -2) + piece("c", -3) + piece("ab", -2.5) + piece("abc", 0, 5);
        CHECK(encoded(*load(unused + trainer(bpe) + plain), "abc") == Ids{4, 3});
        CHECK(encoded(*load(unused + trainer(unigram) + plain), "abc") == Ids{4, 3});
    }

    TEST_CASE("a stream shows no half character and nothing that later changes") {
        std::string bytes;
        char name[8];
        for (int i = 0; i < 256; i++) std::snprintf(name, sizeof name, "<0x%02X>", unsigned(i)), bytes += piece(name, 0, 6);
        const auto tokenizer = load(unknown + piece("a", -1) + bytes + field(2, field(3, uint64_t(bpe)) + field(35, 1)) + plain);
        const auto decoder = tokenizer->decoder();
        const auto byte = [](int value) { return 2 + value; };
        std::string text;
        for (int value : {0xf0, 0x9f, 0x98}) decoder->push(byte(value), text);
        CHECK(text.empty());
        decoder->push(byte(0x80), text);
        CHECK(text == "\xf0\x9f\x98\x80");
        decoder->push(byte(0xe4), text);
        decoder->push(1, text);  // "a": the E4 will not be a character
        CHECK(text == "\xf0\x9f\x98\x80\xef\xbf\xbd" "a");
        decoder->push(byte(0xc3), text);
        decoder->finish(text);
        CHECK(text == "\xf0\x9f\x98\x80\xef\xbf\xbd" "a\xef\xbf\xbd");
        CHECK_THROWS_AS(decoder->push(tokenizer->vocab_size(), text), Error);
        CHECK_THROWS_AS(tokenizer->token_bytes(-1), Error);
    }

    TEST_CASE("what is wrong with a file is said") {
        const auto refusal = [](const std::string& contents) -> std::string {
            try {
                load(contents);
            } catch (const InputError& e) {
                return e.what();
            }
            return "";
        };
        CHECK(refusal(unknown + piece("a")).empty());
        CHECK(refusal(piece("a")) == "m.model: no piece is of type UNKNOWN, expected one");
        CHECK(refusal(trainer(bpe)).find("holds no pieces") != std::string::npos);
        CHECK(refusal(unknown + piece("<u>", 0, 2)).find("pieces 0 and 1 are both of type UNKNOWN") != std::string::npos);
        CHECK(refusal(unknown + piece("a") + piece("a")).find("pieces 1 and 2 are both \"a\"") != std::string::npos);
        CHECK(refusal(unknown + piece("")).find("piece 1 is empty") != std::string::npos);
        CHECK(refusal(unknown + piece("a", NAN)).find("expected a finite number") != std::string::npos);
        CHECK(refusal(unknown + piece("\xc3")).find("piece 1, \"\\xc3\", is not UTF-8") != std::string::npos);
        CHECK(refusal(unknown + piece(std::string(1025, 'a'))).find("at most 1024") != std::string::npos);
        CHECK(refusal(unknown + piece("<0x41>", 0, 6)).find("byte_fallback is false") != std::string::npos);
        CHECK(refusal(unknown + field(2, field(35, 1))).find("the piece of byte 0 is missing") != std::string::npos);
        CHECK(refusal(unknown + piece("a", 0, 7)).find("piece type 7 is not known") != std::string::npos);
        CHECK(refusal(unknown + trainer(5)).find("model_type 5 is not known") != std::string::npos);
        CHECK(refusal(unknown + piece("a") + field(5, field(2, std::string("map")))).find("denormalizer_spec changes spaces") != std::string::npos);
        CHECK(refusal("no model").find("m.model: byte ") == 0);
    }

    TEST_CASE("a charsmap that points outside, loops or is cut short is refused") {
        const auto refusal = [](const std::vector<uint32_t>& units, const std::string& strings) -> std::string {
            const uint32_t bytes = uint32_t(units.size() * 4);
            const std::string map = std::string(reinterpret_cast<const char*>(&bytes), 4) + std::string(reinterpret_cast<const char*>(units.data()), bytes) + strings;
            try {
                const auto tokenizer = load(unknown + piece("a") + field(3, field(2, map) + field(3, 0)));
                return pieces_of(*tokenizer, encoded(*tokenizer, "b"));
            } catch (const InputError& e) {
                return e.what();
            }
        };
        // Root: offset 1. Unit 1 XOR 'b' = 'c' has label 'b'. With a leaf and offset 2 its value lies at 'c' XOR 2 = 'a'.
        std::vector<uint32_t> units(256, 0x80000000);  // no byte's label
        units[0] = 1 << 10;
        units['c'] = 'b' | 1 << 8 | 2 << 10;
        units['a'] = 0x80000000;
        CHECK(refusal(units, std::string("a\0", 2)) == "a");
        CHECK(refusal(units, "a").find("not ended by a zero byte") != std::string::npos);
        CHECK(refusal(units, std::string(300, 'a') + std::string(1, '\0')).find("a replacement of precompiled_charsmap has 300 bytes") != std::string::npos);
        units['a'] = 0x80000005;
        CHECK(refusal(units, std::string("a\0", 2)).find("outside of the replacements") != std::string::npos);
        units['c'] = 'b' | 5000 << 10;
        CHECK(refusal(units, std::string("a\0", 2)).find("outside of the trie") != std::string::npos);
        units['c'] = 'b' | ('c' ^ 1) << 10;  // back to where 'b' was found
        CHECK(refusal(units, std::string("a\0", 2)).find("or a loop") != std::string::npos);
    }
}
