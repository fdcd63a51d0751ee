#include "commands.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "../kernels/error.h"
#include "bpe_trainer.h"
#include "filter.h"
#include "progress.h"
#include "tokenize.h"
#include "tokenizer_commands.h"

namespace clover {
namespace {

// Options live as long as the functions that use them: each is held by the function that runs the command.

struct TokenizerOptions {
    std::string tokenizer = "bytes", end_of_document;
    std::vector<std::string> inputs = {"-"};
    bool document = false, json = false;
    EncodeOptions encode;
    DecodeOptions decode;
    TextLayout layout() const { return document ? TextLayout::document : json ? TextLayout::json : TextLayout::lines; }
    std::unique_ptr<Tokenizer> load() const { return load_tokenizer(tokenizer, end_of_document); }
};

void add_tokenizer_option(CLI::App* c, TokenizerOptions& o) {
    c->add_option("--tokenizer", o.tokenizer, "bytes, or the path of a tokenizer.json or SentencePiece .model")->required();
}

void add_layout(CLI::App* c, TokenizerOptions& o, const char* document, const char* json) {
    CLI::Option* whole = c->add_flag("--document", o.document, document);
    c->add_flag("--json", o.json, json)->excludes(whole);
}

std::function<int()> add_encode(CLI::App* parent) {
    const auto o = std::make_shared<TokenizerOptions>();
    CLI::App* c = parent->add_subcommand("encode", "text to token ids, a line of ids for each line of text");
    add_tokenizer_option(c, *o);
    add_layout(c, *o, "each input is one text", "a line is a JSON string or object, its ids a JSON array");
    c->add_option("--key", o->encode.key, "where the text of a JSON object is")->capture_default_str();
    c->add_flag("--pieces", o->encode.pieces, "the names of the tokens instead of ids");
    c->add_flag("--special", o->encode.special, "with the begin and end tokens that the tokenizer's file asks for");
    c->add_option("INPUT", o->inputs, "files, also .gz; - reads standard input")->capture_default_str();
    return [o] {
        o->encode.layout = o->layout();
        encode_text(*o->load(), o->encode, o->inputs, stdout);
        return 0;
    };
}

std::function<int()> add_decode(CLI::App* parent) {
    const auto o = std::make_shared<TokenizerOptions>();
    CLI::App* c = parent->add_subcommand("decode", "token ids to text, a line of text for each line of ids");
    add_tokenizer_option(c, *o);
    add_layout(c, *o, "all ids are one text; each character is written as soon as it is certain", "a line is a JSON array, its text a JSON string");
    c->add_flag("--special", o->decode.special, "special and control tokens by name; otherwise they are left out");
    c->add_option("INPUT", o->inputs, "files, also .gz; - reads standard input")->capture_default_str();
    return [o] {
        o->decode.layout = o->layout();
        decode_ids(*o->load(), o->decode, o->inputs, stdout);
        return 0;
    };
}

std::function<int()> add_info(CLI::App* parent) {
    const auto o = std::make_shared<TokenizerOptions>();
    CLI::App* c = parent->add_subcommand("info", "what a tokenizer is: model, vocabulary, special tokens, fingerprint");
    add_tokenizer_option(c, *o);
    c->add_option("--eod", o->end_of_document, "the token that ends a document, by name");
    c->add_flag("--json", o->json, "one JSON object");
    return [o] {
        std::printf("%s", tokenizer_info(*o->load(), o->json).c_str());
        return 0;
    };
}

std::function<int()> add_bench(CLI::App* parent) {
    const auto o = std::make_shared<TokenizerOptions>();
    CLI::App* c = parent->add_subcommand("bench", "speed of encoding on one thread, the median of five rounds");
    add_tokenizer_option(c, *o);
    c->add_flag("--json", o->json, "one JSON object");
    c->add_option("INPUT", o->inputs, "files (.txt, .jsonl, also .gz), folders of them, or - for JSONL on standard input")->required();
    return [o] {
        const EncodeBench r = bench_encode(*o->load(), o->inputs, 5);
        std::printf(o->json ? "{\"documents\": %lld, \"bytes\": %lld, \"tokens\": %lld, \"mb_per_s\": %.3f}\n" : "%lld documents, %lld bytes, %lld tokens, %.1f MB/s\n",
                    static_cast<long long>(r.documents), static_cast<long long>(r.bytes), static_cast<long long>(r.tokens), r.mb_per_s);
        return 0;
    };
}

std::function<int()> add_train(CLI::App* parent) {
    struct Options {
        BpeTraining training;
        std::string out;
        std::vector<std::string> inputs;
        bool json = false;
    };
    const auto o = std::make_shared<Options>();
    CLI::App* c = parent->add_subcommand("train", "train a byte-level BPE tokenizer on text and write a tokenizer.json");
    c->add_option("--vocab", o->training.vocab, "tokens in all: special ones, 256 bytes, merges")->required();
    c->add_option("--out", o->out, "the tokenizer.json to write")->required();
    c->add_option("--style", o->training.style, "pre-tokenizer and special tokens: bloom or gpt2")->capture_default_str();
    c->add_option("--special", o->training.special, "a special token instead of the style's own; may be repeated; ids 0, 1, …")->allow_extra_args(false);
    c->add_option("--min-frequency", o->training.min_frequency, "a pair that occurs less often is not merged")->capture_default_str()->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
    c->add_option("--key", o->training.key, "where the text of a JSON object is")->capture_default_str();
    c->add_option("--threads", o->training.threads, "0: all cores")->capture_default_str()->check(CLI::Range(0, 1024));
    c->add_flag("--json", o->json, "the report as one JSON object");
    c->add_option("INPUT", o->inputs, "files (.txt, .jsonl, also .gz), folders of them, or - for JSONL on standard input")->required();
    return [o] {
        const BpeTrainingReport r = train_bpe(o->training, o->inputs, o->out);
        std::printf("%s", to_text(r, o->out, o->json).c_str());
        if (r.tokens < o->training.vocab)
            std::fprintf(stderr, "warning: the text has no more pairs that occur %lld times; %s has %lld tokens, not %lld\n",
                         static_cast<long long>(o->training.min_frequency), o->out.c_str(), static_cast<long long>(r.tokens),
                         static_cast<long long>(o->training.vocab));
        return 0;
    };
}

DataCommand add_tokenizer(CLI::App& app) {
    CLI::App* c = app.add_subcommand("tokenizer", "encode and decode text, look at a tokenizer, train one")->require_subcommand(1);
    const std::vector<DataCommand> commands = {{"encode", add_encode(c)}, {"decode", add_decode(c)}, {"info", add_info(c)}, {"train", add_train(c)}, {"bench", add_bench(c)}};
    return {"tokenizer", [c, commands] {
                for (const DataCommand& command : commands)
                    if (c->got_subcommand(command.name)) return command.run();
                return 2;
            }};
}

DataCommand add_tokenize(CLI::App& app) {
    struct Options {
        std::string tokenizer, end_of_document, format = "auto";
        TokenizeOptions tokenize;
        bool json = false;
    };
    const auto o = std::make_shared<Options>();
    CLI::App* c = app.add_subcommand("tokenize", "turn text into a token file: Megatron's .bin and .idx, and a record beside them");
    c->add_option("--tokenizer", o->tokenizer, "bytes, or the path of a tokenizer.json or SentencePiece .model")->required();
    c->add_option("--out", o->tokenize.out, "prefix of the token file: PREFIX.bin, PREFIX.idx, PREFIX.json")->required();
    c->add_flag("--append-eod,!--no-append-eod", o->tokenize.append_eod, "end each document with the end-of-document token (the default)");
    c->add_option("--eod", o->end_of_document, "the token that ends a document, by name, where the tokenizer's file does not make that plain");
    c->add_option("--key", o->tokenize.documents.key, "where the text of a JSON object is")->capture_default_str();
    c->add_option("--format", o->format, "text: a file is a document; jsonl: a line is; auto: by the name, standard input is jsonl")
        ->capture_default_str()->check(CLI::IsMember({"auto", "text", "jsonl"}));
    c->add_option("--threads", o->tokenize.threads, "0: all cores")->capture_default_str()->check(CLI::Range(0, 1024));
    c->add_flag("--json", o->json, "the record as one JSON object");
    c->add_option("INPUT", o->tokenize.inputs, "files (.txt, .jsonl, also .gz), folders of them, or - for standard input")->required();
    return {"tokenize", [o] {
                o->tokenize.documents.format = o->format == "text" ? DocumentFormat::text : o->format == "jsonl" ? DocumentFormat::jsonl : DocumentFormat::automatic;
                const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(o->tokenizer, o->end_of_document);
                const Progress clock("");
                const TokenRecord record = tokenize(*tokenizer, o->tokenize);
                std::printf("%s", o->json ? to_json(record).c_str() : "");
                if (!o->json)
                    std::printf("%s: %lld documents (%lld empty ones dropped), %.1f MB of text, %lld tokens, %.2f bytes a token, %.1f MB/s\n", o->tokenize.out.c_str(),
                                static_cast<long long>(record.documents), static_cast<long long>(record.empty_documents), double(record.bytes) / 1e6,
                                static_cast<long long>(record.tokens), double(record.bytes) / double(record.tokens), double(record.bytes) / 1e6 / clock.seconds());
                return 0;
            }};
}

DataCommand add_merge(CLI::App& app) {
    struct Options {
        std::string out;
        std::vector<std::string> prefixes;
    };
    const auto o = std::make_shared<Options>();
    CLI::App* c = app.add_subcommand("merge", "put token files one behind the other into one");
    c->add_option("--out", o->out, "prefix of the new token file")->required();
    c->add_option("PREFIX", o->prefixes, "token files")->required();
    return {"merge", [o] {
                merge_token_files_and_records(o->prefixes, o->out);
                std::printf("%s", token_file_info(o->out, false).c_str());
                return 0;
            }};
}

DataCommand add_token_file_info(CLI::App& app) {
    struct Options {
        std::vector<std::string> prefixes;
        bool json = false;
    };
    const auto o = std::make_shared<Options>();
    CLI::App* c = app.add_subcommand("info", "what a token file holds; reads all of it, and says what is damaged");
    c->add_option("PREFIX", o->prefixes, "token files")->required();
    c->add_flag("--json", o->json, "one JSON object a token file");
    return {"info", [o] {
                for (const std::string& prefix : o->prefixes) std::printf("%s", token_file_info(prefix, o->json).c_str());
                return 0;
            }};
}

std::string list_of_rules() {
    std::string list = "Rules, in the order in which they are asked:\n";
    char line[256];
    for (const FilterRule& rule : filter_rules({})) {
        std::snprintf(line, sizeof line, "  %-32s %8s  %s\n", rule.name.c_str(), limit_text(rule).c_str(), rule.meaning.c_str());
        list += line;
    }
    return list + "The words are cut at white space and the stop words are English: for other languages say --disable stop_words.";
}

DataCommand add_filter(CLI::App& app) {
    const auto o = std::make_shared<FilterOptions>();
    const auto format = std::make_shared<std::string>("auto");
    CLI::App* c = app.add_subcommand("filter", "Gopher's document filters: quality, repetition, exact and near duplicates, documents of test sets");
    c->add_option("--out", o->out, "the JSONL file to write, packed if it ends in .gz")->required();
    c->add_option("--report", o->report, "what was dropped by which rule, as one JSON object");
    c->add_option("--against", o->against, "documents of test sets: what is like them is dropped; may be repeated")->allow_extra_args(false);
    c->add_flag_callback("--no-quality", [o] { o->quality = false; }, "without the quality rules");
    c->add_flag_callback("--no-repetition", [o] { o->repetition = false; }, "without the limits on repetition");
    c->add_flag_callback("--no-dedup", [o] { o->duplicates = false; }, "without the removal of exact and near duplicates");
    c->add_option("--disable", o->disable, "leave out a rule, by name; may be repeated")->allow_extra_args(false);
    c->add_option("--set", o->set, "RULE=VALUE: another limit; may be repeated")->allow_extra_args(false);
    c->add_option("--key", o->documents.key, "where the text of a JSON object is")->capture_default_str();
    c->add_option("--format", *format, "text: a file is a document; jsonl: a line is; auto: by the name, standard input is jsonl")
        ->capture_default_str()->check(CLI::IsMember({"auto", "text", "jsonl"}));
    c->add_option("--threads", o->threads, "0: all cores")->capture_default_str()->check(CLI::Range(0, 1024));
    c->add_flag("--json", o->json, "the report as one JSON object instead of a table");
    c->add_option("INPUT", o->inputs, "files (.txt, .jsonl, also .gz), folders of them, or - for standard input")->required();
    c->footer(list_of_rules());
    return {"filter", [o, format] {
                o->documents.format = *format == "text" ? DocumentFormat::text : *format == "jsonl" ? DocumentFormat::jsonl : DocumentFormat::automatic;
                const Progress clock("");
                const FilterReport report = filter_documents(*o);
                std::printf("%s", (o->json ? filter_json(report) : filter_table(report)).c_str());
                if (!o->json) std::printf("%.1f MB/s\n", double(report.bytes) / 1e6 / clock.seconds());
                return 0;
            }};
}

}  // namespace

std::vector<DataCommand> add_data_commands(CLI::App& app) {
    std::vector<DataCommand> commands = {add_tokenizer(app), add_tokenize(app), add_merge(app), add_token_file_info(app), add_filter(app)};
    for (DataCommand& command : commands)
        command.run = [run = command.run] {
            const int code = run();
            if (std::fflush(stdout) != 0 || std::ferror(stdout)) throw Error(text("cannot write the output: ", std::strerror(errno)));
            return code;
        };
    return commands;
}

}  // namespace clover
