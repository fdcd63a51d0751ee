#include "tokenize.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "../kernels/error.h"
#include "indexed_dataset.h"
#include "new_file.h"
#include "ordered.h"
#include "progress.h"

namespace clover {
namespace {

/// Documents, and what a thread makes of them.
struct Batch : DocumentBatch {
    std::vector<int32_t> ids;    // of all documents, one behind the other
    std::vector<size_t> ends;    // where each document's ids end
    std::vector<int64_t> bytes;  // of each document's text
};

void encode_batch(Batch& batch, const Tokenizer& tokenizer, const TokenizeOptions& options) {
    std::string scratch;
    for (size_t i = 0; i < batch.documents.size(); i++) {
        const size_t before = batch.ids.size();
        const std::string_view text = document_text(batch.documents[i], options.documents, batch.places[i], scratch);
        tokenizer.encode(text, batch.ids);
        if (batch.ids.size() > before && options.append_eod) batch.ids.push_back(tokenizer.end_of_document());
        batch.ends.push_back(batch.ids.size());
        batch.bytes.push_back(int64_t(text.size()));
    }
    batch.documents.clear();
}

void write_batch(const Batch& batch, IndexedDatasetWriter& writer, TokenRecord& record) {
    size_t first = 0;
    for (size_t i = 0; i < batch.ends.size(); i++) {
        const size_t count = batch.ends[i] - first;
        if (count == 0) {
            record.empty_documents++;
            continue;
        }
        writer.add_document(std::span<const int32_t>(batch.ids.data() + first, count));
        record.bytes += batch.bytes[i];
        first = batch.ends[i];
    }
}

std::string first_of(const std::vector<std::string>& inputs) { return inputs.empty() ? "no input" : inputs.size() == 1 ? inputs[0] : inputs[0] + " and the other inputs"; }

}  // namespace

TokenRecord tokenize(const Tokenizer& tokenizer, const TokenizeOptions& options) {
    require(!options.append_eod || tokenizer.end_of_document() >= 0, "the tokenizer has no token known to end documents; name one with --eod or data.end_of_document, or write "
            "documents without (--no-append-eod)");
    DocumentReader reader(options.inputs, options.documents);
    IndexedDatasetWriter writer(options.out, tokenizer.vocab_size());
    TokenRecord record;
    Progress progress("tokenizing " + (options.what.empty() ? options.out : options.what));
    const int threads = options.threads > 0 ? options.threads : int(std::max(1u, std::thread::hardware_concurrency()));
    ordered_parallel<Batch>(
        threads, [&](Batch& batch) { return next_batch(reader, batch); }, [&](Batch& batch, int) { encode_batch(batch, tokenizer, options); },
        [&](Batch& batch) {
            write_batch(batch, writer, record);
            progress.show(batch.bytes_read, reader.bytes_total(), text(writer.document_count(), " documents, ", writer.token_count(), " tokens"));
        });
    require(writer.document_count() > 0, first_of(options.inputs), ": no text in it (", record.empty_documents, " empty documents)");
    record.sources = options.inputs;
    record.source_size = options.source_size;
    record.source_mtime_ns = options.source_mtime_ns;
    record.tokenizer = tokenizer.fingerprint();
    record.documents = writer.document_count();
    record.tokens = writer.token_count();
    record.end_of_document = options.append_eod ? tokenizer.end_of_document() : -1;
    record.largest_token = writer.largest_token();
    writer.finish();
    write_token_record(options.out, record);
    return record;
}

void merge_token_files_and_records(const std::vector<std::string>& prefixes, const std::string& out) {
    std::optional<TokenRecord> all = TokenRecord{};
    for (const std::string& prefix : prefixes) {
        require(prefix != out, out, ": is both an input and the output; choose another --out");
        const std::optional<TokenRecord> record = read_token_record(prefix);
        if (!record || !all) {
            all.reset();
            continue;
        }
        if (all->tokenizer.empty()) all->tokenizer = record->tokenizer, all->end_of_document = record->end_of_document;
        require(record->tokenizer == all->tokenizer, prefix, ": was made with tokenizer ", record->tokenizer, ", but ", prefixes[0], " with ", all->tokenizer,
                "; token files of different tokenizers do not go together");
        if (record->end_of_document != all->end_of_document) all->end_of_document = -1;
        all->sources.insert(all->sources.end(), record->sources.begin(), record->sources.end());
        all->documents += record->documents, all->bytes += record->bytes, all->tokens += record->tokens, all->empty_documents += record->empty_documents;
        all->largest_token = std::max(all->largest_token, record->largest_token);
    }
    merge_token_files(prefixes, out);
    if (all) write_token_record(out, *all);
}

std::string token_file_info(const std::string& prefix, bool as_json) {
    const IndexedDataset data(prefix);
    int64_t shortest = data.sequence_count() > 0 ? data.length(0) : 0, longest = 0;
    for (int64_t i = 0; i < data.sequence_count(); i++) shortest = std::min(shortest, data.length(i)), longest = std::max(longest, data.length(i));
    const char* names[] = {"", "uint8", "int8", "int16", "int32", "int64", "", "", "uint16"};
    const double mean = data.sequence_count() > 0 ? double(data.token_count()) / double(data.sequence_count()) : 0;
    nlohmann::ordered_json info = {{"prefix", prefix},
                                   {"dtype", names[data.dtype_code()]},
                                   {"documents", data.document_count()},
                                   {"sequences", data.sequence_count()},
                                   {"tokens", data.token_count()},
                                   {"shortest", shortest},
                                   {"mean", std::round(mean * 10) / 10},
                                   {"longest", longest},
                                   {"largest_token", data.largest_token()}};
    if (const std::optional<TokenRecord> record = read_token_record(prefix)) {
        info["tokenizer"] = record->tokenizer;
        info["bytes"] = record->bytes;
        info["empty_documents"] = record->empty_documents;
        info["end_of_document"] = record->end_of_document < 0 ? nlohmann::json(nullptr) : nlohmann::json(record->end_of_document);
        if (record->tokens > 0) info["bytes_per_token"] = std::round(1000 * double(record->bytes) / double(record->tokens)) / 1000;
    }
    if (as_json) return info.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    std::string table;
    for (const auto& [name, value] : info.items()) table += text(name, std::string(name.size() < 16 ? 18 - name.size() : 2, ' '), value.is_string() ? value.get<std::string>() : value.dump(), "\n");
    return table;
}

}  // namespace clover
