// Whole training runs on CUDA against the same runs on the CPU: losses, resuming, generation. The configs take the fast attention kernels
// (bf16, head sizes 32 and 64) as well as the plain ones (f32, odd sizes), and every scheme of positions.
#include "../model/checkpoint_directory.h"
#include "training_run.h"

using namespace clover;
using namespace clover::test;

namespace {

struct Run {
    const char* family;
    std::vector<std::string> overrides;
};
std::string name_of(const Run& run) {
    std::string name = run.family;
    for (const std::string& o : run.overrides) name += " " + o;
    return name;
}

const std::vector<std::string> odd = {"model.hidden=21", "model.ffn=50", "model.vocab=301"}, even = {"model.hidden=30", "model.ffn=51", "model.vocab=301"};
const std::vector<std::string> head_32 = {"model.hidden=64", "model.heads=2", "model.context=40", "model.layers=2"};
const std::vector<std::string> head_64 = {"model.hidden=128", "model.heads=2", "model.context=70", "model.layers=1"};

std::vector<std::string> with(std::vector<std::string> overrides, const std::vector<std::string>& more) {
    overrides.insert(overrides.end(), more.begin(), more.end());
    return overrides;
}

std::vector<Line> steps_on(const Device& device, const Config& config, int64_t steps) {
    Trainer t(config, device, open_training_data(config));
    return run_steps(t, steps);
}

/// The losses of some steps are the CPU's, up to `tolerance` of each.
void check_against_cpu(const Device& cuda, const Run& run, const std::string& recipe, double tolerance, int64_t steps = 5) {
    INFO(name_of(run), ", ", recipe);
    const TemporaryFolder folder;
    const Config config = run_config(folder, run.family, with(run.overrides, {"precision.recipe=" + recipe}));
    const std::vector<Line> want = steps_on(find_device("cpu"), config, steps), got = steps_on(cuda, config, steps);
    for (size_t i = 0; i < want.size(); i++) {
        INFO("step ", i + 1, ": loss ", got[i].loss, ", on the CPU ", want[i].loss);
        CHECK(std::abs(got[i].loss - want[i].loss) <= tolerance * want[i].loss);
        CHECK(std::abs(got[i].grad_norm - want[i].grad_norm) <= 10 * tolerance * want[i].grad_norm);
    }
}

struct State {
    std::vector<Line> lines;
    std::vector<float> master, m, v;
    bool operator==(const State&) const = default;
};
State state_of(const Device& device, const Trainer& t, std::vector<Line> lines) {
    const Parameters& p = t.parameters();
    return {std::move(lines), floats_of(device, p.master), floats_of(device, p.m), floats_of(device, p.v)};
}

State trained(const Device& device, const Config& config, int64_t steps) {
    Trainer t(config, device, open_training_data(config));
    std::vector<Line> lines = run_steps(t, steps);
    return state_of(device, t, std::move(lines));
}

/// Two steps on one device, saved, two more on another.
State stopped_and_resumed(const Device& first, const Device& second, const Config& config, const std::string& checkpoints) {
    Trainer part(config, first, open_training_data(config)), rest(config, second, open_training_data(config));
    std::vector<Line> lines = run_steps(part, 2);
    part.save(checkpoints);
    std::vector<std::string> warnings;
    rest.resume(read_checkpoint(newest_checkpoint(checkpoints, warnings)));
    for (const Line& line : run_steps(rest, 4)) lines.push_back(line);
    return state_of(second, rest, std::move(lines));
}

std::vector<int32_t> continuation(const CheckpointInfo& checkpoint, const Device& device, const Sampling& sampling) {
    LoadedModel model(checkpoint, device, 50);
    std::vector<int32_t> tokens;
    model.generator().generate(model.context(), {97, 98, 99, 104}, 40, sampling, [&](int32_t id) {
        tokens.push_back(id);
        return true;
    });
    return tokens;
}

}  // namespace

TEST_SUITE("cuda training") {
    TEST_CASE("f32: the losses of the CPU") {
        if (!usable_cuda()) return;
        for (const Run& run : {Run{"bloom", {}}, {"gopher", {}}, {"bloom", odd}, {"gopher", even},
                               {"bloom", {"model.position=learned", "model.embedding_norm=false", "model.tie_embeddings=false"}},
                               {"gopher", {"model.position=sinusoidal", "model.bias=none"}}})
            check_against_cpu(*usable_cuda(), run, "fp32", 1e-5);
    }
    TEST_CASE("bf16 recipes: the losses of the CPU, whichever way the tensor cores add") {
        if (!usable_cuda()) return;
        for (const char* family : {"bloom", "gopher"}) {
            for_mma_models(*usable_cuda(), [&] { check_against_cpu(*usable_cuda(), {family, head_32}, "mixed", 0.02, 2); });
            check_against_cpu(*usable_cuda(), {family, head_32}, "bf16-master", 0.02);
            check_against_cpu(*usable_cuda(), {family, head_64}, "mixed", 0.02, 2);
            check_against_cpu(*usable_cuda(), {family, even}, "bf16-master", 0.02, 3);
        }
    }
    TEST_CASE("stopped and resumed: the same bits; a checkpoint of the CPU goes on as there") {
        if (!usable_cuda()) return;
        const Device &cuda = *usable_cuda(), &cpu = find_device("cpu");
        for (const Run& run : {Run{"bloom", {"precision.recipe=fp32"}}, {"gopher", with(head_32, {"precision.recipe=bf16-master"})}}) {
            INFO(name_of(run));
            const TemporaryFolder folder;
            const Config config = run_config(folder, run.family, run.overrides);
            CHECK(stopped_and_resumed(cuda, cuda, config, folder / "cuda") == trained(cuda, config, 4));
            const State moved = stopped_and_resumed(cpu, cuda, config, folder / "cpu"), stayed = trained(cpu, config, 4);
            for (size_t i = 0; i < 4; i++)
                CHECK(std::abs(moved.lines[i].loss - stayed.lines[i].loss) <= (config.precision.recipe == Recipe::fp32 ? 1e-5 : 0.02) * stayed.lines[i].loss);
        }
    }
    TEST_CASE("the same bits under every schedule") {
        if (!usable_cuda()) return;
        const Device& cuda = *usable_cuda();
        for (const Run& run : {Run{"bloom", with(odd, {"precision.recipe=fp32"})}, {"gopher", with(head_32, {"precision.recipe=bf16-master"})}}) {
            INFO(name_of(run));
            const TemporaryFolder folder;
            const Config config = run_config(folder, run.family, run.overrides);
            const State first = trained(cuda, config, 2);
            for (int seed : {1, 2, 3, 4}) {
                CAPTURE(seed);
                const LaunchOrder order(cuda, seed);
                CHECK(trained(cuda, config, 2) == first);
            }
        }
    }
    TEST_CASE("generation with the cache: the tokens of the CPU; validation: its loss") {
        if (!usable_cuda()) return;
        const Device &cuda = *usable_cuda(), &cpu = find_device("cpu");
        for (const Run& run : {Run{"bloom", {}}, {"gopher", {}}, {"bloom", odd}}) {
            INFO(name_of(run));
            const TemporaryFolder folder;
            const Config config = run_config(folder, run.family, run.overrides);
            Trainer t(config, cpu, open_training_data(config));
            run_steps(t, 10);
            const CheckpointInfo checkpoint = read_checkpoint(t.save(folder / "checkpoints"));
            for (const Sampling& sampling : {Sampling{.temperature = 0}, {.temperature = 1, .seed = 3}, {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .seed = 4}})
                CHECK(continuation(checkpoint, cuda, sampling) == continuation(checkpoint, cpu, sampling));
            Trainer u(config, cuda, open_training_data(config));
            u.resume(checkpoint);
            CHECK(u.evaluate().at(0).loss == doctest::Approx(t.evaluate().at(0).loss).epsilon(1e-5));
            CHECK(u.sample("abc") == t.sample("abc"));
        }
    }
}
