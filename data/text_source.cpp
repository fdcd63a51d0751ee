#include "text_source.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "../kernels/error.h"
#include "byte_stream.h"
#include "documents.h"
#include "hash.h"

namespace clover {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t chunk_bytes = size_t{1} << 20;

}  // namespace

std::string read_text_file(const std::string& path, size_t limit) {
    ByteStream stream(path);
    std::string contents;
    while (true) {
        const size_t size = contents.size();
        contents.resize(std::min(size + chunk_bytes, limit + 1));
        contents.resize(size + stream.read(contents.data() + size, contents.size() - size));
        require(contents.size() <= limit, path, ": more than ", limit, " bytes of text in one document; cut it into several files, or use .jsonl");
        if (contents.size() == size) return contents;
    }
}

void for_each_document(const std::string& path, const std::function<void(std::string_view)>& document) {
    DocumentReader reader({path});
    RawDocument raw;
    std::string scratch;
    while (reader.next(raw)) document(document_text(raw, {}, reader.place(raw), scratch));
}

TokenFileWriter::TokenFileWriter(const std::string& prefix, const Tokenizer& tokenizer)
    : prefix_(prefix), tokenizer_(tokenizer), writer_(prefix, tokenizer.vocab_size()) {
    require(tokenizer.end_of_document() >= 0, "tokenizer ", tokenizer.fingerprint(), " has no token that ends a document");
}

bool TokenFileWriter::add(std::string_view document) {
    ids_.clear();
    tokenizer_.encode(document, ids_);
    if (ids_.empty()) {
        empty_++;
        return false;
    }
    ids_.push_back(tokenizer_.end_of_document());
    writer_.add_document(ids_);
    bytes_ += int64_t(document.size());
    return true;
}

void TokenFileWriter::finish(const std::string& source, int64_t source_size, int64_t source_mtime_ns) {
    Json record = {{"source", source}};
    if (source_size > 0) {
        record["source_size"] = source_size;
        record["source_mtime_ns"] = source_mtime_ns;
    }
    record["tokenizer"] = tokenizer_.fingerprint();
    record["documents"] = document_count();
    record["bytes"] = byte_count();
    record["tokens"] = token_count();
    record["empty_documents"] = empty_count();
    // No moment may come at which an old record stands beside a new token file.
    ::unlink((prefix_ + ".json").c_str());
    writer_.finish();
    // `replace` for paths that are not UTF-8.
    write_file_whole(prefix_ + ".json", record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

namespace {

/// PREFIX.json, or null if it is missing or no JSON object.
Json read_record(const std::string& prefix) {
    const std::string path = prefix + ".json";
    if (!std::filesystem::is_regular_file(path)) return nullptr;
    const MappedFile file(path);
    if (file.size() > (size_t{1} << 20)) return nullptr;
    const char* text = reinterpret_cast<const char*>(file.data());
    Json record = Json::parse(text, text + file.size(), nullptr, false);
    return record.is_object() ? record : nullptr;
}

struct Source {
    std::string path;
    int64_t size = 0, mtime_ns = 0;
};

Source find_source(const std::string& path) {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) {
        const int reason = errno;
        require(reason == ENOENT, "cannot open ", path, ": ", std::strerror(reason));
        throw InputError(text("no data set ", path, ": neither a text file of that name nor the token file ", path, ".idx exists"));
    }
    require(S_ISREG(info.st_mode), path, ": not a regular file; expected a .txt or .jsonl file (also .gz) or the prefix of a token file");
    DocumentReader({path});  // refuses a name that tells no format
    require(info.st_size > 0, path, ": the file is empty, expected text");
    return {std::filesystem::absolute(path).lexically_normal().string(), int64_t(info.st_size),
            int64_t(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec};
}

/// CACHE/NAME-HASH: the name to be read, the hash to keep same-named sources and tokenizers apart.
std::string cache_prefix(const Source& source, const Tokenizer& tokenizer, const std::string& cache) {
    const uint64_t hash = hash64(source.path + '\0' + tokenizer.fingerprint());
    std::filesystem::path name = std::filesystem::path(source.path).filename();
    if (name.extension() == ".gz") name = name.stem();
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
    return (std::filesystem::path(cache) / (name.stem().string() + "-" + digits)).string();
}

bool is_current(const std::string& prefix, const Source& source, const Tokenizer& tokenizer) {
    try {
        const Json record = read_record(prefix);
        if (record.is_null()) return false;
        if (record.at("source") != source.path || record.at("source_size") != source.size || record.at("source_mtime_ns") != source.mtime_ns ||
            record.at("tokenizer") != tokenizer.fingerprint())
            return false;
        const IndexedDataset data(prefix);
        return record.at("documents") == data.document_count() && record.at("tokens") == data.token_count();
    } catch (const InputError&) {
        return false;  // damaged: made anew
    } catch (const Json::exception&) {
        return false;
    }
}

/// Says on stderr how far it is, once a second has passed and then every five.
class Progress {
public:
    explicit Progress(const std::string& path) : path_(path) {}
    void show(const TokenFileWriter& writer) {
        const auto now = Clock::now();
        if (now - start_ < wait_) return;
        wait_ = now - start_ + std::chrono::seconds(5);
        std::fprintf(stderr, "tokenizing %s: %lld documents, %.1f MB so far\n", path_.c_str(), static_cast<long long>(writer.document_count()),
                     double(writer.byte_count()) / 1e6);
    }
    void end(const TokenFileWriter& writer) const {
        const std::chrono::duration<double> seconds = Clock::now() - start_;
        if (seconds < std::chrono::seconds(1)) return;
        std::fprintf(stderr, "tokenized %s: %lld documents (%lld empty ones dropped), %.1f MB, %lld tokens, %.1f s\n", path_.c_str(),
                     static_cast<long long>(writer.document_count()), static_cast<long long>(writer.empty_count()), double(writer.byte_count()) / 1e6,
                     static_cast<long long>(writer.token_count()), seconds.count());
    }

private:
    using Clock = std::chrono::steady_clock;
    std::string path_;
    Clock::time_point start_ = Clock::now();
    Clock::duration wait_ = std::chrono::seconds(1);
};

void tokenize_file(const Source& source, const Tokenizer& tokenizer, const std::string& prefix) {
    TokenFileWriter writer(prefix, tokenizer);
    Progress progress(source.path);
    for_each_document(source.path, [&](std::string_view document) {
        writer.add(document);
        progress.show(writer);
    });
    require(writer.document_count() > 0, source.path, ": no text in it (", writer.empty_count(), " empty documents)");
    writer.finish(source.path, source.size, source.mtime_ns);
    progress.end(writer);
}

/// Held while a cache is looked at or added to, so that processes started together tokenise a file once. The lock is on the
/// folder itself and leaves nothing behind; where a file system has no locks, they only do the work twice.
class FolderLock {
public:
    explicit FolderLock(const std::string& folder) : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
        while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
        }
    }
    ~FolderLock() {
        if (fd_ >= 0) ::close(fd_);
    }
    FolderLock(const FolderLock&) = delete;

private:
    int fd_;
};

}  // namespace

std::string resolve_token_file(const std::string& path, const Tokenizer& tokenizer, const std::string& cache) {
    if (std::filesystem::exists(path + ".idx")) {
        const std::string made_with = token_file_tokenizer(path);
        require(made_with.empty() || made_with == tokenizer.fingerprint(), "token file ", path, " was made with tokenizer ", made_with, ", but the run's is ",
                tokenizer.fingerprint(), "; change data.tokenizer or tokenize the text again");
        return path;
    }
    const Source source = find_source(path);
    std::error_code error;
    std::filesystem::create_directories(cache, error);
    require(!error, "cannot create the folder ", cache, ": ", error.message());
    const std::string prefix = cache_prefix(source, tokenizer, cache);
    const FolderLock lock(cache);
    if (!is_current(prefix, source, tokenizer)) tokenize_file(source, tokenizer, prefix);
    return prefix;
}

std::string token_file_tokenizer(const std::string& prefix) {
    const Json record = read_record(prefix);
    if (record.is_null()) return "";
    const auto tokenizer = record.find("tokenizer");
    return tokenizer != record.end() && tokenizer->is_string() ? tokenizer->get<std::string>() : "";
}

}  // namespace clover
