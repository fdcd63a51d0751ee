// The configuration: every key reads, prints and refuses (cases A19, A20); the published models have their tables' values.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "../kernels/error.h"
#include "../model/config.h"
#include "../model/presets.h"
#include "temporary_folder.h"

using namespace clover;

namespace {

const std::string small =
    "[model]\nfamily = 'bloom'\nlayers = 2\nhidden = 64\nheads = 4\n[train]\nsteps = 10\n[optimizer]\nlr = 1e-3\n";

Config parse(const std::string& toml, const std::vector<std::string>& overrides = {}) { return parse_config(toml, "run.toml", overrides); }

/// The message of the InputError; one line.
std::string refusal(const std::string& toml, const std::vector<std::string>& overrides = {}) {
    try {
        parse(toml, overrides);
    } catch (const InputError& e) {
        const std::string message = e.what();
        CHECK(message.find('\n') == std::string::npos);
        return message;
    }
    FAIL("accepted: ", toml);
    return "";
}

std::string refused_override(const std::string& argument) { return refusal(small, {argument}); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// section.key of every line of the reference.
std::vector<std::string> all_keys() {
    std::vector<std::string> keys;
    std::istringstream lines(config_reference());
    for (std::string line; std::getline(lines, line);) keys.push_back(line.substr(0, line.find(':')));
    return keys;
}

struct Shape {
    const char* preset;
    int64_t layers, hidden, heads, head_size, ffn, global_batch, steps;
    double lr, min_lr, clip;
    std::vector<int64_t> ramp;
};

// facts/bloom.md sections 1 and 3; facts/gopher.md 1.1 and 1.2.
const Shape published[] = {
    {"bloom-560m", 24, 1024, 16, 64, 4096, 256, 868457, 3.0e-4, 1e-5, 1, {192, 32, 9765625}},
    {"bloom-1b1", 24, 1536, 16, 96, 6144, 256, 866753, 2.5e-4, 1e-5, 1, {192, 16, 9765625}},
    {"bloom-1b7", 24, 2048, 16, 128, 8192, 512, 441356, 2e-4, 1e-5, 1, {192, 16, 9765625}},
    {"bloom-3b", 30, 2560, 32, 80, 10240, 512, 442197, 1.6e-4, 1e-5, 1, {192, 32, 9765625}},
    {"bloom-7b1", 30, 4096, 32, 128, 16384, 512, 442197, 1.2e-4, 1e-5, 1, {192, 32, 9765625}},
    {"bloom-176b", 70, 14336, 112, 128, 57344, 2048, 115311, 6e-5, 6e-6, 1, {192, 16, 9765625}},
    {"gopher-44m", 8, 512, 16, 32, 2048, 128, 1144410, 6e-4, 6e-5, 1, {}},
    {"gopher-117m", 12, 768, 12, 64, 3072, 128, 1144410, 6e-4, 6e-5, 1, {}},
    {"gopher-417m", 12, 1536, 12, 128, 6144, 128, 1144410, 2e-4, 2e-5, 1, {}},
    {"gopher-1.4b", 24, 2048, 16, 128, 8192, 128, 1144410, 2e-4, 2e-5, 1, {}},
    {"gopher-7.1b", 32, 4096, 32, 128, 16384, 1024, 143052, 1.2e-4, 1.2e-5, 0.25, {}},
    {"gopher-280b", 80, 16384, 128, 128, 65536, 3072, 71526, 4e-5, 4e-6, 0.25, {1536, 1536, 73242188}},
};

void check_published(const Config& c, const Shape& s) {
    CAPTURE(s.preset);
    const bool bloom = c.model.family == "bloom";
    CHECK(c.model.preset == s.preset);
    CHECK(c.model.layers == s.layers);
    CHECK(c.model.hidden == s.hidden);
    CHECK(c.model.heads == s.heads);
    CHECK(c.model.head_size == s.head_size);
    CHECK(c.model.ffn == s.ffn);
    CHECK(c.model.vocab == (bloom ? 250880 : 32000));
    CHECK(c.model.context == 2048);
    CHECK(c.train.global_batch == s.global_batch);
    CHECK(c.train.steps == s.steps);
    CHECK(c.optimizer.lr == s.lr);
    CHECK(c.optimizer.min_lr == doctest::Approx(s.min_lr).epsilon(1e-12));
    CHECK(c.optimizer.clip == s.clip);
    CHECK(c.optimizer.warmup == (bloom ? 183105 : 1500));
    CHECK(c.optimizer.decay == (bloom ? 200000000 : 0));
    CHECK(std::vector<int64_t>{c.train.ramp_up.start, c.train.ramp_up.increment, c.train.ramp_up.samples} ==
          (s.ramp.empty() ? std::vector<int64_t>{0, 0, 0} : s.ramp));
}

TEST_SUITE_BEGIN("config");

TEST_CASE("a small config: given values, the family's defaults, derived values") {
    const Config c = parse(small);
    CHECK(c.model.layers == 2);
    CHECK(c.model.head_size == 16);
    CHECK(c.model.ffn == 256);
    CHECK(c.model.vocab == 250880);
    CHECK(c.model.norm == NormKind::layernorm);
    CHECK(c.model.position == Position::alibi);
    CHECK(c.model.embedding_norm);
    CHECK(c.model.init_std == 0.0048);
    CHECK(c.data.train.empty());
    CHECK(c.data.tokenizer == "bytes");
    CHECK(c.train.micro_batch == 1);
    CHECK(c.train.global_batch == 1);
    CHECK(c.train.seed == 42);
    CHECK(c.optimizer.min_lr == 1e-3 / 10);
    CHECK(c.optimizer.name == OptimizerName::adamw);
    CHECK(c.optimizer.schedule == Schedule::cosine_samples);
    CHECK(c.precision.recipe == Recipe::bf16_master);
    CHECK(c.checkpoint.keep == 3);
    CHECK(parse(small, {"train.micro_batch=4"}).train.global_batch == 4);
}

TEST_CASE("Gopher's defaults") {
    const Config c = parse(small, {"model.family=gopher"});
    CHECK(c.model.norm == NormKind::rmsnorm);
    CHECK(c.model.position == Position::relative);
    CHECK_FALSE(c.model.embedding_norm);
    CHECK(c.model.bias == Bias::output);
    CHECK(c.model.vocab == 32000);
    CHECK(c.model.init_std == 0.02);
    CHECK(c.optimizer.name == OptimizerName::adam);
    CHECK(c.optimizer.weight_decay == 0);
    CHECK(c.optimizer.start_lr == 1e-7);
    CHECK(c.optimizer.warmup == 1500);
    CHECK(c.optimizer.schedule == Schedule::cosine_steps);
    CHECK(c.precision.recipe == Recipe::mixed);
}

TEST_CASE("the presets and the files of the published models have the papers' values") {
    CHECK(preset_names().size() == std::size(published));
    for (const Shape& s : published) {
        const Config by_preset = parse(text("[model]\npreset = '", s.preset, "'\n"));
        check_published(by_preset, s);
        CHECK(to_toml(read_config(text("configs/", s.preset, ".toml"), {})) == to_toml(by_preset));
    }
}

TEST_CASE("recipes of the published models") {
    for (const Shape& s : published) {
        const Recipe recipe = std::string(s.preset).starts_with("bloom") ? Recipe::bf16_master : s.hidden < 4096 ? Recipe::mixed : Recipe::bf16_sr;
        CHECK(parse(text("model.preset = '", s.preset, "'\n")).precision.recipe == recipe);
    }
}

// For every key another value than its default in `small`, as an override.
const std::map<std::string, std::string> other_values = {
    {"model.family", "gopher"}, {"model.preset", "bloom-560m"}, {"model.layers", "3"}, {"model.hidden", "128"}, {"model.heads", "8"},
    {"model.head_size", "16"}, {"model.ffn", "100"}, {"model.vocab", "300"}, {"model.context", "128"}, {"model.norm", "rmsnorm"},
    {"model.position", "learned"}, {"model.embedding_norm", "false"}, {"model.bias", "none"}, {"model.tie_embeddings", "false"},
    {"model.norm_eps", "1e-6"}, {"model.init", "xavier"}, {"model.init_std", "0.01"}, {"data.train", "a.txt"}, {"data.valid", "b.txt"},
    {"data.tokenizer", "tokenizer.json"}, {"data.cache", "/tmp/cache"}, {"train.steps", "11"}, {"train.micro_batch", "2"},
    {"train.global_batch", "8"}, {"train.ramp_up", "[1, 1, 100]"}, {"train.seed", "7"}, {"train.eval_every", "5"},
    {"train.eval_batches", "2"}, {"train.sample_every", "5"}, {"train.sample_tokens", "16"}, {"train.sample_prompts", "Once upon"},
    {"train.log_every", "10"}, {"optimizer.name", "adam"}, {"optimizer.lr", "2e-3"}, {"optimizer.min_lr", "1e-5"},
    {"optimizer.start_lr", "1e-6"}, {"optimizer.warmup", "100"}, {"optimizer.decay", "1000"}, {"optimizer.schedule", "constant"},
    {"optimizer.beta1", "0.8"}, {"optimizer.beta2", "0.999"}, {"optimizer.eps", "1e-6"}, {"optimizer.weight_decay", "0.01"},
    {"optimizer.clip", "0"}, {"precision.recipe", "fp32"}, {"checkpoint.every", "5"}, {"checkpoint.keep", "0"}, {"checkpoint.start", "runs/other"},
    {"optimizer.relative_step", "true"}, {"optimizer.parameter_scale", "true"}, {"optimizer.momentum", "true"}, {"optimizer.update_clip", "2"},
    {"optimizer.decay_exponent", "0.7"}, {"optimizer.min_factored", "0"},
    {"data.split", "[949, 50, 1]"}, {"data.order", "epochs"}, {"data.end_of_document", "</s>"}, {"data.train_on_eod", "false"},
    {"data.train_after_eod", "false"}, {"data.reset_attention", "true"}, {"data.reset_positions", "true"},
    {"train.record_every", "10"}, {"train.stats_every", "10"}, {"precision.accumulate", "bf16"}, {"precision.reduce", "bf16"},
    {"precision.moments", "bf16"}, {"precision.only", "gains"}, {"precision.loss_scale", "1024"}, {"precision.loss_scale_window", "1000"},
    {"precision.loss_scale_hysteresis", "1"}};

TEST_CASE("every key of the reference, when changed, changes the resolved printout, and the printout reads back (A19)") {
    std::vector<std::string> keys = all_keys();
    std::erase(keys, "data.weights");  // changes the weights of data.train: a case of its own
    CHECK(keys.size() == other_values.size());
    for (const std::string& key : keys) {
        CAPTURE(key);
        REQUIRE(other_values.count(key));
        std::vector<std::string> base, changed;
        if (key == "train.ramp_up") base = {"train.global_batch=4"};
        if (key == "optimizer.name") base = {"optimizer.weight_decay=0"};
        for (const char* adafactors : {"relative_step", "parameter_scale", "momentum"})
            if (key == std::string("optimizer.") + adafactors) base = {"optimizer.name=adafactor"};
        if (key == "precision.only") base = {"precision.recipe=bf16"};
        if (key == "data.reset_positions") base = {"model.position=learned"};
        if (key == "model.head_size") base = {"model.hidden=32", "model.heads=2", "model.ffn=100"};
        changed = base;
        changed.push_back(key + "=" + other_values.at(key));
        if (key == "model.head_size") base.insert(base.end(), {"model.heads=4"}), changed.push_back("model.heads=2");
        const std::string before = to_toml(parse(small, base)), after = to_toml(parse(small, changed));
        CHECK(before != after);
        CHECK(to_toml(parse(after)) == after);
        // The changed line itself differs.
        const std::string name = key.substr(key.find('.') + 1) + " = ";
        CHECK(after.substr(after.find("\n" + name), 60) != before.substr(before.find("\n" + name), 60));
    }
}

TEST_CASE("the spelling of every enumerator") {
    CHECK(to_string(NormKind::layernorm) == "layernorm");
    CHECK(to_string(NormKind::rmsnorm) == "rmsnorm");
    CHECK(to_string(Position::alibi) == "alibi");
    CHECK(to_string(Position::relative) == "relative");
    CHECK(to_string(Position::learned) == "learned");
    CHECK(to_string(Position::sinusoidal) == "sinusoidal");
    CHECK(to_string(Bias::all) == "all");
    CHECK(to_string(Bias::output) == "output");
    CHECK(to_string(Bias::none) == "none");
    CHECK(to_string(Init::normal) == "normal");
    CHECK(to_string(Init::xavier) == "xavier");
    CHECK(to_string(Init::fan_in) == "fan_in");
    CHECK(to_string(Recipe::fp32) == "fp32");
    CHECK(to_string(Recipe::mixed) == "mixed");
    CHECK(to_string(Recipe::bf16) == "bf16");
    CHECK(to_string(Recipe::bf16_sr) == "bf16-sr");
    CHECK(to_string(Recipe::bf16_master_sr) == "bf16-master-sr");
    CHECK(to_string(Recipe::bf16_master) == "bf16-master");
    CHECK(to_string(Recipe::fp16) == "fp16");
    CHECK(to_string(ParameterClass::embedding) == "embedding");
    CHECK(to_string(ParameterClass::matrices) == "matrices");
    CHECK(to_string(Schedule::cosine_samples) == "cosine-samples");
    CHECK(to_string(Schedule::cosine_steps) == "cosine-steps");
    CHECK(to_string(Schedule::constant) == "constant");
    CHECK(to_string(OptimizerName::adamw) == "adamw");
    CHECK(to_string(OptimizerName::adafactor) == "adafactor");
    CHECK(to_string(OptimizerName::adam) == "adam");
}

TEST_CASE("unknown, misspelt and misplaced keys") {
    CHECK(refusal(small + "learning_rte = 1\n") == "run.toml:10: unknown key optimizer.learning_rte; did you mean optimizer.lr?");
    CHECK(refusal("[train]\nlearning_rte = 1\n") == "run.toml:2: unknown key train.learning_rte; did you mean optimizer.lr?");
    CHECK(refusal("[train]\nlr = 1\n") == "run.toml:2: unknown key train.lr; did you mean optimizer.lr?");
    CHECK(refusal("[model]\nn_layer = 1\n") == "run.toml:2: unknown key model.n_layer; did you mean model.layers?");
    CHECK(refusal("[model]\nsteps = 1\n") == "run.toml:2: unknown key model.steps; did you mean train.steps?");
    CHECK(refusal("[model]\nzzzzqqqq = 1\n") == "run.toml:2: unknown key model.zzzzqqqq");
    CHECK(refusal("lr = 1\n") == "run.toml:1: unknown key lr outside of any section; did you mean optimizer.lr?");
    CHECK(refusal("[trian]\nlr = 1\n") == "run.toml:1: unknown section [trian]; did you mean [train]?");
    CHECK(contains(refusal("[moe]\n"), "the sections are checkpoint, data, model, optimizer, precision, train"));
    CHECK(contains(refusal("train = 3\n"), "run.toml:1: train must be a section, [train], not 3"));
    CHECK(contains(refusal("[[train]]\nsteps = 3\n"), "run.toml:1: train must be a section"));
    CHECK(refused_override("train.learning_rte=1") == "--set train.learning_rte=1: unknown key train.learning_rte; did you mean optimizer.lr?");
    CHECK(refused_override("lr=1") == "--set lr=1: an override is section.key=value");
    CHECK(refused_override("train.steps") == "--set train.steps: an override is section.key=value");
    CHECK(contains(refused_override("a=b.c"), "an override is"));
    CHECK(contains(refused_override("=1"), "an override is"));
    CHECK(contains(refused_override(""), "an override is"));
}

TEST_CASE("duplicate keys and sections") {
    CHECK(refusal("[train]\nsteps = 1\nsteps = 2\n") == "run.toml:3: 'steps' is given twice; keep one");
    CHECK(refusal("[train]\nsteps = 1\n[train]\nseed = 2\n") == "run.toml:3: 'train' is given twice; keep one");
}

TEST_CASE("ill-typed values and values out of range, in the file and on the command line") {
    const std::string steps = ": train.steps must be an integer from 1 to 2147483647, not ";
    CHECK(refusal("[train]\nsteps = '10'\n") == "run.toml:2" + steps + "\"10\"");
    CHECK(refused_override("train.steps=abc") == "--set train.steps=abc" + steps + "\"abc\"");
    for (const char* value : {"-1", "0", "1e3", "10.0", "", "true", "[10]", "2147483648", "9223372036854775808", "nan", "1 2", "1\ntrain=2"})
        CHECK(contains(refused_override(std::string("train.steps=") + value), steps));
    const std::string lr = ": optimizer.lr must be a number above 0 and at most 100, not ";
    for (const char* value : {"abc", "1e-4x", "nan", "inf", "-inf", "0", "-1e-4", "1e400", "", "true", "'1e-4'"})
        CHECK(contains(refused_override(std::string("optimizer.lr=") + value), lr));
    for (const char* value : {"nan", "inf", "'x'", "101"}) CHECK(contains(refusal(text("[optimizer]\nlr = ", value, "\n")), "run.toml:2" + lr));
    CHECK(contains(refusal("[train]\nsteps = 9223372036854775808\n"), "run.toml:2: not TOML: "));
    CHECK(contains(refusal("[train]\nsteps = 2147483648\n"), "run.toml:2" + steps));
    CHECK(contains(refusal("[train]\nsteps = 1e3\n"), "run.toml:2" + steps));
    CHECK(contains(refused_override("optimizer.beta1=1"), "must be a number of at least 0 and below 1, not 1"));
    CHECK(contains(refused_override("optimizer.beta2=-0.1"), "of at least 0"));
    CHECK(contains(refused_override("model.tie_embeddings=True"), "must be true or false, not \"True\""));
    CHECK(contains(refused_override("model.tie_embeddings=1"), "must be true or false, not 1"));
    CHECK(contains(refused_override("model.norm=batchnorm"), "model.norm must be one of layernorm, rmsnorm, not \"batchnorm\""));
    CHECK(contains(refused_override("optimizer.schedule=cosine_samples"), "cosine-samples, cosine-steps, linear-samples, linear-steps, constant"));
    CHECK(contains(refused_override("model.family=gpt"), "one of bloom, gopher"));
    CHECK(contains(refused_override("model.preset=bloom-7b"), "bloom-7b1"));
    CHECK(contains(refusal("[model]\nnorm = 1\n"), "model.norm must be one of"));
    CHECK(contains(refused_override("model.context=2097152"), "from 1 to 1048576"));
    CHECK(contains(refused_override("train.eval_batches=-1"), "train.eval_batches must be an integer from 0"));
    CHECK(contains(refused_override("train.seed=4294967296"), "train.seed must be an integer from 0 to 4294967295"));
    CHECK(contains(refused_override("data.tokenizer="), "not an empty one"));
    CHECK(contains(refused_override("data.tokenizer=\xff.json"), "not valid UTF-8"));
    CHECK(contains(refusal("[data]\ntokenizer = \"a\\u0000b\"\n"), "data.tokenizer must be a string"));
    for (const char* value : {"[1]", "[1, 2, 3, 4]", "[0, 1, 1]", "[1, 1.0, 1]", "192"})
        CHECK(contains(refused_override(std::string("train.ramp_up=") + value), "[start, increment, samples]"));
    CHECK(contains(refused_override("train.sample_prompts=[1]"), "a list of strings"));
    CHECK(parse(small, {"optimizer.lr=1"}).optimizer.lr == 1.0);
    CHECK(parse(small, {"train.seed=4294967295"}).train.seed == 4294967295);
}

TEST_CASE("what is missing is named") {
    CHECK(contains(refusal(""), "run.toml: model.family is missing"));
    CHECK(contains(refusal("model.family = 'bloom'\n"), "run.toml: model.layers is missing"));
    CHECK(contains(refusal("[model]\nfamily = 'bloom'\nlayers = 1\nhidden = 8\nheads = 1\n"), "run.toml: train.steps is missing"));
}

TEST_CASE("combinations that do not fit") {
    CHECK(refused_override("model.heads=3") == "--set model.heads=3: model.hidden = 64 is not a multiple of model.heads = 3");
    CHECK(contains(refusal(small, {"model.hidden=1028", "model.heads=4"}), "make heads of 257, but attention takes at most 256"));
    CHECK(parse(small, {"model.hidden=1024", "model.heads=4"}).model.head_size == 256);
    CHECK(contains(refused_override("model.head_size=257"), "attention takes at most 256"));
    CHECK(contains(refusal(small, {"model.position=relative", "model.hidden=3", "model.heads=3"}), "must be even for model.position = \"relative\""));
    CHECK(refusal(small, {"train.global_batch=10", "train.micro_batch=4"}) ==
          "--set train.micro_batch=4: train.global_batch = 10 must be a multiple of train.micro_batch = 4");
    const auto ramp = [](const std::string& value, const std::string& micro = "2") {
        return refusal(small, {"train.global_batch=16", "train.micro_batch=" + micro, "train.ramp_up=" + value});
    };
    CHECK(contains(ramp("[8, 3, 100]"), "does not reach train.global_batch = 16 from 8 in increments of 3"));
    CHECK(contains(ramp("[16, 2, 100]"), "must start below"));
    CHECK(contains(ramp("[32, 2, 100]"), "must start below"));
    CHECK(contains(ramp("[15, 1, 100]"), "must be multiples of train.micro_batch = 2"));
    CHECK(contains(ramp("[8, 4, 100]", "8"), "must be multiples of train.micro_batch = 8"));
    CHECK(contains(refusal("[model]\npreset = 'bloom-560m'\n[train]\nglobal_batch = 8\n"),
                   "run.toml:4: train.ramp_up = [192, 32, 9765625] (preset bloom-560m) must start below train.global_batch = 8"));
    CHECK(contains(refused_override("optimizer.min_lr=0.01"), "optimizer.min_lr = 0.01 must not be above optimizer.lr = 0.001"));
    CHECK(contains(refused_override("optimizer.start_lr=0.01"), "optimizer.start_lr = 0.01 must not be above"));
    CHECK(contains(refusal(small, {"optimizer.warmup=11", "optimizer.decay=10"}), "must not be longer than optimizer.decay = 10"));
    CHECK(contains(refused_override("optimizer.name=adam"),
                   "optimizer.name = \"adam\" has no weight decay, but optimizer.weight_decay = 0.1 (default of family bloom); use optimizer.name = \"adamw\""));
    CHECK(contains(refusal("[model]\npreset = 'bloom-560m'\nfamily = 'gopher'\n"), "run.toml:3: model.family = \"gopher\" does not fit"));
    CHECK(parse(small, {"optimizer.warmup=10", "optimizer.decay=10"}).optimizer.warmup == 10);
}

TEST_CASE("precision: bf16 moments with a slow decay are a warning, a class without a recipe for it an error") {
    CHECK(config_warnings(parse(small, {"precision.moments=bf16"})).empty());
    const std::vector<std::string> warned = config_warnings(parse(small, {"precision.moments=bf16", "optimizer.beta2=0.999"}));
    REQUIRE(warned.size() == 1);
    CHECK(warned[0].starts_with("precision.moments = \"bf16\" cannot hold a second moment that decays by optimizer.beta2 = 0.999"));
    CHECK_THROWS_WITH_AS(parse(small, {"precision.recipe=fp32", "precision.only=gains"}), doctest::Contains("precision.only = \"gains\" chooses who follows recipe bf16"), InputError);
}

TEST_CASE("a warm-up longer than the run is a warning") {
    using Lines = std::vector<std::string>;
    const auto warnings = [](const std::vector<std::string>& overrides) { return config_warnings(parse(small, overrides)); };
    const std::string never = "; the learning rate never reaches optimizer.lr";
    CHECK(warnings({}).empty());
    // Gopher's warm-up is 1500 steps by default.
    CHECK(warnings({"model.family=gopher", "train.steps=100"}) == Lines{"optimizer.warmup = 1500 is longer than the run of 100 steps" + never});
    CHECK(warnings({"model.family=gopher", "train.steps=1500"}).empty());
    CHECK(warnings({"optimizer.schedule=constant", "optimizer.warmup=10", "train.global_batch=4"}).empty());
    CHECK(warnings({"optimizer.schedule=constant", "optimizer.warmup=11", "train.global_batch=4"}) ==
          Lines{"optimizer.warmup = 11 is longer than the run of 10 steps" + never});
    CHECK(warnings({"optimizer.warmup=40", "train.global_batch=4"}).empty());
    CHECK(warnings({"optimizer.warmup=41", "train.global_batch=4"}) == Lines{"optimizer.warmup = 41 is longer than the run of 40 samples" + never});
    // Ten batches of 1, 1, 2, 3, 4, 4, 4, 4, 4, 4: each size for 2 samples, then all of 4.
    CHECK(warnings({"optimizer.warmup=31", "train.global_batch=4", "train.ramp_up=[1, 1, 6]"}).empty());
    CHECK(warnings({"optimizer.warmup=32", "train.global_batch=4", "train.ramp_up=[1, 1, 6]"}) ==
          Lines{"optimizer.warmup = 32 is longer than the run of 31 samples" + never});
    // No learning rate to warm up to: it starts there.
    CHECK(warnings({"optimizer.warmup=11", "optimizer.start_lr=1e-3"}).empty());
    for (const char* preset : {"bloom-560m", "gopher-417m"}) CHECK(config_warnings(parse(text("model.preset = '", preset, "'\n"))).empty());
}

TEST_CASE("the command line beats the file, the last override the earlier, the file the preset") {
    CHECK(parse(small, {"train.steps=20"}).train.steps == 20);
    CHECK(parse(small, {"train.steps=20", "train.steps=30"}).train.steps == 30);
    CHECK(parse("[model]\npreset = 'bloom-560m'\nlayers = 3\n").model.layers == 3);
    CHECK(parse("[model]\npreset = 'bloom-560m'\n", {"model.preset=gopher-44m"}).model.norm == NormKind::rmsnorm);
    CHECK(parse("[model]\npreset = 'bloom-560m'\n", {"optimizer.weight_decay=0"}).optimizer.weight_decay == 0);
    CHECK(contains(to_toml(parse(small, {"train.steps=20"})), "\nsteps = 20\n"));
    CHECK(parse("[model]\npreset = 'gopher-44m'\n", {"optimizer.lr=1e-3"}).optimizer.min_lr == 1e-3 / 10);
}

TEST_CASE("strings on the command line, bare or quoted") {
    CHECK(parse(small, {"data.tokenizer=a b=c.json"}).data.tokenizer == "a b=c.json");
    CHECK(parse(small, {"data.tokenizer=\"a\\tb\""}).data.tokenizer == "a\tb");
    CHECK(parse(small, {"data.tokenizer='C:\\x'"}).data.tokenizer == "C:\\x");
    CHECK(parse(small, {"data.tokenizer=12"}).data.tokenizer == "12");
    CHECK(parse(small, {"model.norm='rmsnorm'"}).model.norm == NormKind::rmsnorm);
    CHECK(parse(small, {"train.sample_prompts=[\"a\", 'b']"}).train.sample_prompts == std::vector<std::string>{"a", "b"});
    CHECK(parse(small, {"train.sample_prompts=Once \"upon\"\na"}).train.sample_prompts == std::vector<std::string>{"Once \"upon\"\na"});
    const std::string odd = "q\"\\\x01\x7f\té\n";
    Config c = parse(small);
    c.train.sample_prompts = {odd, ""};
    c.optimizer.lr = 0.1 + 0.2;
    const Config again = parse(to_toml(c));
    CHECK(again.train.sample_prompts == c.train.sample_prompts);
    CHECK(again.optimizer.lr == c.optimizer.lr);
}

TEST_CASE("data sets: a string, a list, a list of tables") {
    const auto sets = [](const std::string& value) { return parse(small, {"data.train=" + value}).data.train; };
    CHECK(sets("dir/wiki.jsonl.gz").at(0).name == "wiki");
    CHECK(sets("dir/wiki.jsonl.gz").at(0).path == "dir/wiki.jsonl.gz");
    CHECK(sets("[]").empty());
    CHECK(sets("['c4.en', 'c4.de']").at(1).name == "c4.de");
    const auto mixed = sets("[{path = 'a.txt', weight = 3}, {path = 'b/a.txt', weight = 0.5, name = 'other'}]");
    REQUIRE(mixed.size() == 2);
    CHECK(mixed[0].weight == 3);
    CHECK(mixed[1].weight == 0.5);
    CHECK(mixed[1].name == "other");
    const Config again = parse(to_toml(parse(small, {"data.train=[{path = 'a.txt', weight = 3}, {path = 'b', weight = 0}]"})));
    CHECK(again.data.train.at(0).weight == 3);
    CHECK(again.data.train.at(1).weight == 0);
    CHECK(contains(refused_override("data.train=['x/a.txt', 'y/a.txt']"), "two sets called \"a\""));
    CHECK(contains(refused_override("data.train=[{path = 'a', weight = -1}]"), "data.train weight must be a number of at least 0, not -1"));
    CHECK(contains(refused_override("data.train=[{path = 'a', weight = nan}]"), "a number of at least 0"));
    CHECK(contains(refused_override("data.train=[{path = 'a', weight = 0}]"), "only weights of 0"));
    CHECK(contains(refused_override("data.train=[{path = 'a', weight = 1}, 'b']"), "gives a weight to 1 of 2 sets"));
    CHECK(contains(refused_override("data.train=[{path = 'a', weigth = 1}]"), "unknown key \"weigth\""));
    CHECK(contains(refused_override("data.train=[{name = 'a'}]"), "a set without a path"));
    CHECK(contains(refused_override("data.train=[3]"), "data.train must be a path"));
    CHECK(contains(refused_override("data.train="), "an empty path"));
}

TEST_CASE("parts of sets: ranges and splits") {
    const Config c = parse(small, {"data.train=[{path = 'a', range = [0, 0.95]}]", "data.valid=[{path = 'a', range = [0.95, 1]}]"});
    CHECK(c.data.train.at(0).from == 0);
    CHECK(c.data.train.at(0).to == 0.95);
    CHECK(c.data.valid.at(0).from == 0.95);
    CHECK(to_toml(parse(to_toml(c))) == to_toml(c));
    for (const char* range : {"[0.5, 0.5]", "[-0.1, 1]", "[0, 1.1]", "[0.5]", "0.5", "[0, nan]", "['a', 'b']"})
        CHECK(contains(refused_override(text("data.train=[{path = 'a', range = ", range, "}]")), "[from, to], 0 <= from < to <= 1"));
    CHECK(parse(small, {"data.split=[949, 50, 1]"}).data.split == std::vector<double>{949, 50, 1});
    CHECK(config_warnings(parse(small, {"data.split=[949, 50, 1]"})).empty());
    CHECK(config_warnings(parse(small, {"data.split=[100, 0, 0]"})) == std::vector<std::string>{"data.split leaves no share for validation; the run is not validated"});
    for (const char* split : {"[1, 1]", "[1, -1, 1]", "[0, 0, 0]", "'949,50,1'", "[1, 1, nan]"})
        CHECK(contains(refused_override(text("data.split=", split)), "three numbers of at least 0"));
    CHECK(contains(refused_override("data.split=[0, 1, 0]"), "leaves nothing to train on"));
    CHECK(contains(refusal(small, {"data.split=[9, 1, 0]", "data.valid=v.txt"}), "data.valid names other sets; keep one"));
    CHECK(contains(refusal(small, {"data.split=[9, 1, 0]", "data.train=[{path = 'a', range = [0, 0.5]}]"}), "ranges of their own; keep one"));
}

TEST_CASE("weights by name: the published ratios, and files that do not fit") {
    const auto weights = [](const std::string& file, const std::string& sets) { return parse(small, {"data.weights=" + file, "data.train=" + sets}).data; };
    const DataConfig roots = weights("configs/weights-roots.toml", "['x/en.jsonl', {path = 'b', name = 'code'}]");
    CHECK(roots.train.at(0).weight == 0.2217116453);
    CHECK(roots.train.at(1).weight == 0.1302720090);
    CHECK(roots.weights.empty());
    CHECK(weights("configs/weights-massivetext.toml", "['massiveweb', 'books']").train.at(1).weight == 0.27);
    const Config c = parse(small, {"data.weights=configs/weights-massivetext.toml", "data.train=['c4', 'news']"});
    CHECK(to_toml(parse(to_toml(c))) == to_toml(c));
    const auto refused = [](const std::string& file, const std::string& sets) { return refusal(small, {"data.weights=" + file, "data.train=" + sets}); };
    CHECK(contains(refused("configs/weights-massivetext.toml", "['c4', 'wiki']"), "has no weight for the set \"wiki\" of data.train, only for"));
    CHECK(contains(refused("configs/weights-massivetext.toml", "[{path = 'c4', weight = 2}]"), "has a weight of its own"));
    CHECK(contains(refused("configs/none.toml", "['c4']"), "cannot read configs/none.toml"));
    const clover::test::TemporaryFolder folder;
    CHECK(contains(refused(folder.file("w.toml", "a = -1\nb = 'x'\n"), "['a']"), "w.toml:1: a must be a number of at least 0"));
    CHECK(contains(refused(folder.file("w.toml", "a = 1\nb = 'x'\n"), "['b']"), "w.toml:2: b must be a number of at least 0"));
    CHECK(contains(refused(folder.file("w.toml", "a = 0\n"), "['a']"), "only weights of 0"));
}

TEST_CASE("positions begin anew only where the model counts them") {
    CHECK(contains(refused_override("data.reset_positions=true"), "has no effect on model.position = \"alibi\""));
    CHECK(parse(small, {"data.reset_positions=true", "model.position=sinusoidal"}).data.reset_positions);
}

TEST_CASE("hostile and unreadable files") {
    CHECK(contains(refusal("[`ata]\nx = 1\n"), "run.toml: not TOML: malformed"));  // toml++ asserts there
    CHECK(contains(refusal("x\xc3\xa9\xc3\xb3 = 1\n"), "run.toml:1: "));                           // and has no answer for these
    CHECK(contains(refusal("[train\n"), "run.toml:1: not TOML"));
    CHECK(contains(refusal("[train]\nsteps = \n"), "run.toml:2: not TOML"));
    CHECK(contains(refusal("[train]\nsteps = \"\xff\"\n"), "run.toml:2: not TOML"));
    CHECK(contains(refusal(std::string("a\0b = 1\n", 8)), "run.toml:1: not TOML"));
    std::string deep = "a";
    for (int i = 0; i < 200000; i++) deep += ".a";
    CHECK(contains(refusal(deep + " = 1\n"), "more than 100 dots"));
    CHECK(contains(refusal("a = " + std::string(100000, '[')), "run.toml:1"));
    CHECK(contains(refused_override("train.ramp_up=" + std::string(100000, '[')), "train.ramp_up must be"));
    CHECK(contains(refusal(std::string((1 << 20) + 1, '#')), "larger than 1 MiB"));
    CHECK(parse(small + "[data]\ntokenizer = '" + std::string(500, '.') + "'\n").data.tokenizer.size() == 500);
    CHECK_THROWS_WITH_AS(read_config("/nonexistent/run.toml", {}), "cannot read /nonexistent/run.toml: No such file or directory", InputError);
    CHECK_THROWS_WITH_AS(read_config("/tmp", {}), "cannot read /tmp: Is a directory", InputError);
    CHECK_THROWS_WITH_AS(read_config("/dev/zero", {}), "/dev/zero: larger than 1 MiB, which no config file is", InputError);
}

TEST_SUITE_END();

}  // namespace
