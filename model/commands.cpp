#include "commands.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "checkpoint_directory.h"
#include "evaluate.h"

namespace clover {
namespace {

struct EvalCommand {
    EvalOptions eval;
    std::string checkpoint, device = "auto";
    bool positions = false, json = false;
};

int run(const EvalCommand& o) {
    std::vector<std::string> warnings;
    const std::string folder = resolve_checkpoint(o.checkpoint, warnings);
    for (const std::string& w : warnings) std::fprintf(stderr, "warning: %s\n", w.c_str());
    const EvalReport report = evaluate_lengths(read_checkpoint(folder), find_device(o.device), o.eval);
    std::printf("%s", (o.json ? to_json(report, o.positions) : to_table(report, o.positions)).c_str());
    return 0;
}

}  // namespace

DataCommand add_eval_command(CLI::App& app) {
    const auto o = std::make_shared<EvalCommand>();
    constexpr int64_t most = int64_t{1} << 40;
    CLI::App* c = app.add_subcommand("eval", "loss, perplexity and bits per byte of a trained model, at several context lengths");
    c->add_option("--checkpoint", o->checkpoint, "a run's folder or one of its checkpoints")->required();
    c->add_option("--data", o->eval.data, "text (.txt, .jsonl, .gz, a folder of them) or the prefix of a .bin/.idx pair")->required();
    c->add_option("--context", o->eval.contexts, "lengths of the windows, N,N,...; by default the trained one. Learned positions end at that")
        ->delimiter(',')->allow_extra_args(false)->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
    c->add_option("--stride", o->eval.stride, "also by windows that slide by N tokens and score their last N; up to the shortest context")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
    c->add_option("--tokens", o->eval.tokens, "predict only the first N tokens; every length predicts the same ones")->check(CLI::Range(int64_t{1}, most));
    c->add_option("--micro-batch", o->eval.micro_batch, "windows at a time; by default as many as take the tokens of a micro-batch in training")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
    c->add_flag("--positions", o->positions, "also the loss by the number of tokens before, in powers of two");
    c->add_flag("--json", o->json, "one JSON object");
    c->add_option("--device", o->device, "cpu, cuda, or auto: cuda where there is a GPU")->capture_default_str();
    return {"eval", [o] { return run(*o); }};
}

}  // namespace clover
