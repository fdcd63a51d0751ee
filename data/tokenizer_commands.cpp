#include "tokenizer_commands.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "../kernels/error.h"
#include "byte_stream.h"
#include "documents.h"
#include "text_source.h"

namespace clover {
namespace {

using nlohmann::json;

/// Output that ends the program quietly where nobody reads it any more, and says so where the disk is full.
class Output {
public:
    explicit Output(std::FILE* file) : file_(file) {}
    void write(std::string_view bytes) {
        if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail();
    }
    void flush() {
        if (std::fflush(file_) != 0) fail();
    }

private:
    std::FILE* file_;
    [[noreturn]] void fail() { throw Error(text("cannot write the output: ", std::strerror(errno))); }
};

/// Calls line(text, "PATH:NUMBER") for each line of each input, without its line feed.
template <class F>
void for_each_line(const std::vector<std::string>& inputs, F line) {
    for (const std::string& input : inputs) {
        ByteStream stream(input);
        std::string chunk(size_t{1} << 16, '\0'), pending;
        int64_t number = 0;
        while (const size_t n = stream.read(chunk.data(), chunk.size())) {
            std::string_view rest(chunk.data(), n);
            for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
                line(std::string_view(pending.append(rest.substr(0, end))), text(stream.path(), ":", ++number));
                pending.clear();
            }
            pending.append(rest);
        }
        if (!pending.empty()) line(std::string_view(pending), text(stream.path(), ":", ++number));
    }
}

std::string parse_text(std::string_view line, const std::string& key, const std::string& place) {
    if (const size_t first = line.find_first_not_of(" \t"); first != std::string_view::npos && line[first] == '{') {
        RawDocument raw;
        raw.bytes = line, raw.json = true;
        std::string text;
        document_text(raw, {.key = key}, place, text);
        return text;
    }
    const json value = json::parse(line, nullptr, false);
    require(value.is_string(), place, ": expected a JSON string, or an object with one under \"", key, "\"");
    return value.get<std::string>();
}

class Encoder {
public:
    Encoder(const Tokenizer& tokenizer, const EncodeOptions& options, std::FILE* out) : tokenizer_(tokenizer), options_(options), out_(out) {}
    void encode(std::string_view text) {
        ids_.clear();
        tokenizer_.encode(text, ids_);
        if (options_.special) tokenizer_.add_special_tokens(ids_, 0);
        if (options_.layout == TextLayout::json) write_json();
        else write_line();
    }
    void flush() { out_.flush(); }

private:
    const Tokenizer& tokenizer_;
    const EncodeOptions& options_;
    Output out_;
    std::vector<int32_t> ids_;
    std::string line_;

    void write_line() {
        line_.clear();
        for (int32_t id : ids_) {
            if (!line_.empty()) line_ += ' ';
            options_.pieces ? line_ += tokenizer_.token_name(id) : line_ += std::to_string(id);
        }
        out_.write(line_ += '\n');
    }
    void write_json() {
        json list = json::array();
        for (int32_t id : ids_) options_.pieces ? list.push_back(tokenizer_.token_name(id)) : list.push_back(id);
        out_.write(list.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
    }
};

/// Calls id(value, "PATH:LINE:COLUMN") for each number of a line.
template <class F>
void for_each_id(std::string_view line, const std::string& place, const Tokenizer& tokenizer, F id) {
    for (size_t at = 0; (at = line.find_first_not_of(" \t\r\v\f,", at)) != std::string_view::npos;) {
        const size_t end = std::min(line.find_first_of(" \t\r\v\f,", at), line.size());
        const std::string_view word = line.substr(at, end - at);
        const bool number = word.size() <= 10 && std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
        const int64_t value = number ? std::stoll(std::string(word)) : -1;
        require(number, place, ":", at + 1, ": \"", word.substr(0, 40), "\" is no token id, expected a number");
        require(value < tokenizer.vocab_size(), place, ":", at + 1, ": there is no token ", value, "; ids go from 0 to ", tokenizer.vocab_size() - 1);
        id(int32_t(value));
        at = end;
    }
}

}  // namespace

void encode_text(const Tokenizer& tokenizer, const EncodeOptions& options, const std::vector<std::string>& inputs, std::FILE* out) {
    Encoder encoder(tokenizer, options, out);
    if (options.layout == TextLayout::document) {
        for (const std::string& input : inputs) encoder.encode(read_text_file(input));
    } else {
        for_each_line(inputs, [&](std::string_view line, const std::string& place) {
            if (options.layout == TextLayout::json) encoder.encode(parse_text(line, options.key, place));
            else encoder.encode(line);
        });
    }
    encoder.flush();
}

void decode_ids(const Tokenizer& tokenizer, const DecodeOptions& options, const std::vector<std::string>& inputs, std::FILE* file) {
    Output out(file);
    const std::unique_ptr<Decoder> decoder = tokenizer.decoder(options.special);
    std::string text;
    const auto end = [&](const char* after) {
        decoder->finish(text);
        if (options.layout == TextLayout::json) text = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
        out.write(text += after);
        text.clear();
    };
    for_each_line(inputs, [&](std::string_view line, const std::string& place) {
        if (options.layout == TextLayout::json) {
            const size_t first = line.find_first_not_of(" \t"), last = line.find_last_not_of(" \t\r");
            require(first != std::string_view::npos && line[first] == '[' && line[last] == ']', place, ": expected a JSON array of ids");
            line = line.substr(first + 1, last - first - 1);
        }
        for_each_id(line, place, tokenizer, [&](int32_t id) {
            decoder->push(id, text);
            if (options.layout != TextLayout::document) return;
            out.write(text);
            out.flush();
            text.clear();
        });
        if (options.layout != TextLayout::document) end("\n");
    });
    if (options.layout == TextLayout::document) end("");
    out.flush();
}

EncodeBench bench_encode(const Tokenizer& tokenizer, const std::vector<std::string>& inputs, int rounds) {
    EncodeBench result;
    std::vector<std::string> texts;
    DocumentReader reader(inputs);
    RawDocument raw;
    std::string scratch;
    while (reader.next(raw)) texts.emplace_back(document_text(raw, {}, reader.place(raw), scratch));
    std::vector<double> seconds;
    std::vector<int32_t> ids;
    for (int round = 0; round <= rounds; round++) {
        result = {int64_t(texts.size()), 0, 0, 0};
        const auto start = std::chrono::steady_clock::now();
        for (const std::string& text : texts) {
            ids.clear();
            tokenizer.encode(text, ids);
            result.bytes += int64_t(text.size());
            result.tokens += int64_t(ids.size());
        }
        if (round > 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    require(result.bytes > 0, "there is no text to encode");
    std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
    result.mb_per_s = double(result.bytes) / 1e6 / seconds[size_t(rounds / 2)];
    return result;
}

std::string tokenizer_info(const Tokenizer& tokenizer, bool as_json) {
    const int32_t eod = tokenizer.end_of_document();
    std::vector<std::pair<std::string, std::string>> rows = tokenizer.description();
    rows.emplace_back("end of document", eod < 0 ? "none" : text(tokenizer.token_name(eod), " (", eod, ")"));
    rows.emplace_back("fingerprint", tokenizer.fingerprint());
    if (as_json) {
        nlohmann::ordered_json object = {{"vocab_size", tokenizer.vocab_size()}, {"end_of_document", eod < 0 ? json(nullptr) : json(eod)}};
        for (const auto& [name, value] : rows)
            if (name != "end of document") object[name] = value;
        return object.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
    }
    std::string table = text("vocabulary        ", tokenizer.vocab_size(), " ids\n");
    for (const auto& [name, value] : rows) table += name + std::string(name.size() < 16 ? 18 - name.size() : 2, ' ') + value + "\n";
    return table;
}

}  // namespace clover
