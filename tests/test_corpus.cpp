#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "../data/corpus.h"
#include "../data/manual.h"
#include "../data/text_source.h"
#include "../kernels/error.h"
#include "temporary_folder.h"

using namespace clover;
using test::TemporaryFolder;
using doctest::Contains;

namespace {

/// What is written to stderr while it lives goes to a file.
class Stderr {
public:
    explicit Stderr(const TemporaryFolder& folder) : path_(folder / "stderr"), before_(::dup(2)) {
        std::fflush(stderr);
        const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        ::dup2(fd, 2);
        ::close(fd);
    }
    ~Stderr() {
        std::fflush(stderr);
        ::dup2(before_, 2);
        ::close(before_);
    }
    std::string text() const {
        std::fflush(stderr);
        return read_text_file(path_);
    }

private:
    std::string path_;
    int before_;
};

/// Writes a list whose patterns lie in the folder; "$" stands for its path.
std::string list_file(const TemporaryFolder& folder, std::string toml) {
    for (size_t at = 0; (at = toml.find('$')) != std::string::npos;) toml.replace(at, 1, folder.path.string());
    return folder.file("list.toml", toml);
}

void make_folders(const TemporaryFolder& folder, std::initializer_list<const char*> names) {
    for (const char* name : names) std::filesystem::create_directories(folder / name);
}

std::vector<std::string> documents_of(const std::string& prefix) {
    std::vector<std::string> documents;
    for_each_document(prefix + ".jsonl", [&](std::string_view document) { documents.emplace_back(document); });
    return documents;
}

std::vector<std::string> all_documents(const std::string& prefix) {
    std::vector<std::string> all = documents_of(prefix + ".train");
    for (std::string& document : documents_of(prefix + ".valid")) all.push_back(std::move(document));
    std::sort(all.begin(), all.end());
    return all;
}

std::vector<CorpusRow> prepare(const TemporaryFolder& folder, const std::string& list) {
    return prepare_corpus(list, folder / "out");
}

}  // namespace

TEST_SUITE("corpus") {
    TEST_CASE("headings as the manuals have them") {
        for (const char* line : {"2.1.3. Laptops", "2.1.3.\u00a0Laptops", "B.4.12. Finishing up", "3. Über dieses Dokument", "Chapter 2. System Requirements",
                                 "Chapitre\u00a03.\u00a0Avant d'installer", "Κεφάλαιο 3. Πριν", "第3章 Debian GNU/Linux のインストール前に", "第\u00a03\u00a0章\u00a0开始安装",
                                 "3장. 데비안", "Appendix F. GNU General Public License", "10.2.1.\u3000標題"}) {
            CAPTURE(std::string(line));
            CHECK(is_heading(line));
        }
        for (const char* line : {"", "Table 1.7. List of groups", "    2.1.3. Laptops", "In 1993 it began.", "See passwd(5), group(5)", "2.1.3.", "2.1.3. ", "Abstract",
                                 "1.5 times as much", "| 2. x |", "Version 12.4. of this", "---------"}) {
            CAPTURE(std::string(line));
            CHECK_FALSE(is_heading(line));
        }
    }

    TEST_CASE("a manual is cut at headings, small sections joined, without a gap") {
        const std::string paragraph = "    " + std::string(60, 'x') + "\n\n";
        std::string toc = "Contents\n\n", body;
        for (int i = 1; i <= 30; i++) {
            toc += std::to_string(i) + ".1. Section\n";
            body += "Chapter " + std::to_string(i) + ". A chapter\n\n" + std::to_string(i) + ".1. Section\n\n";
            for (int k = 0; k < i; k++) body += paragraph;
        }
        const std::string text = toc + "\n" + body;
        const auto documents = cut_manual(text, 500, 1500);
        std::string together;
        for (std::string_view document : documents) {
            CHECK(document.size() <= 1500);
            together += document;
        }
        CHECK(together == text);
        // The table of contents is one section, joined by what follows it; the large chapters are cut once or not at all.
        CHECK(documents[0].starts_with("Contents"));
        CHECK(documents[0].size() >= 500);
        for (size_t i = 1; i < documents.size(); i++) CHECK((is_heading(documents[i].substr(0, documents[i].find('\n'))) || documents[i].starts_with("    x")));
        CHECK(documents.size() > 20);
        CHECK(documents.size() < 50);
    }

    TEST_CASE("sections without paragraphs or lines are still bounded; characters stay whole") {
        std::string text;
        for (int i = 0; i < 1000; i++) text += "é";
        std::string together;
        for (std::string_view piece : cut_manual(text, 100, 333)) {
            CHECK(piece.size() == (piece.data() == text.data() + 6 * 332 ? 8 : 332));
            together += piece;
        }
        CHECK(together == text);
        CHECK(cut_manual("", 100, 333).empty());
        CHECK(cut_manual("short", 100, 333) == std::vector<std::string_view>{"short"});
        // A short rest joins the document before it.
        const std::string two = "1. One\n\n" + std::string(150, 'a') + "\n\n2. Two\n\nend\n";
        CHECK(cut_manual(two, 100, 333) == std::vector<std::string_view>{two});
        CHECK(cut_manual(two, 100, 165).size() == 2);
    }

    TEST_CASE("documents of all files, one in 20 held out, whatever the order they were made in") {
        TemporaryFolder folder;
        make_folders(folder, {"src"});
        std::vector<std::string> expected;
        for (int i = 0; i < 100; i++) {
            expected.push_back("document " + std::to_string(i * 37 % 100) + "\n");
            folder.file("src/" + std::to_string(i) + ".c", expected.back());
        }
        std::sort(expected.begin(), expected.end());
        const std::string list = list_file(folder, "[[language]]\nname = \"c\"\nkind = \"code\"\nfiles = [\"$/src/*.c\"]\n");
        const auto rows = prepare(folder, list);
        REQUIRE(rows.size() == 1);
        CHECK(rows[0].language == "c");
        CHECK(rows[0].train_documents == 95);
        CHECK(rows[0].valid_documents == 5);
        CHECK(rows[0].train_bytes + rows[0].valid_bytes == 10 * 11 + 90 * 12);
        CHECK(all_documents(folder / "out/c") == expected);
        const auto held_out = documents_of(folder / "out/c.valid");
        std::string plain;
        for (const std::string& document : documents_of(folder / "out/c.train")) plain += document + "\n";
        CHECK(folder.contents("out/c.train.txt") == plain);

        std::map<std::string, std::string> first;
        for (const char* name : {"c.train.jsonl", "c.valid.jsonl", "c.train.txt"}) {
            first[name] = folder.contents("out/" + std::string(name));
            CHECK(!first[name].empty());
        }
        prepare(folder, list);
        for (const auto& [name, contents] : first) CHECK(folder.contents("out/" + name) == contents);
        CHECK(std::distance(std::filesystem::directory_iterator(folder / "out"), {}) == 3);
        // Other names, so another order: the same documents are held out.
        for (int i = 0; i < 100; i++) std::filesystem::rename(folder / ("src/" + std::to_string(i) + ".c"), folder / ("src/" + std::to_string(i * 7 % 100) + "x.c"));
        prepare(folder, list);
        auto again = documents_of(folder / "out/c.valid"), sorted = held_out;
        std::sort(again.begin(), again.end());
        std::sort(sorted.begin(), sorted.end());
        CHECK(again == sorted);
    }

    TEST_CASE("patterns: ** crosses folders, a link to a folder is followed only by name, a file counts once") {
        TemporaryFolder folder;
        make_folders(folder, {"a/b/c", "a/.hidden", "other"});
        for (const char* name : {"a/1.c", "a/b/2.c", "a/b/c/3.c", "a/b/c/no.h", "a/.hidden/4.c", "a/.5.c", "other/6.c"}) folder.file(name, name);
        std::filesystem::create_directory_symlink(folder / "other", folder / "a/link");
        std::filesystem::create_directory_symlink(folder / "a", folder / "a/b/loop");
        const auto found = [&](const std::string& patterns) {
            Stderr quiet(folder);
            prepare(folder, list_file(folder, "[[language]]\nname = \"c\"\nkind = \"code\"\nfiles = [" + patterns + "]\n"));
            return all_documents(folder / "out/c");
        };
        using Names = std::vector<std::string>;
        CHECK(found("\"$/a/**/*.c\"") == Names{"a/1.c", "a/b/2.c", "a/b/c/3.c"});
        CHECK(found("\"$/a/**\"") == Names{"a/1.c", "a/b/2.c", "a/b/c/3.c", "a/b/c/no.h"});
        CHECK(found("\"$/a/*.c\", \"$/a/?.c\", \"$/none/*\"") == Names{"a/1.c"});
        CHECK(found("\"$/a/l*/*.c\"") == Names{"other/6.c"});
        CHECK(found("\"$/a/*/[0-9].c\", \"$/a/b/**/3.c\"") == Names{"a/b/2.c", "a/b/c/3.c", "other/6.c"});
    }

    TEST_CASE("a document that occurs twice is kept once, in the first language that has it") {
        TemporaryFolder folder;
        make_folders(folder, {"x", "y"});
        for (const char* name : {"x/1", "x/2", "y/1"}) folder.file(name, "the same\n");
        folder.file("x/3", "x\n");
        folder.file("y/2", "y\n");
        folder.file("y/3", "z\n");
        folder.file("y/4", " \n\n");
        const auto rows = prepare(folder, list_file(folder, "[[language]]\nname = \"x\"\nkind = \"code\"\nfiles = [\"$/x/*\"]\n"
                                                            "[[language]]\nname = \"y\"\nkind = \"code\"\nfiles = [\"$/y/*\"]\n"));
        REQUIRE(rows.size() == 2);
        CHECK(all_documents(folder / "out/x") == std::vector<std::string>{"the same\n", "x\n"});
        CHECK(all_documents(folder / "out/y") == std::vector<std::string>{"y\n", "z\n"});
        // Two documents: one on either side.
        for (const CorpusRow& row : rows) CHECK((row.train_documents == 1 && row.valid_documents == 1));
    }

    TEST_CASE("limit: documents by path, those that would exceed it passed over") {
        TemporaryFolder folder;
        make_folders(folder, {"x"});
        folder.file("x/1", "aaaa");
        folder.file("x/2", "bbbbbbbb");
        folder.file("x/3", "cccc");
        folder.file("x/4", "dd");
        prepare(folder, list_file(folder, "[[language]]\nname = \"x\"\nkind = \"code\"\nfiles = [\"$/x/*\"]\nlimit = 9\n"));
        CHECK(all_documents(folder / "out/x") == std::vector<std::string>{"aaaa", "cccc"});
    }

    TEST_CASE("encodings, and files that are no text") {
        TemporaryFolder folder;
        make_folders(folder, {"x", "ru"});
        folder.file("x/good", "naïve \xf0\x9f\x98\x80");
        // Latin-1, an overlong slash, a surrogate, a cut character, a value above U+10FFFF.
        int n = 0;
        for (const char* bad : {"na\xefve", "\xc0\xaf", "\xed\xa0\x80", "\xe2\x82", "\xf4\x90\x80\x80", "\x80"}) folder.file("x/bad" + std::to_string(n++), bad);
        folder.file("ru/1", "\xf2\xd5\xd3");  // "Рус" in KOI8-R
        Stderr errors(folder);
        const auto rows = prepare(folder, list_file(folder, "[[language]]\nname = \"x\"\nkind = \"code\"\nfiles = [\"$/x/*\"]\n"
                                                            "[[language]]\nname = \"ru\"\nkind = \"code\"\nfiles = [\"$/ru/*\"]\nencoding = \"KOI8-R\"\n"));
        CHECK(rows.size() == 2);
        CHECK(all_documents(folder / "out/x") == std::vector<std::string>{"naïve \xf0\x9f\x98\x80"});
        CHECK(all_documents(folder / "out/ru") == std::vector<std::string>{"Рус"});
        CHECK(errors.text().find("warning: x: 6 of 7 files left out because they are not UTF-8, first " + folder / "x/bad0") != std::string::npos);
        CHECK(errors.text().find("warning: ru has a single document, so none is held out") != std::string::npos);
    }

    TEST_CASE("a manual goes through the cutter; gzip is unpacked") {
        TemporaryFolder folder;
        std::string manual;
        for (int i = 1; i <= 5; i++) manual += std::to_string(i) + ". Title\n\n" + std::string(2500, char('a' + i)) + "\n\n";
        folder.file("m.txt", manual);
        REQUIRE(std::system(("gzip " + folder / "m.txt").c_str()) == 0);
        prepare(folder, list_file(folder, "[[language]]\nname = \"m\"\nkind = \"manual\"\nfiles = [\"$/m.txt.gz\"]\n"));
        const auto documents = all_documents(folder / "out/m");
        REQUIRE(documents.size() == 5);
        for (int i = 1; i <= 5; i++) CHECK(documents[size_t(i - 1)].starts_with(std::to_string(i) + ". Title\n\n" + char('a' + i)));
    }

    TEST_CASE("a language without files is left out with a warning; none at all says what to install") {
        TemporaryFolder folder;
        folder.file("1.c", "text");
        const std::string none = "[[language]]\nname = \"none\"\nkind = \"code\"\nfiles = [\"$/*.none\", \"$/none/**\"]\n";
        Stderr errors(folder);
        CHECK(prepare(folder, list_file(folder, none + "[[language]]\nname = \"c\"\nkind = \"code\"\nfiles = [\"$/*.c\", \"$/*.none\"]\n")).size() == 1);
        CHECK(errors.text().find("warning: none left out: no file matches ") != std::string::npos);
        CHECK(errors.text().find("warning: c left out") == std::string::npos);
        CHECK_THROWS_WITH_AS(prepare(folder, list_file(folder, "packages = [\"one\", \"two\"]\n" + none)), Contains("install them with: apt-get install one two"), InputError);
    }

    TEST_CASE("mistakes in the list are named with file:line") {
        TemporaryFolder folder;
        const auto check = [&](const std::string& toml, const char* message) {
            CAPTURE(toml);
            CHECK_THROWS_WITH_AS(prepare(folder, list_file(folder, toml)), Contains(message), InputError);
        };
        const std::string good = "[[language]]\nname = \"a\"\nkind = \"code\"\nfiles = [\"$/*\"]\n";
        check("", "list.toml: no [[language]]");
        check("[[language]\n", "list.toml:1: not TOML");
        check("x = 1\n" + good, "list.toml:1: x: unknown key");
        check("language = 3\n", "list.toml:1: language: unknown key; expected packages and [[language]] tables");
        check(good + "kinds = \"code\"\n", "list.toml:5: kinds: unknown key; a language has name, files, kind, limit and encoding");
        check("[[language]]\nname = \"a\"\nkind = \"code\"\n", "list.toml:1: the language has no files");
        check("[[language]]\nname = \"../a\"\n", "list.toml:2: name = \"../a\"");
        check("[[language]]\nname = 7\n", "list.toml:2: name: expected a string");
        check("[[language]]\nkind = \"prose\"\n", "list.toml:2: kind = \"prose\", expected \"manual\" or \"code\"");
        check("[[language]]\nfiles = []\n", "list.toml:2: files: expected a list of strings");
        check("[[language]]\nfiles = [1]\n", "list.toml:2: files: expected a string");
        check("[[language]]\nlimit = 0\n", "list.toml:2: limit: expected a number of bytes above 0");
        check(good + good, "list.toml:5: a second language named a");
        check(good + "encoding = \"klingon\"\n", "encoding \"klingon\" is unknown to iconv");
        CHECK_THROWS_WITH_AS(prepare(folder, folder / "none.toml"), Contains("none.toml: No such file"), InputError);
        CHECK_THROWS_WITH_AS(prepare_corpus(list_file(folder, good), folder / "list.toml/out"), Contains("cannot create the folder"), InputError);
    }

    TEST_CASE("the table is aligned and adds up") {
        CorpusRow de, cpp;
        de.language = "de";
        de.train_documents = 1234, de.valid_documents = 65, de.train_bytes = 2900000, de.valid_bytes = 100000;
        cpp.language = "cpp";
        cpp.train_documents = 9, cpp.valid_documents = 1, cpp.train_bytes = 999, cpp.valid_bytes = 999001;
        CHECK(corpus_table({de, cpp}) ==
              "          documents             bytes             share of\n"
              "language      train  valid      train      valid     bytes\n"
              "de            1,234     65  2,900,000    100,000     75.0%\n"
              "cpp               9      1        999    999,001     25.0%\n"
              "total         1,243     66  2,900,999  1,099,001    100.0%\n");
        CHECK(corpus_table({}).find("0.0%") != std::string::npos);
    }
}
