#include "text_source.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "../kernels/error.h"
#include "byte_stream.h"
#include "documents.h"
#include "hash.h"
#include "indexed_dataset.h"
#include "progress.h"
#include "tokenize.h"

namespace clover {
namespace {

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

namespace {

struct Source {
    std::string path;
    int64_t size = 0, mtime_ns = 0;
};

/// The size and time of a folder are those of the files in it together: the sum, and the latest.
Source find_source(const std::string& path) {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) {
        const int reason = errno;
        require(reason == ENOENT, "cannot open ", path, ": ", std::strerror(reason));
        throw InputError(text("no data set ", path, ": neither a text file of that name nor the token file ", path, ".idx exists"));
    }
    require(S_ISREG(info.st_mode) || S_ISDIR(info.st_mode), path,
            ": not a regular file; expected a .txt or .jsonl file (also .gz), a folder of them, or the prefix of a token file");
    Source source{std::filesystem::absolute(path).lexically_normal().string()};
    const DocumentReader reader({path});
    for (const std::string& file : reader.files()) {
        require(::stat(file.c_str(), &info) == 0, "cannot open ", file, ": ", std::strerror(errno));
        source.size += int64_t(info.st_size);
        source.mtime_ns = std::max(source.mtime_ns, int64_t(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec);
    }
    require(source.size > 0, path, ": the file is empty, expected text");
    return source;
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
        const std::optional<TokenRecord> record = read_token_record(prefix);
        if (!record || record->sources != std::vector<std::string>{source.path} || record->source_size != source.size ||
            record->source_mtime_ns != source.mtime_ns || record->tokenizer != tokenizer.fingerprint() || record->end_of_document != tokenizer.end_of_document())
            return false;
        const IndexedDataset data(prefix);
        return record->documents == data.document_count() && record->tokens == data.token_count();
    } catch (const InputError&) {
        return false;  // damaged: made anew
    }
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
    if (is_current(prefix, source, tokenizer)) return prefix;
    const Progress progress(path);
    TokenizeOptions options;
    options.inputs = {source.path}, options.out = prefix, options.what = path;
    options.source_size = source.size, options.source_mtime_ns = source.mtime_ns;
    const TokenRecord record = tokenize(tokenizer, options);
    if (progress.seconds() > 1)
        std::fprintf(stderr, "tokenized %s: %lld documents (%lld empty ones dropped), %.1f MB, %lld tokens, %.1f s\n", path.c_str(),
                     static_cast<long long>(record.documents), static_cast<long long>(record.empty_documents), double(record.bytes) / 1e6,
                     static_cast<long long>(record.tokens), progress.seconds());
    return prefix;
}

std::string token_file_tokenizer(const std::string& prefix) {
    const std::optional<TokenRecord> record = read_token_record(prefix);
    return record ? record->tokenizer : "";
}

}  // namespace clover
