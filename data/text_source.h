// From text to token files: plain text (.txt: the file is one document), JSONL (one {"text": …} object a line), each also .gz.
#pragma once
#include <functional>
#include <string>

#include "tokenizer.h"

namespace clover {

/// The bytes of a file, gunzipped if its name ends in .gz. Throws InputError with path and reason; a gzip file that expands to
/// more than `limit` bytes is refused.
std::string read_text_file(const std::string& path, size_t limit = size_t{4} << 30);

/// Calls `document(text)` for each document of a .txt, .jsonl, .txt.gz or .jsonl.gz file. Throws InputError with file:line.
void for_each_document(const std::string& path, const std::function<void(std::string_view)>& document);

/// The prefix of a token file for `path`: itself if PREFIX.idx exists, else the file tokenised once into `cache` (end-of-document
/// appended to each document; empty documents dropped). A cached file is reused while the source's size and time and the
/// tokenizer are the same. Throws InputError when the file is missing, empty, or has no documents.
std::string resolve_token_file(const std::string& path, const Tokenizer& tokenizer, const std::string& cache);

/// The tokenizer's fingerprint stored beside a token file (PREFIX.json), or "" if there is none.
std::string token_file_tokenizer(const std::string& prefix);

}  // namespace clover
