#include "token_record.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "indexed_dataset.h"
#include "new_file.h"

namespace clover {

using Json = nlohmann::ordered_json;

std::string to_json(const TokenRecord& r) {
    Json record;
    if (r.sources.size() == 1) record["source"] = r.sources[0];
    else record["sources"] = r.sources;
    if (r.source_size > 0) {
        record["source_size"] = r.source_size;
        record["source_mtime_ns"] = r.source_mtime_ns;
    }
    record["tokenizer"] = r.tokenizer;
    record["documents"] = r.documents;
    record["bytes"] = r.bytes;
    record["tokens"] = r.tokens;
    record["empty_documents"] = r.empty_documents;
    record["end_of_document"] = r.end_of_document < 0 ? Json(nullptr) : Json(r.end_of_document);
    record["largest_token"] = r.largest_token;
    // `replace` for paths that are not UTF-8.
    return record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<TokenRecord> read_token_record(const std::string& prefix) {
    const std::string path = prefix + ".json";
    if (!std::filesystem::is_regular_file(path)) return {};
    const MappedFile file(path);
    if (file.size() > (size_t{1} << 24)) return {};
    const char* text = reinterpret_cast<const char*>(file.data());
    const Json json = Json::parse(text, text + file.size(), nullptr, false);
    if (!json.is_object()) return {};
    try {
        TokenRecord r;
        if (json.contains("source")) r.sources = {json.at("source").get<std::string>()};
        else if (json.contains("sources")) r.sources = json.at("sources").get<std::vector<std::string>>();
        r.source_size = json.value("source_size", int64_t{0});
        r.source_mtime_ns = json.value("source_mtime_ns", int64_t{0});
        r.tokenizer = json.at("tokenizer").get<std::string>();
        r.documents = json.at("documents").get<int64_t>();
        r.bytes = json.at("bytes").get<int64_t>();
        r.tokens = json.at("tokens").get<int64_t>();
        r.empty_documents = json.value("empty_documents", int64_t{0});
        if (json.contains("end_of_document") && json["end_of_document"].is_number_integer()) r.end_of_document = json["end_of_document"].get<int32_t>();
        r.largest_token = json.value("largest_token", -1);
        return r;
    } catch (const Json::exception&) {
        return {};
    }
}

void write_token_record(const std::string& prefix, const TokenRecord& record) { write_file_whole(prefix + ".json", to_json(record)); }

}  // namespace clover
