// PREFIX.json, the record that lies beside a token file of ours:
//   source | sources                         what it was made from: the text file, or the inputs as they were given
//   source_size, source_mtime_ns             size and time, for a text file that was tokenised into a cache
//   tokenizer                                Tokenizer::fingerprint()
//   documents, bytes, tokens                 bytes of text; tokens with the ends of documents
//   empty_documents                          how many were dropped because they hold no text
//   end_of_document                          the id that ends every document, or null
//   largest_token                            the largest id in the file
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace clover {

struct TokenRecord {
    std::vector<std::string> sources;
    int64_t source_size = 0, source_mtime_ns = 0;  // 0: not given
    std::string tokenizer;
    int64_t documents = 0, bytes = 0, tokens = 0, empty_documents = 0;
    int32_t end_of_document = -1, largest_token = -1;
};

std::string to_json(const TokenRecord& record);
/// Nothing where PREFIX.json is missing or no record.
std::optional<TokenRecord> read_token_record(const std::string& prefix);
/// Whole or not at all. Written last: where it fits its token file, that is whole.
void write_token_record(const std::string& prefix, const TokenRecord& record);

}  // namespace clover
