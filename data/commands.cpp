#include "commands.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "bpe_trainer.h"
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

}  // namespace

std::vector<DataCommand> add_data_commands(CLI::App& app) { return {add_tokenizer(app)}; }

}  // namespace clover
