// From text to token files: plain text (.txt: the file is one document), JSONL (one {"text": …} object a line), each also .gz.
// Beside a token file lies PREFIX.json, the record of what it was made from:
//   source                                   the text file, or the list of files it was made from
//   source_size, source_mtime_ns             its size and time, for a text file
//   tokenizer                                Tokenizer::fingerprint()
//   documents, bytes, tokens                 bytes of text; tokens with one end of document for each document
//   empty_documents                          how many were dropped because they hold no text
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "indexed_dataset.h"
#include "tokenizer.h"

namespace clover {

/// The bytes of a file, gunzipped if its name ends in .gz. Throws InputError with path and reason; a file of more than `limit`
/// bytes (unpacked) is refused, because a small gzip file can expand a thousandfold.
std::string read_text_file(const std::string& path, size_t limit = size_t{1} << 30);

/// Calls `document(text)` for each document of a .txt, .jsonl, .txt.gz or .jsonl.gz file, empty ones too; the view holds during
/// the call. Other keys of a JSONL object are ignored, as are blank lines. A line has at most 256 MB. Throws InputError with
/// file:line.
void for_each_document(const std::string& path, const std::function<void(std::string_view)>& document);

/// Tokenises documents into PREFIX.bin, .idx and .json, each document followed by the end-of-document token.
class TokenFileWriter {
public:
    TokenFileWriter(const std::string& prefix, const Tokenizer& tokenizer);
    /// Returns false for an empty document, which is dropped.
    bool add(std::string_view document);
    /// The record is written last: where it fits its source, the token file is whole. A size of 0 leaves size and time out.
    void finish(const std::string& source, int64_t source_size = 0, int64_t source_mtime_ns = 0);
    int64_t document_count() const { return writer_.document_count(); }
    int64_t token_count() const { return writer_.token_count(); }
    int64_t byte_count() const { return bytes_; }
    int64_t empty_count() const { return empty_; }

private:
    std::string prefix_;
    const Tokenizer& tokenizer_;
    IndexedDatasetWriter writer_;
    std::vector<int32_t> ids_;
    int64_t bytes_ = 0, empty_ = 0;
};

/// The prefix of a token file for `path`: itself if PREFIX.idx exists, else the file tokenised once into `cache`, as
/// CACHE/NAME-HASH. A cached file is reused while the source's size and time and the tokenizer are the same; processes that
/// want the same file wait for each other. Throws InputError when the file is missing, empty, or has no documents, or when
/// PREFIX.json says that another tokenizer made PREFIX.
std::string resolve_token_file(const std::string& path, const Tokenizer& tokenizer, const std::string& cache);

/// The tokenizer's fingerprint stored beside a token file (PREFIX.json), or "" if there is none.
std::string token_file_tokenizer(const std::string& prefix);

}  // namespace clover
