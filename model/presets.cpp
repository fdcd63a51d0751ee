// BLOOM: bigscience-workshop/bigscience train/tr11-176B-ml (launch scripts), the papers' Table 3. Gopher: Rae et al. 2021, Table 1 and
// section 3.1. What is our choice instead of theirs is said in the file of that name in configs/.
#include "presets.h"

#include "../kernels/error.h"

namespace clover {
namespace {

struct BloomSize {
    std::string_view name;
    int layers, hidden, heads;
    std::string_view lr, min_lr;
    int global_batch, increment, steps;
};

// Steps are the published iteration counts for 220,000,000 samples with the ramp-up. All began with 192 sequences per step and ramped
// over the same number of samples.
constexpr int bloom_ramp_start = 192, bloom_ramp_samples = 9765625;
constexpr BloomSize bloom_sizes[] = {
    {"bloom-560m", 24, 1024, 16, "3.0e-4", "1e-5", 256, 32, 868457},
    {"bloom-1b1", 24, 1536, 16, "2.5e-4", "1e-5", 256, 16, 866753},
    {"bloom-1b7", 24, 2048, 16, "2e-4", "1e-5", 512, 16, 441356},
    {"bloom-3b", 30, 2560, 32, "1.6e-4", "1e-5", 512, 32, 442197},
    {"bloom-7b1", 30, 4096, 32, "1.2e-4", "1e-5", 512, 32, 442197},
    {"bloom-176b", 70, 14336, 112, "6e-5", "6e-6", 2048, 16, 115311},
};

struct GopherSize {
    std::string_view name;
    int layers, hidden, heads;
    std::string_view lr;
    int global_batch;
    std::string_view ramp_up;
    int steps;
    std::string_view clip, recipe;
};

// Batches of 0.25, 2 and 6 million tokens are 128, 1024 and 3072 sequences of 2048; steps are 300 billion tokens in such batches. The
// 280B model began with half its batch and doubled it midway: after 150 billion tokens, 73,242,188 sequences.
constexpr GopherSize gopher_sizes[] = {
    {"gopher-44m", 8, 512, 16, "6e-4", 128, "[]", 1144410, "1.0", "mixed"},
    {"gopher-117m", 12, 768, 12, "6e-4", 128, "[]", 1144410, "1.0", "mixed"},
    {"gopher-417m", 12, 1536, 12, "2e-4", 128, "[]", 1144410, "1.0", "mixed"},
    {"gopher-1.4b", 24, 2048, 16, "2e-4", 128, "[]", 1144410, "1.0", "mixed"},
    {"gopher-7.1b", 32, 4096, 32, "1.2e-4", 1024, "[]", 143052, "0.25", "bf16-sr"},
    {"gopher-280b", 80, 16384, 128, "4e-5", 3072, "[1536, 1536, 73242188]", 71526, "0.25", "bf16-sr"},
};

template <class Size>
std::string shape_toml(const Size& s) {
    return text("model.layers = ", s.layers, "\nmodel.hidden = ", s.hidden, "\nmodel.heads = ", s.heads, "\n");
}

std::string to_toml(const BloomSize& s) {
    return shape_toml(s) + text("train.steps = ", s.steps, "\ntrain.global_batch = ", s.global_batch, "\ntrain.ramp_up = [",
                                bloom_ramp_start, ", ", s.increment, ", ", bloom_ramp_samples, "]\noptimizer.lr = ", s.lr,
                                "\noptimizer.min_lr = ", s.min_lr, "\noptimizer.warmup = 183105\noptimizer.decay = 200000000\n");
}

std::string to_toml(const GopherSize& s) {
    return shape_toml(s) + text("train.steps = ", s.steps, "\ntrain.global_batch = ", s.global_batch, "\ntrain.ramp_up = ", s.ramp_up,
                                "\noptimizer.lr = ", s.lr, "\noptimizer.clip = ", s.clip, "\nprecision.recipe = \"", s.recipe, "\"\n");
}

}  // namespace

const std::vector<std::string_view>& preset_names() {
    static const std::vector<std::string_view> names = [] {
        std::vector<std::string_view> all;
        for (const BloomSize& s : bloom_sizes) all.push_back(s.name);
        for (const GopherSize& s : gopher_sizes) all.push_back(s.name);
        return all;
    }();
    return names;
}

std::string preset_family(std::string_view preset) { return std::string(preset.substr(0, preset.find('-'))); }

std::string preset_toml(std::string_view preset) {
    for (const BloomSize& s : bloom_sizes)
        if (s.name == preset) return to_toml(s);
    for (const GopherSize& s : gopher_sizes)
        if (s.name == preset) return to_toml(s);
    throw Error(text("no preset is called ", preset));
}

}  // namespace clover
