#include "documents.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "../kernels/error.h"
#include "byte_stream.h"

namespace clover {
namespace {

namespace fs = std::filesystem;

constexpr size_t chunk_bytes = size_t{1} << 20;
constexpr size_t line_limit = 256'000'000, text_limit = size_t{1} << 30;

/// .jsonl, .txt, either also with .gz; nothing for another name.
DocumentFormat format_of(std::string_view path) {
    if (path.ends_with(".gz")) path.remove_suffix(3);
    return path.ends_with(".jsonl") ? DocumentFormat::jsonl : path.ends_with(".txt") ? DocumentFormat::text : DocumentFormat::automatic;
}

/// The files in a folder, to any depth, in the order of their paths.
std::vector<std::string> files_in(const std::string& folder) {
    std::vector<std::string> files;
    std::error_code error;
    for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        if (at->is_regular_file() && format_of(at->path().native()) != DocumentFormat::automatic) files.push_back(at->path().string());
    require(!error, "cannot read the folder ", folder, ": ", error.message());
    require(!files.empty(), folder, ": no .txt or .jsonl file (also .gz) in this folder");
    std::sort(files.begin(), files.end());
    return files;
}

/// The names of all files that the inputs stand for.
std::vector<std::string> files_of(const std::vector<std::string>& inputs, DocumentFormat format) {
    std::vector<std::string> files;
    for (const std::string& input : inputs) {
        struct stat info;
        const bool there = input == "-" || ::stat(input.c_str(), &info) == 0;
        require(there, "cannot open ", input, ": ", std::strerror(errno));
        if (input != "-" && S_ISDIR(info.st_mode)) {
            const std::vector<std::string> inside = files_in(input);
            files.insert(files.end(), inside.begin(), inside.end());
            continue;
        }
        require(input == "-" || format != DocumentFormat::automatic || format_of(input) != DocumentFormat::automatic, input,
                ": cannot tell the format from the name; expected .txt or .jsonl, either also with .gz, or say --format text or --format jsonl");
        files.push_back(input);
    }
    return files;
}

/// Keeps the string under one top-level key and nothing else, so that hostile nesting takes no memory.
struct TextField final : nlohmann::json_sax<nlohmann::json> {
    explicit TextField(std::string_view key_, std::string& text_) : wanted(key_), text(text_) {}
    std::string_view wanted;
    std::string& text;
    int64_t depth = 0;
    bool at_text = false, found = false;
    size_t error_byte = 0;

    bool string(string_t& value) override {
        if (depth == 1 && at_text) {
            text = std::move(value);
            found = true;
        }
        return true;
    }
    bool key(string_t& name) override {
        if (depth == 1) at_text = name == wanted;
        return true;
    }
    bool start_object(size_t) override { return ++depth, true; }
    bool end_object() override { return --depth, true; }
    bool start_array(size_t) override { return ++depth, true; }
    bool end_array() override { return --depth, true; }
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) override {
        error_byte = byte;
        return false;
    }
};

}  // namespace

struct DocumentReader::Impl {
    std::vector<std::string> files;
    DocumentFormat format;
    std::vector<int64_t> sizes;
    size_t file = 0;                     // number of the open one
    std::unique_ptr<ByteStream> stream;  // null: the next file is to be opened
    std::string chunk;                   // of the stream
    std::string_view rest;               // of the chunk
    int64_t line = 0;                    // lines read of the open file
    int64_t done = 0;                    // bytes of the files before

    bool is_json() const {
        const DocumentFormat known = format != DocumentFormat::automatic ? format : files[file] == "-" ? DocumentFormat::jsonl : format_of(files[file]);
        return known == DocumentFormat::jsonl;
    }
    bool fill() {
        chunk.resize(chunk_bytes);
        rest = std::string_view(chunk.data(), stream->read(chunk.data(), chunk.size()));
        return !rest.empty();
    }
    void open() {
        stream = std::make_unique<ByteStream>(files[file]);
        line = 0;
        rest = {};
        if (is_json() && fill() && rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);  // a byte order mark
    }
    void close() {
        done += sizes[file++];
        stream.reset();
    }

    /// The next line that is not blank; false at the end of the file.
    bool next_line(std::string& out) {
        out.clear();
        while (!rest.empty() || fill()) {
            const size_t end = rest.find('\n');
            out.append(rest.substr(0, end));
            require(out.size() <= line_limit, stream->path(), ":", line + 1, ": the line has more than ", line_limit,
                    " bytes, the most one document may take; cut it into several");
            rest.remove_prefix(std::min(end, rest.size() - 1) + 1);
            if (end == std::string_view::npos) continue;
            line++;
            if (out.find_first_not_of(" \t\r") != std::string::npos) return true;
            out.clear();
        }
        line++;
        return out.find_first_not_of(" \t\r") != std::string::npos;
    }
    void whole_file(std::string& out) {
        out.clear();
        while (!rest.empty() || fill()) {
            out.append(rest);
            rest = {};
            require(out.size() <= text_limit, stream->path(), ": more than ", text_limit, " bytes of text in one document; cut it into several files, or use .jsonl");
        }
    }
};

DocumentReader::DocumentReader(const std::vector<std::string>& inputs, DocumentOptions options) : impl_(std::make_unique<Impl>()) {
    impl_->files = files_of(inputs, options.format);
    impl_->format = options.format;
    for (const std::string& file : impl_->files) {
        struct stat info;
        impl_->sizes.push_back(file != "-" && ::stat(file.c_str(), &info) == 0 ? int64_t(info.st_size) : 0);
    }
}

DocumentReader::~DocumentReader() = default;

bool DocumentReader::next(RawDocument& document) {
    for (; impl_->file < impl_->files.size(); impl_->close()) {
        const bool fresh = impl_->stream == nullptr;
        if (fresh) impl_->open();
        document.json = impl_->is_json();
        document.file = int64_t(impl_->file);
        if (!document.json && fresh) {
            impl_->whole_file(document.bytes);
            document.line = 0;
            return true;
        }
        if (document.json && impl_->next_line(document.bytes)) {
            document.line = impl_->line;
            return true;
        }
    }
    return false;
}

const std::vector<std::string>& DocumentReader::files() const { return impl_->files; }

int64_t DocumentReader::bytes_read() const { return impl_->done + (impl_->stream ? impl_->stream->offset() : 0); }

int64_t DocumentReader::bytes_total() const {
    int64_t total = 0;
    for (size_t i = 0; i < impl_->files.size(); i++) {
        if (impl_->files[i] == "-") return 0;
        total += impl_->sizes[i];
    }
    return total;
}

std::string DocumentReader::place(const RawDocument& document) const {
    const std::string& path = impl_->files[size_t(document.file)];
    const std::string name = path == "-" ? "standard input" : path;
    return document.json ? text(name, ":", document.line) : name;
}

bool next_batch(DocumentReader& reader, DocumentBatch& batch) {
    size_t bytes = 0;
    RawDocument document;
    while (bytes < chunk_bytes && reader.next(document)) {
        bytes += document.bytes.size();
        batch.places.push_back(reader.place(document));
        batch.documents.push_back(std::move(document));
    }
    batch.bytes_read = reader.bytes_read();
    return !batch.documents.empty();
}

std::string_view document_text(const RawDocument& raw, const DocumentOptions& options, const std::string& place, std::string& scratch) {
    if (!raw.json) return raw.bytes;
    // The parser would take a zero byte for the end and pass over what follows.
    const size_t zero = raw.bytes.find('\0');
    require(zero == std::string::npos, place, ": not valid JSON at byte ", zero + 1, " of the line: a zero byte; write the file again");
    TextField field(options.key, scratch);
    require(nlohmann::json::sax_parse(raw.bytes.begin(), raw.bytes.end(), &field), place, ": not valid JSON at byte ", field.error_byte,
            " of the line; expected one object {\"", options.key, "\": …} a line");
    require(field.found, place, ": no string under the key \"", options.key, "\"; expected one object {\"", options.key, "\": …} a line");
    return scratch;
}

}  // namespace clover
