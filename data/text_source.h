// The text files that a run or a command names: read whole, document by document, or as the token file that is made of them once.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tokenizer.h"

namespace clover {

/// The bytes of a file, or of standard input ("-"), gunzipped if its name ends in .gz. Throws InputError with path and reason; a file of more than `limit`
/// bytes (unpacked) is refused, because a small gzip file can expand a thousandfold.
std::string read_text_file(const std::string& path, size_t limit = size_t{1} << 30);

/// Calls `document(text)` for each document of a file (documents.h), empty ones too; the view holds during the call.
void for_each_document(const std::string& path, const std::function<void(std::string_view)>& document);

/// The prefix of a token file for `path`: itself if PREFIX.idx exists, else the text file, or folder of text files, tokenised once into `cache`, as
/// CACHE/NAME-HASH. A cached file is reused while the source's size and time and the tokenizer are the same; processes that
/// want the same file wait for each other. Throws InputError when the file is missing, empty, or has no documents, or when
/// PREFIX.json says that another tokenizer made PREFIX.
std::string resolve_token_file(const std::string& path, const Tokenizer& tokenizer, const std::string& cache);

/// The tokenizer's fingerprint stored beside a token file (PREFIX.json), or "" if there is none.
std::string token_file_tokenizer(const std::string& prefix);

}  // namespace clover
