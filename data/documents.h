// Documents from what people have: plain text (one document a file), JSONL (one {"text": …} object a line), folders of them, each also .gz,
// and standard input. Reading is cut in two, so that the costly half runs on many threads: RawDocument is what one thread takes off the disk in order,
// document_text() what any thread makes of it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace clover {

enum class DocumentFormat : uint8_t { automatic, text, jsonl };  // automatic: by the name; standard input: jsonl

struct DocumentOptions {
    DocumentFormat format = DocumentFormat::automatic;
    std::string key = "text";  // of a JSONL object
};

struct RawDocument {
    std::string bytes;   // a JSONL line without its line feed, or a whole text file
    bool json = false;
    int64_t file = 0, line = 0;  // number in DocumentReader::files(); line from 1
};

class DocumentReader {
public:
    /// Inputs are files, folders (searched to any depth in the order of their paths, for .txt, .jsonl and these with .gz; others are passed over) and "-",
    /// standard input. Throws InputError for one that does not exist, or a folder without any such file.
    DocumentReader(const std::vector<std::string>& inputs, DocumentOptions options = {});
    ~DocumentReader();
    DocumentReader(const DocumentReader&) = delete;
    /// The next document, blank lines passed over; false at the end. Throws InputError with file:line.
    bool next(RawDocument& document);
    const std::vector<std::string>& files() const;
    /// Of the files as they lie on the disk, for a progress bar; total 0: not known (standard input).
    int64_t bytes_read() const;
    int64_t bytes_total() const;
    /// "PATH:LINE" or "PATH", to open a message with.
    std::string place(const RawDocument& document) const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// Some documents on their way from the reader's thread to others: about a megabyte, or one.
struct DocumentBatch {
    std::vector<RawDocument> documents;
    std::vector<std::string> places;  // of each
    int64_t bytes_read = 0;           // DocumentReader::bytes_read() when they had been read
};
/// False at the end.
bool next_batch(DocumentReader& reader, DocumentBatch& batch);

/// The text of a document: a view of raw.bytes, or of `scratch` for JSON. Throws InputError that opens with `place`. A JSON text with a lone surrogate or bytes
/// that are not UTF-8 is refused; plain text may hold any bytes.
std::string_view document_text(const RawDocument& raw, const DocumentOptions& options, const std::string& place, std::string& scratch);

}  // namespace clover
