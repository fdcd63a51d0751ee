#include "../data/filter.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <nlohmann/json.hpp>

#include "../kernels/error.h"
#include "temporary_folder.h"

using namespace clover;
using doctest::Contains;
using test::TemporaryFolder;

namespace {

std::string json_line(const std::string& text, const std::string& more = "") { return nlohmann::json{{"text", text}}.dump().insert(1, more); }

/// 60 different words, every rule kept.
std::string good_text(int number) {
    std::string text = "The house that stood with us";
    for (int i = 0; i < 60; i++) text.append(" ").append(std::to_string(number)).append("word").append(std::to_string(i));
    return text;
}

FilterOptions options_of(const TemporaryFolder& folder, const std::vector<std::string>& inputs) {
    FilterOptions o;
    o.inputs = inputs;
    o.out = folder / "out.jsonl";
    return o;
}

const FilterRow& row(const FilterReport& report, std::string_view rule) {
    return *std::find_if(report.rows.begin(), report.rows.end(), [&](const FilterRow& r) { return r.rule.name == rule; });
}

std::string unpacked(const std::string& path) {
    gzFile in = ::gzopen(path.c_str(), "rb");
    std::string all(1 << 22, '\0');
    all.resize(size_t(::gzread(in, all.data(), unsigned(all.size()))));
    ::gzclose(in);
    return all;
}

/// The sums of the report hold, and only what was dropped has a first place.
void check_sums(const FilterReport& report) {
    int64_t documents = report.kept_documents, bytes = report.kept_bytes;
    for (const FilterRow& r : report.rows) {
        documents += r.documents;
        bytes += r.bytes;
        CHECK(r.example.empty() == (r.documents == 0));
    }
    CHECK(documents == report.documents);
    CHECK(bytes == report.bytes);
}

/// A mixture of good, bad and repeated documents.
std::string mixed_lines(int count) {
    std::string lines;
    for (int i = 0; i < count; i++) {
        const std::string text = i % 7 == 3 ? good_text(i - 3) : i % 7 == 5 ? good_text(i - 5) + " and more" : i % 11 == 10 ? "short" : good_text(i);
        lines += json_line(text) + "\n";
    }
    return lines;
}

}  // namespace

TEST_SUITE("filter") {
    TEST_CASE("what stays keeps its bytes; each dropped document is counted by the first rule it breaks") {
        const TemporaryFolder folder;
        std::string many_hashes = good_text(1) + " # # # # # # # #";
        std::string lines_twice;
        for (int i = 0; i < 30; i++) lines_twice += std::to_string(i) + "line the with house stands\n" + std::to_string(i) + "line the with house stands\n";
        const std::string first = "  {\"meta\": [1, \"\\u00e9\"], \"text\" : \"" + good_text(0) + "\", \"x\": null}\r";
        const std::string input = folder.file("in.jsonl", first + "\n\n" + json_line("few words") + "\n" + json_line(many_hashes) + "\n" + json_line(lines_twice) + "\n" +
                                                              json_line("  " + good_text(0) + "\n") + "\n" + json_line(good_text(0) + " again") + "\n" +
                                                              json_line(good_text(2), "\"n\":2,") + "\n" + json_line("few words"));
        FilterOptions o = options_of(folder, {input});
        o.report = folder / "report.json";
        const FilterReport report = filter_documents(o);
        CHECK(folder.contents("out.jsonl") == first + "\n" + json_line(good_text(2), "\"n\":2,") + "\n");
        CHECK(report.documents == 8);
        CHECK(report.kept_documents == 2);
        CHECK(report.kept_bytes == int64_t(good_text(0).size() + good_text(2).size()));
        check_sums(report);
        CHECK(row(report, "min_words").documents == 2);
        CHECK(row(report, "min_words").bytes == 18);
        CHECK(row(report, "min_words").example == input + ":3");
        CHECK(row(report, "hashes_per_word").example == input + ":4");
        CHECK(row(report, "duplicate_lines").example == input + ":5");
        CHECK(row(report, "exact_duplicate").example == input + ":6");
        CHECK(row(report, "near_duplicate").example == input + ":7");
        CHECK_FALSE(row(report, "test_set").rule.on);

        CHECK(folder.contents("report.json") == filter_json(report));
        const auto json = nlohmann::json::parse(filter_json(report));
        CHECK(json["kept_documents"] == 2);
        CHECK(json["rules"].size() == 26);
        CHECK(json["rules"][0] == nlohmann::json{{"rule", "min_words"}, {"meaning", "words that are more than punctuation, at least"}, {"on", true}, {"limit", 50.0},
                                                 {"documents", 2}, {"bytes", 18}, {"share", 0.25}, {"first", input + ":3"}});
        CHECK(filter_table(report).find("\nmin_words                               50            2  25.000 %") != std::string::npos);
        CHECK(folder.file_count() == 3);
    }

    TEST_CASE("plain text and packed files; a packed output") {
        const TemporaryFolder folder;
        std::filesystem::create_directories(folder / "in");
        folder.file("in/b.txt", good_text(1) + "\xff\n");
        folder.file("in/a.jsonl", json_line(good_text(2)));
        FilterOptions o = options_of(folder, {folder / "in"});
        o.out = folder / "out.jsonl.gz";
        CHECK(filter_documents(o).kept_documents == 2);
        const std::string expected = json_line(good_text(2)) + "\n" + json_line(good_text(1) + "\xef\xbf\xbd\n") + "\n";
        CHECK(unpacked(o.out) == expected);
        // What was written can be read, and nothing in it is dropped.
        FilterOptions again = options_of(folder, {o.out});
        CHECK(filter_documents(again).kept_documents == 2);
        CHECK(folder.contents("out.jsonl") == expected);
    }

    TEST_CASE("rules can be set and left out") {
        const TemporaryFolder folder;
        const std::string input = folder.file("in.jsonl", json_line("few") + "\n" + json_line("few") + "\n" + json_line(good_text(1)) + "\n" + json_line(good_text(1) + " more") + "\n");
        const auto kept = [&](const std::function<void(FilterOptions&)>& change) {
            FilterOptions o = options_of(folder, {input});
            change(o);
            const FilterReport report = filter_documents(o);
            check_sums(report);
            return report.kept_documents;
        };
        CHECK(kept([](FilterOptions&) {}) == 1);
        CHECK(kept([](FilterOptions& o) { o.quality = o.repetition = false; }) == 2);
        CHECK(kept([](FilterOptions& o) { o.quality = o.repetition = o.duplicates = false; }) == 4);
        CHECK(kept([](FilterOptions& o) { o.duplicates = false; }) == 2);
        CHECK(kept([](FilterOptions& o) { o.disable = {"near_duplicate"}; }) == 2);
        CHECK(kept([](FilterOptions& o) { o.set = {"near_duplicate=1"}; }) == 2);
        CHECK(kept([](FilterOptions& o) { o.set = {"min_words=67"}; }) == 1);
        CHECK(kept([](FilterOptions& o) { o.set = {"min_words=68"}; }) == 0);
        CHECK(kept([](FilterOptions& o) { o.disable = {"min_words", "stop_words"}; o.repetition = false; }) == 2);
    }

    TEST_CASE("documents like those of a test set go, alike or equal, short ones too") {
        const TemporaryFolder folder;
        const std::string input = folder.file("in.jsonl", json_line(good_text(1)) + "\n" + json_line(good_text(2) + " more") + "\n" + json_line("a  short one") + "\n" + json_line(good_text(3)) + "\n");
        FilterOptions o = options_of(folder, {input});
        o.against = {folder.file("wiki.txt", good_text(2)), folder.file("tests.jsonl", json_line("a short one") + "\n" + json_line(good_text(3)) + "\n")};
        o.quality = o.repetition = false;
        const FilterReport report = filter_documents(o);
        CHECK(folder.contents("out.jsonl") == json_line(good_text(1)) + "\n");
        CHECK(row(report, "test_set").documents == 3);
        CHECK(row(report, "test_set").example == input + ":2");
        o.disable = {"test_set"};
        CHECK(filter_documents(o).kept_documents == 4);
    }

    TEST_CASE("any number of threads gives the same bytes") {
        const TemporaryFolder folder;
        FilterOptions o = options_of(folder, {folder.file("in.jsonl", mixed_lines(2000))});
        o.report = folder / "report.json";
        std::string out, report;
        for (const int threads : {1, 2, 4}) {
            o.threads = threads;
            check_sums(filter_documents(o));
            if (threads > 1) CHECK(folder.contents("out.jsonl") == out);
            if (threads > 1) CHECK(folder.contents("report.json") == report);
            out = folder.contents("out.jsonl");
            report = folder.contents("report.json");
        }
        // By hand: short where i % 11 = 10 but for the copies, exact copies where i % 7 = 3, near ones where i % 7 = 5; an exact copy whose
        // original is short stays, and the near one is like that.
        const auto rules = nlohmann::json::parse(report)["rules"];
        int short_ones = 0, exact = 0, near = 0;
        for (int i = 0; i < 2000; i++) {
            const int base = i % 7 == 3 ? i - 3 : i - 5;
            const bool copy = i % 7 == 3 || i % 7 == 5, original = base % 11 != 10;
            short_ones += !copy && i % 11 == 10;
            exact += i % 7 == 3 && original;
            near += i % 7 == 5;
        }
        CHECK(rules[0]["documents"] == short_ones);
        CHECK(rules[23]["documents"] == exact);
        CHECK(rules[24]["documents"] == near);
    }

    TEST_CASE("bad input: one line with the place, and no file is left") {
        const TemporaryFolder folder;
        const std::string good = folder.file("good.jsonl", json_line(good_text(1)) + "\n");
        const auto refused = [&](const char* message, const std::function<void(FilterOptions&)>& change) {
            FilterOptions o = options_of(folder, {good});
            o.report = folder / "report.json";
            change(o);
            const size_t before = folder.file_count();
            CHECK_THROWS_WITH_AS(filter_documents(o), Contains(message), InputError);
            CHECK(folder.file_count() == before);
        };
        refused("none.jsonl: No such file", [&](FilterOptions& o) { o.inputs.push_back(folder / "none.jsonl"); });
        refused("none.txt: No such file", [&](FilterOptions& o) { o.against.push_back(folder / "none.txt"); });
        refused("bad.jsonl:2: ", [&](FilterOptions& o) { o.inputs.push_back(folder.file("bad.jsonl", "{\"text\":\"a\"}\n{\"text\":")); });
        refused("bad.jsonl:2: ", [&](FilterOptions& o) { o.against.push_back(folder / "bad.jsonl"); });
        refused("good.jsonl:1: no string", [](FilterOptions& o) { o.documents.key = "content"; });
        refused("--disable words: there is no rule words; the rules are min_words", [](FilterOptions& o) { o.disable = {"words"}; });
        refused("--set words=1: there is no rule words", [](FilterOptions& o) { o.set = {"words=1"}; });
        for (const char* set : {"min_words", "min_words=", "min_words=x", "min_words=-1", "min_words=nan", "min_words=1 "})
            refused("expected min_words=NUMBER", [&](FilterOptions& o) { o.set = {set}; });
        refused("near_duplicate=0.5: expected 0.7 to 1", [](FilterOptions& o) { o.set = {"near_duplicate=0.5"}; });
        refused("exact_duplicate has no limit", [](FilterOptions& o) { o.set = {"exact_duplicate=1"}; });
        refused("good.jsonl: is also an input", [&](FilterOptions& o) { o.out = good; });
        refused("good.jsonl: is also an input", [&](FilterOptions& o) { o.report = good; });
        CHECK(folder.contents("good.jsonl") == json_line(good_text(1)) + "\n");
    }

    TEST_CASE("a full disk and a folder that is not there fail and leave nothing") {
        const TemporaryFolder folder;
        FilterOptions o = options_of(folder, {folder.file("in.jsonl", mixed_lines(2000))});
        o.report = folder / "none/report.json";
        CHECK_THROWS_WITH_AS(filter_documents(o), Contains("cannot create"), Error);
        CHECK(folder.file_count() == 1);
        o.report = folder / "report.json";
        // The largest file that the process may write stands for the disk.
        struct rlimit before;
        ::getrlimit(RLIMIT_FSIZE, &before);
        const struct rlimit small = {100000, before.rlim_max};
        const auto handler = std::signal(SIGXFSZ, SIG_IGN);
        ::setrlimit(RLIMIT_FSIZE, &small);
        std::string message;
        try {
            filter_documents(o);
        } catch (const Error& e) {
            message = e.what();
        }
        ::setrlimit(RLIMIT_FSIZE, &before);
        std::signal(SIGXFSZ, handler);
        CHECK(message.find("cannot write " + o.out) != std::string::npos);
        CHECK(folder.file_count() == 1);
    }

    TEST_CASE("hostile documents, without the rules that would stop them early") {
        const TemporaryFolder folder;
        const std::string input = folder.file("in.jsonl", json_line(std::string(5'000'000, 'a')) + "\n" + json_line(std::string(1'000'000, '\n')) + "\n" +
                                                              json_line(std::string(1'000'000, '.')) + "\n");
        FilterOptions o = options_of(folder, {input});
        CHECK(filter_documents(o).kept_documents == 0);
        o.quality = false;
        o.repetition = false;
        CHECK(filter_documents(o).kept_documents == 3);
    }
}
