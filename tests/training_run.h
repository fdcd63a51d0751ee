// Training runs for the suites: a small corpus, a config that trains on it, the numbers of a run's steps.
#pragma once
#include "../model/trainer.h"
#include "temporary_folder.h"
#include "tiny.h"

namespace clover::test {

// 40 samples of 13 tokens an epoch: 521 tokens in JSONL documents.
inline std::string corpus(const TemporaryFolder& folder) {
    std::string lines;
    for (int d = 0; d < 8; d++) {
        lines += "{\"text\": \"";
        for (int i = 0; i < (d == 0 ? 65 : 64); i++) lines += char('a' + (d * 7 + i * i + i / 5) % 20);
        lines += "\"}\n";
    }
    return folder.file("corpus.jsonl", lines);
}

inline Config run_config(const TemporaryFolder& folder, const std::string& family, std::vector<std::string> overrides = {}) {
    const std::string path = corpus(folder);
    for (const char* o : {"model.vocab=257", "train.steps=30", "train.global_batch=4", "optimizer.schedule=\"cosine-steps\"",
                          "optimizer.min_lr=1e-3", "train.sample_prompts=[\"abc\"]", "train.sample_tokens=5", "train.eval_batches=0"})
        overrides.insert(overrides.begin(), o);
    overrides.push_back("data.train=[\"" + path + "\"]");
    overrides.push_back("data.valid=[\"" + path + "\"]");
    overrides.push_back("data.cache=\"" + (folder / "cache") + "\"");
    return tiny_config(family, overrides);
}

struct Line {
    int64_t step;
    double loss, grad_norm, lr;
    bool operator==(const Line&) const = default;
};
inline Line line_of(const StepReport& r) { return {r.progress.step, r.loss, r.grad_norm, r.lr}; }

inline std::vector<Line> run_steps(Trainer& t, int64_t until) {
    std::vector<Line> lines;
    while (t.progress().step < until) lines.push_back(line_of(t.step()));
    return lines;
}

}  // namespace clover::test
