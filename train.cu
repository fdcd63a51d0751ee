// Clover's commands, and the training loop. `./clover COMMAND --help` says what each takes.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "data/commands.h"
#include "data/corpus.h"
#include "model/bench.h"
#include "model/checkpoint_directory.h"
#include "model/commands.h"
#include "model/continuation.h"
#include "model/flops.h"
#include "model/run_log.h"
#include "report/ablation.h"
#include "report/commands.h"

using namespace clover;

namespace {

// The one variable outside of any rank: a signal handler can reach nothing else. First Ctrl-C: finish the step, save, stop.
volatile sig_atomic_t stop_requested = 0;

void request_stop(int signal_number) {
    stop_requested = 1;
    signal(signal_number, SIG_DFL);  // a second one ends the process at once
}

struct TrainOptions {
    std::string config, out = "runs/default", device = "auto";
    std::vector<std::string> set;
    bool resume = false, override_schedule = false;
};

// As resolve_checkpoint(), with its warnings shown.
std::string checkpoint_folder(const std::string& path) {
    std::vector<std::string> warnings;
    const std::string folder = resolve_checkpoint(path, warnings);
    for (const std::string& w : warnings) std::fprintf(stderr, "warning: %s\n", w.c_str());
    return folder;
}

// The newest whole checkpoint of a run; without a folder for a run that was ended before its first. `overrides`: what --override changes.
CheckpointInfo find_checkpoint(const TrainOptions& o, const Config& config, std::vector<Override>& overrides) {
    const std::string begun = o.out + "/config.toml", checkpoints = o.out + "/checkpoints";
    if (list_checkpoints(checkpoints).empty() && std::filesystem::exists(begun)) {
        require_continues(begun, read_config(begun, {}), config, o.override_schedule);
        return {};
    }
    CheckpointInfo info = read_checkpoint(checkpoint_folder(checkpoints));
    overrides = require_continues(info.folder, info.config, config, o.override_schedule);
    require(config.train.steps >= info.progress.step, "train.steps = ", config.train.steps, ": ", info.folder, " is beyond it already; raise it");
    return info;
}

// A disk that cannot take the first checkpoint is better known before the first step.
void require_space(const std::string& out, const Config& config) {
    const uintmax_t needed = uintmax_t(ParameterTable(config.model).parameter_count()) * 12;  // f32 parameters and two moments
    std::filesystem::path existing = std::filesystem::absolute(out);
    while (!std::filesystem::exists(existing)) existing = existing.parent_path();
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(existing, error);
    require(error || space.available >= needed, "--out ", out, ": a checkpoint takes ", format_bytes(needed), ", ", format_bytes(space.available),
            " are free there; free some space or choose another --out");
}

int train(const TrainOptions& o) {
    const Config config = read_config(o.config, o.set);
    for (const std::string& w : config_warnings(config)) std::fprintf(stderr, "warning: %s\n", w.c_str());
    const std::string checkpoints = o.out + "/checkpoints", log_path = o.out + "/log.jsonl";
    const bool begun = !list_checkpoints(checkpoints).empty() || (std::filesystem::exists(log_path) && std::filesystem::file_size(log_path) > 0);
    require(o.resume || !begun, "--out ", o.out, ": holds a run already; continue it with --resume, or choose another --out");
    require_space(o.out, config);
    require(o.resume || !o.override_schedule, "--override changes a run that --resume continues; give both, or neither");
    CheckpointInfo checkpoint, start;
    std::vector<Override> overrides;
    if (o.resume) checkpoint = find_checkpoint(o, config, overrides);
    const bool continues = !checkpoint.folder.empty(), starts = !continues && !config.checkpoint.start.empty();
    if (starts) start = read_checkpoint(checkpoint_folder(config.checkpoint.start));

    const Device& device = find_device(o.device);
    TrainingData data = open_training_data(config);
    const std::string data_summary = data.summary;
    const double peak = MatmulPeak(device, precision_of(config.precision).activation).measure(3);
    RunLog log(o.out, config, checkpoint.progress.step, peak);
    Trainer trainer(config, device, std::move(data));
    if (continues) trainer.resume(checkpoint);
    if (starts) trainer.start(start);
    log.note(to_toml(config));
    log.note(text("data\n", data_summary));
    log.note(text(trainer.table().parameter_count(), " parameters on device ", device.name, "\n", memory_table(trainer.memory())));
    if (o.resume) log.note(continues ? text("resumed from ", checkpoint.folder) : text(o.out, " has no checkpoint yet; the run begins anew"));
    if (starts) log.note("parameters of " + start.folder);
    log.overrides(trainer.progress(), overrides);

    signal(SIGINT, request_stop);
    signal(SIGTERM, request_stop);
    const auto due = [&](int64_t every) { return every > 0 && trainer.progress().step % every == 0; };
    int64_t saved_step = trainer.progress().step;
    const auto save = [&] {
        if (saved_step == trainer.progress().step) return;
        log.sync();  // the log is never behind a checkpoint
        log.note("saved " + trainer.save(checkpoints));
        saved_step = trainer.progress().step;
    };

    while (trainer.progress().step < config.train.steps && !stop_requested) {
        log.step(trainer.step());
        const bool last = trainer.progress().step == config.train.steps;
        if (trainer.validates() && (last || due(config.train.eval_every))) log.validation(trainer.progress(), trainer.evaluate(), trainer.drawn());
        if (last || due(config.train.sample_every))
            for (const std::string& prompt : config.train.sample_prompts) log.sample(trainer.progress(), prompt, trainer.sample(prompt));
        if (last || due(config.checkpoint.every)) save();
    }
    if (trainer.progress().step == config.train.steps) {
        log.note(text("drawn from the training data\n", drawn_table(trainer.drawn()), "done: ", config.train.steps, " steps"));
        return 0;
    }
    save();
    log.note("stopped; continue with --resume");
    return 130;
}

struct GenerateOptions {
    std::string checkpoint, prompt, device = "auto";
    int64_t max_tokens = 256;
    Sampling sampling;
};

int generate(GenerateOptions o) {
    if (o.prompt == "-") o.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    const CheckpointInfo checkpoint = read_checkpoint(checkpoint_folder(o.checkpoint));
    const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(checkpoint.tokenizer_spec, checkpoint.config.data.end_of_document);
    std::vector<int32_t> prompt;
    tokenizer->encode(o.prompt, prompt);
    if (prompt.empty()) prompt.push_back(std::max(tokenizer->end_of_document(), 0));

    LoadedModel model(checkpoint, find_device(o.device), int64_t(prompt.size()) + o.max_tokens);
    std::fwrite(o.prompt.data(), 1, o.prompt.size(), stdout);
    const std::unique_ptr<Decoder> decoder = tokenizer->decoder();
    std::string ready;
    const auto show = [&] {
        std::fwrite(ready.data(), 1, ready.size(), stdout);
        std::fflush(stdout);
        ready.clear();
    };
    model.generator().generate(model.context(), prompt, o.max_tokens, o.sampling, [&](int32_t id) {
        if (id == tokenizer->end_of_document() || id >= tokenizer->vocab_size()) return false;
        decoder->push(id, ready);
        show();
        return true;
    });
    decoder->finish(ready);
    show();
    std::printf("\n");
    return 0;
}

struct CorpusOptions {
    std::string list = "configs/corpus-debian.toml", out = "corpus";
};

int corpus(const CorpusOptions& o) {
    std::printf("%s", corpus_table(prepare_corpus(o.list, o.out)).c_str());
    return 0;
}

struct BenchOptions {
    std::string config, device = "auto";
    std::vector<std::string> set;
    int64_t steps = 5;
    bool json = false;
};

template <class Result>
int bench(const BenchOptions& o, Result measure(Config, const Device&, int64_t)) {
    const Result result = measure(read_config(o.config, o.set), find_device(o.device), o.steps);
    std::printf("%s", (o.json ? to_json(result) : to_table(result)).c_str());
    return 0;
}

void add_train(CLI::App& app, TrainOptions& o) {
    CLI::App* c = app.add_subcommand("train", "train a model; Ctrl-C saves and stops");
    c->add_option("CONFIG", o.config, "TOML file")->required();
    c->add_option("--set", o.set, "section.key=value, over the file; may be repeated")->allow_extra_args(false);
    c->add_option("--out", o.out, "folder of the run: config.toml, log.jsonl, checkpoints/")->capture_default_str();
    c->add_flag("--resume", o.resume, "continue from the newest whole checkpoint in --out");
    c->add_flag("--override", o.override_schedule, "with --resume: lr, min_lr, start_lr, warmup, decay, schedule, clip, weight_decay and train.steps may differ from the run's");
    c->add_option("--device", o.device, "cpu, cuda, or auto: cuda where there is a GPU")->capture_default_str();
    c->footer("keys of CONFIG:\n" + config_reference());
}

// CLI::Range lets nan through.
std::string is_number(const std::string& value) { return value.find_first_of("nN") == std::string::npos ? "" : value + " is not a number"; }

void add_generate(CLI::App& app, GenerateOptions& o) {
    CLI::App* c = app.add_subcommand("generate", "continue a text with a trained model");
    c->add_option("--checkpoint", o.checkpoint, "a run's folder or one of its checkpoints")->required();
    c->add_option("--prompt", o.prompt, "text to continue; - reads standard input")->required();
    c->add_option("--max-tokens", o.max_tokens, "tokens to add")->capture_default_str()->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
    c->add_option("--temperature", o.sampling.temperature, "0: always the likeliest token")->capture_default_str()->check(CLI::Range(0.0, 100.0))->check(is_number);
    c->add_option("--top-k", o.sampling.top_k, "keep the k likeliest tokens; 0: all")->capture_default_str()->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
    c->add_option("--top-p", o.sampling.top_p, "keep the likeliest tokens that hold this much probability")->capture_default_str()->check(CLI::Range(0.0, 1.0))->check(is_number);
    c->add_option("--seed", o.sampling.seed, "another seed, another text")->capture_default_str()->check(CLI::NonNegativeNumber);
    c->add_option("--device", o.device, "cpu, cuda, or auto: cuda where there is a GPU")->capture_default_str();
}

void add_corpus(CLI::App& app, CorpusOptions& o) {
    CLI::App* c = app.add_subcommand("corpus", "turn manuals and source code on this machine into per-language text files");
    c->add_option("LIST", o.list, "TOML list of languages and where their files lie")->capture_default_str();
    c->add_option("--out", o.out, "folder for LANGUAGE.train.jsonl, LANGUAGE.valid.jsonl and LANGUAGE.train.txt")->capture_default_str();
}

void add_bench(CLI::App& app, BenchOptions& o) {
    CLI::App* c = app.add_subcommand("bench", "measure speed against this machine's own peak")->require_subcommand(1);
    for (const auto& [name, help] : {std::pair{"train", "training steps on random tokens"}, {"optimizer", "the optimizer's step alone, against a copy of memory"}}) {
        CLI::App* t = c->add_subcommand(name, help);
        t->add_option("CONFIG", o.config, "TOML file")->required();
        t->add_option("--set", o.set, "section.key=value, over the file; may be repeated")->allow_extra_args(false);
        t->add_option("--steps", o.steps, "measured steps, after one to warm up; the median counts")->capture_default_str()->check(CLI::Range(1, 1000000));
        t->add_option("--device", o.device, "cpu, cuda, or auto: cuda where there is a GPU")->capture_default_str();
        t->add_flag("--json", o.json, "one JSON object");
    }
}

// CLI11 would only say that a command is missing.
void check_command(CLI::App& app, int argc, char** argv) {
    std::string names;
    const std::string first = argc > 0 ? argv[0] : "-";
    for (CLI::App* c : app.get_subcommands({})) {
        if (c->get_name() == first) return check_command(*c, argc - 1, argv + 1);
        names += (names.empty() ? "" : ", ") + c->get_name();
    }
    const std::string of = app.get_name().empty() ? "" : app.get_name() + " ";
    require(names.empty() || first[0] == '-', "there is no command ", of, first, "; the commands are ", names);
}

int run(int argc, char** argv) {
    CLI::App app("Clover trains BLOOM and Gopher.");
    app.require_subcommand(1);
    TrainOptions train_options;
    GenerateOptions generate_options;
    CorpusOptions corpus_options;
    BenchOptions bench_options;
    add_train(app, train_options);
    add_generate(app, generate_options);
    add_corpus(app, corpus_options);
    add_bench(app, bench_options);
    std::vector<DataCommand> more_commands = add_data_commands(app);
    more_commands.push_back(add_eval_command(app));
    more_commands.push_back(add_report_command(app));
    more_commands.push_back(add_ablation_command(app));
    check_command(app, argc - 1, argv + 1);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 2;
    }
    if (app.got_subcommand("train")) return train(train_options);
    if (app.got_subcommand("generate")) return generate(generate_options);
    if (app.got_subcommand("corpus")) return corpus(corpus_options);
    for (const DataCommand& command : more_commands)
        if (app.got_subcommand(command.name)) return command.run();
    return app.get_subcommand("bench")->got_subcommand("train") ? bench(bench_options, bench_train) : bench(bench_options, bench_optimizer);
}

// By default OpenMP's idle threads spin for milliseconds, which starves the working ones as soon as another program wants a core: a
// step then takes ten times as long. libgomp reads its settings before main, so the program starts itself once more with a short spin,
// unless the user has chosen.
void limit_spinning(char** argv) {
    if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
    setenv("GOMP_SPINCOUNT", "30000", 1);
    execv("/proc/self/exe", argv);  // returns only where it failed; then the run goes on as it is
}

}  // namespace

int main(int argc, char** argv) {
    limit_spinning(argv);
    try {
        return run(argc, argv);
    } catch (const InputError& e) {
        std::fprintf(stderr, "clover: %s\n", e.what());
        return 2;
    } catch (const std::bad_alloc&) {
        std::fprintf(stderr, "clover: not enough memory; lower train.global_batch, train.micro_batch or model.context, or take a smaller model\n");
        return 3;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "clover: %s\n", e.what());
        return 3;
    }
}
