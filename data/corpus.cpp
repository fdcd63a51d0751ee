#include "corpus.h"

#include <fnmatch.h>
#include <iconv.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>

#include "../kernels/error.h"
#include "hash.h"
#include "manual.h"
#include "new_file.h"
#include "text_source.h"
#include "toml.h"
#include "utf8.h"

namespace clover {
namespace {

namespace fs = std::filesystem;

// ---- The list ------------------------------------------------------------------------------------------------------------------

struct Language {
    std::string name, encoding = "UTF-8";
    std::vector<std::string> patterns;
    bool manual = false;
    int64_t limit = std::numeric_limits<int64_t>::max();
};

struct CorpusList {
    std::string path;
    std::vector<std::string> packages;
    std::vector<Language> languages;
};

/// "PATH:LINE: key" of a value, to open a message with.
std::string place(const CorpusList& list, const toml::key& key) { return text(list.path, ":", key.source().begin.line, ": ", key.str()); }

std::string string_of(const CorpusList& list, const toml::key& key, const toml::node& node) {
    require(node.is_string() && !node.as_string()->get().empty(), place(list, key), ": expected a string in quotes");
    return node.as_string()->get();
}

std::vector<std::string> strings_of(const CorpusList& list, const toml::key& key, const toml::node& node) {
    require(node.is_array() && !node.as_array()->empty(), place(list, key), ": expected a list of strings, like [\"a\", \"b\"]");
    std::vector<std::string> strings;
    for (const toml::node& element : *node.as_array()) strings.push_back(string_of(list, key, element));
    return strings;
}

void set_key(const CorpusList& list, Language& language, const toml::key& key, const toml::node& node) {
    const std::string_view name = key.str();
    if (name == "name") {
        language.name = string_of(list, key, node);
        const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
        require(std::all_of(language.name.begin(), language.name.end(), allowed), place(list, key), " = \"", language.name,
                "\": a name of letters, digits, - and _ was expected, because files are named after it");
    } else if (name == "files") {
        language.patterns = strings_of(list, key, node);
    } else if (name == "kind") {
        const std::string kind = string_of(list, key, node);
        require(kind == "manual" || kind == "code", place(list, key), " = \"", kind, "\", expected \"manual\" or \"code\"");
        language.manual = kind == "manual";
    } else if (name == "limit") {
        require(node.is_integer() && node.as_integer()->get() > 0, place(list, key), ": expected a number of bytes above 0");
        language.limit = node.as_integer()->get();
    } else if (name == "encoding") {
        language.encoding = string_of(list, key, node);
    } else {
        throw InputError(text(place(list, key), ": unknown key; a language has name, files, kind, limit and encoding"));
    }
}

Language read_language(const CorpusList& list, const toml::node& node) {
    const std::string where = text(list.path, ":", node.source().begin.line);
    require(node.is_table(), where, ": expected a table [[language]]");
    Language language;
    for (const auto& [key, value] : *node.as_table()) set_key(list, language, key, value);
    for (const char* needed : {"name", "files", "kind"}) require(node.as_table()->contains(needed), where, ": the language has no ", needed, "; add it");
    for (const Language& other : list.languages) require(other.name != language.name, where, ": a second language named ", language.name, "; join their files");
    return language;
}

CorpusList read_list(const std::string& path) {
    CorpusList list;
    list.path = path;
    const toml::table table = parse_toml(read_text_file(path, 1 << 20), path);
    for (const auto& [key, value] : table) {
        if (key.str() == "packages") {
            list.packages = strings_of(list, key, value);
        } else {
            require(key.str() == "language" && value.is_array(), place(list, key), ": unknown key; expected packages and [[language]] tables");
            for (const toml::node& node : *value.as_array()) list.languages.push_back(read_language(list, node));
        }
    }
    require(!list.languages.empty(), path, ": no [[language]] in it; add at least one");
    return list;
}

// ---- Files ---------------------------------------------------------------------------------------------------------------------

/// Adds the regular files under `folder` that match parts[i], parts[i + 1], … ** stands for any number of folders; links to
/// folders are followed where the pattern names them, not within **.
void match(const fs::path& folder, const std::vector<std::string>& parts, size_t i, std::set<std::string>& found) {
    std::error_code error;
    const bool any_depth = parts[i] == "**", last = i + 1 == parts.size();
    if (any_depth && !last) match(folder, parts, i + 1, found);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, error)) {
        const std::string name = entry.path().filename().string();
        if (::fnmatch(any_depth ? "*" : parts[i].c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
        if (last && entry.is_regular_file(error)) found.insert(entry.path().string());
        if (!entry.is_directory(error)) continue;
        if (any_depth && !entry.is_symlink(error)) match(entry.path(), parts, i, found);
        if (!any_depth && !last) match(entry.path(), parts, i + 1, found);
    }
}

/// The files of all patterns, each once, by path.
std::set<std::string> files_of(const Language& language) {
    std::set<std::string> found;
    for (const std::string& pattern : language.patterns) {
        const fs::path path(pattern);
        std::vector<std::string> parts;
        for (const fs::path& part : path.relative_path()) parts.push_back(part.string());
        if (!parts.empty()) match(path.is_absolute() ? path.root_path() : fs::path("."), parts, 0, found);
    }
    return found;
}

/// iconv to UTF-8; nothing if the text is not in that encoding.
std::optional<std::string> to_utf8(std::string contents, const std::string& encoding) {
    if (encoding == "UTF-8") return is_utf8(contents) ? std::optional(std::move(contents)) : std::nullopt;
    const iconv_t converter = ::iconv_open("UTF-8", encoding.c_str());
    require(converter != iconv_t(-1), "encoding \"", encoding, "\" is unknown to iconv; `iconv -l` lists what it knows");
    std::string result(contents.size() * 4, '\0');  // no character takes more
    char *from = contents.data(), *to = result.data();
    size_t from_left = contents.size(), to_left = result.size();
    const bool whole = ::iconv(converter, &from, &from_left, &to, &to_left) != size_t(-1);
    ::iconv_close(converter);
    result.resize(result.size() - to_left);
    return whole ? std::optional(std::move(result)) : std::nullopt;
}

// ---- Documents -----------------------------------------------------------------------------------------------------------------

struct Document {
    std::string text;
    uint64_t hash;
    bool held_out;
};

class Collector {
public:
    /// `seen` holds the hashes of all documents of the corpus so far.
    Collector(const Language& language, std::unordered_set<uint64_t>& seen) : language_(language), seen_(seen) {}

    void add_file(const std::string& path) {
        const std::optional<std::string> contents = to_utf8(read_text_file(path), language_.encoding);
        if (!contents) {
            if (not_text_++ == 0) first_not_text_ = path;
        } else if (language_.manual) {
            for (std::string_view document : cut_manual(*contents)) add(document);
        } else {
            add(*contents);
        }
    }

    /// Marks what is held out, the documents with the smallest hashes, and returns all.
    std::vector<Document> finish(size_t files) {
        if (not_text_ > 0)
            std::fprintf(stderr, "warning: %s: %lld of %zu files left out because they are not %s, first %s\n", language_.name.c_str(),
                         static_cast<long long>(not_text_), files, language_.encoding.c_str(), first_not_text_.c_str());
        std::vector<uint64_t> hashes;
        for (const Document& document : documents_) hashes.push_back(document.hash);
        std::sort(hashes.begin(), hashes.end());
        const size_t held_out = hashes.size() < 2 ? 0 : std::max(hashes.size() / 20, size_t{1});
        for (Document& document : documents_) document.held_out = document.hash < hashes[held_out];
        return std::move(documents_);
    }

private:
    void add(std::string_view document) {
        if (document.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos) return;
        if (int64_t(document.size()) > language_.limit - bytes_) return;
        const uint64_t hash = hash64(document);
        if (!seen_.insert(hash).second) return;
        bytes_ += int64_t(document.size());
        documents_.push_back({std::string(document), hash, false});
    }

    const Language& language_;
    std::unordered_set<uint64_t>& seen_;
    std::vector<Document> documents_;
    int64_t bytes_ = 0, not_text_ = 0;
    std::string first_not_text_;
};

// ---- Text files ----------------------------------------------------------------------------------------------------------------

CorpusRow write_language(const std::string& name, const std::vector<Document>& documents, const std::string& out) {
    const std::string prefix = (fs::path(out) / name).string();
    NewFile train(prefix + ".train.jsonl"), valid(prefix + ".valid.jsonl"), plain(prefix + ".train.txt");
    CorpusRow row;
    row.language = name;
    for (const Document& document : documents) {
        const std::string line = nlohmann::json{{"text", document.text}}.dump() + "\n";
        (document.held_out ? valid : train).write(line.data(), line.size());
        (document.held_out ? row.valid_documents : row.train_documents)++;
        (document.held_out ? row.valid_bytes : row.train_bytes) += int64_t(document.text.size());
        if (!document.held_out) plain.write((document.text + "\n").data(), document.text.size() + 1);
    }
    for (NewFile* file : {&valid, &plain, &train}) file->commit();
    sync_folder_of(prefix);
    return row;
}

std::string joined(const std::vector<std::string>& words, const char* separator) {
    std::string all;
    for (const std::string& word : words) all += (all.empty() ? "" : separator) + word;
    return all;
}

}  // namespace

std::vector<CorpusRow> prepare_corpus(const std::string& list_path, const std::string& out) {
    const CorpusList list = read_list(list_path);
    std::error_code error;
    fs::create_directories(out, error);
    require(!error, "cannot create the folder ", out, ": ", error.message());
    std::vector<CorpusRow> rows;
    std::unordered_set<uint64_t> seen;
    for (const Language& language : list.languages) {
        const std::set<std::string> files = files_of(language);
        Collector collector(language, seen);
        for (const std::string& file : files) collector.add_file(file);
        const std::vector<Document> documents = collector.finish(files.size());
        if (documents.empty())
            std::fprintf(stderr, "warning: %s left out: %s %s\n", language.name.c_str(), files.empty() ? "no file matches" : "no new text in",
                         joined(language.patterns, ", ").c_str());
        else
            rows.push_back(write_language(language.name, documents, out));
        if (documents.size() == 1)
            std::fprintf(stderr, "warning: %s has a single document, so none is held out for validation\n", language.name.c_str());
    }
    require(!rows.empty(), list_path, ": none of its files is on this machine; ",
            list.packages.empty() ? "change its patterns" : "install them with: apt-get install " + joined(list.packages, " "));
    return rows;
}

// ---- The table -----------------------------------------------------------------------------------------------------------------

namespace {

/// 1234567 as "1,234,567".
std::string grouped(int64_t n) {
    const std::string digits = std::to_string(n);
    std::string out;
    for (size_t i = 0; i < digits.size(); i++) {
        if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
        out += digits[i];
    }
    return out;
}

constexpr size_t columns = 6;
using Cells = std::array<std::string, columns>;

Cells cells_of(const CorpusRow& row, int64_t all_bytes) {
    const int64_t bytes = row.train_bytes + row.valid_bytes;
    char share[16];
    std::snprintf(share, sizeof share, "%.1f%%", all_bytes > 0 ? 100.0 * double(bytes) / double(all_bytes) : 0.0);
    return {row.language,         grouped(row.train_documents), grouped(row.valid_documents), grouped(row.train_bytes), grouped(row.valid_bytes),
            share};
}

}  // namespace

std::string corpus_table(const std::vector<CorpusRow>& rows) {
    CorpusRow total;
    total.language = "total";
    for (const CorpusRow& row : rows) {
        total.train_documents += row.train_documents;
        total.valid_documents += row.valid_documents;
        total.train_bytes += row.train_bytes;
        total.valid_bytes += row.valid_bytes;
    }
    const int64_t all_bytes = total.train_bytes + total.valid_bytes;
    std::vector<Cells> lines = {{"", "documents", "", "bytes", "", "share of"}, {"language", "train", "valid", "train", "valid", "bytes"}};
    for (const CorpusRow& row : rows) lines.push_back(cells_of(row, all_bytes));
    lines.push_back(cells_of(total, all_bytes));
    std::array<size_t, columns> width{};
    for (const Cells& line : lines)
        for (size_t c = 0; c < columns; c++) width[c] = std::max(width[c], line[c].size());
    std::string table;
    for (const Cells& line : lines) {
        std::string out = line[0] + std::string(width[0] - line[0].size(), ' ');
        for (size_t c = 1; c < columns; c++) out += "  " + std::string(width[c] - line[c].size(), ' ') + line[c];
        table += out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
    }
    return table;
}

}  // namespace clover
