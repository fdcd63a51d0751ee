// Learning rate and batch ramp-up against BLOOM's training log (facts/bloom.md section 3) and Gopher's description.
#include "../optim/schedule.h"

#include "support.h"

using namespace clover;

TEST_SUITE("schedule") {
    TEST_CASE("BLOOM-176B: nine rows of the training log, to all printed digits") {
        const LearningRate s{Schedule::cosine_samples, 6e-5, 6e-6, 0, 183105, 200000000};
        const std::pair<int64_t, const char*> rows[] = {{59312, "1.944E-05"},    {9841584, "5.969E-05"},   {47768496, "5.279E-05"},
                                                        {47784880, "5.278E-05"}, {71455664, "4.475E-05"},  {76002224, "4.298E-05"},
                                                        {158692272, "1.150E-05"}, {177927088, "7.610E-06"}, {177929136, "7.609E-06"}};
        for (const auto& [samples, printed] : rows) {
            char text[32];
            std::snprintf(text, sizeof text, "%.3E", learning_rate(s, 0, samples));
            CHECK(std::string(text) == printed);
        }
        CHECK(learning_rate(s, 1, 0) == 0.0);
        CHECK(learning_rate(s, 1, 200000001) == 6e-6);
    }
    TEST_CASE("Gopher: 1500 steps from 1e-7, then a tenfold cosine decay") {
        const LearningRate s{Schedule::cosine_steps, 2e-4, 2e-5, 1e-7, 1500, 100000};
        CHECK(learning_rate(s, 0, 0) == doctest::Approx(1e-7).epsilon(1e-12));
        CHECK(learning_rate(s, 750, 0) == doctest::Approx(1e-7 + (2e-4 - 1e-7) / 2).epsilon(1e-12));
        CHECK(learning_rate(s, 1500, 0) == doctest::Approx(2e-4).epsilon(1e-12));
        CHECK(learning_rate(s, 50750, 0) == doctest::Approx(1.1e-4).epsilon(1e-12));
        CHECK(learning_rate(s, 100000, 0) == doctest::Approx(2e-5).epsilon(1e-12));
        CHECK(learning_rate(s, 200000, 0) == 2e-5);
    }
    TEST_CASE("linear decay by steps and by samples, at hand-computed points") {
        const LearningRate steps{Schedule::linear_steps, 1e-3, 1e-4, 0, 100, 1100}, samples{Schedule::linear_samples, 1e-3, 1e-4, 0, 100, 1100};
        const std::pair<int64_t, double> rows[] = {{0, 0}, {50, 5e-4}, {100, 1e-3}, {101, 9.991e-4}, {350, 7.75e-4}, {600, 5.5e-4}, {1100, 1e-4}, {5000, 1e-4}};
        for (const auto& [n, lr] : rows) {
            CHECK(learning_rate(steps, n, 77777) == doctest::Approx(lr).epsilon(1e-12));
            CHECK(learning_rate(samples, 77777, n) == doctest::Approx(lr).epsilon(1e-12));
        }
    }
    TEST_CASE("Gopher 280B: 3 million tokens a step, doubled once 150 billion are seen") {
        const RampUp doubling{1536, 1536, 73242188};
        CHECK(global_batch_at(doubling, 3072, 0) == 1536);
        CHECK(global_batch_at(doubling, 3072, 73242187) == 1536);
        CHECK(global_batch_at(doubling, 3072, 73242189) == 3072);
        // 47684 steps of half a batch take 73,242,624 samples, the first count beyond; the next step is a whole one.
        CHECK(samples_after(doubling, 3072, 47684) == 73242624);
        CHECK(samples_after(doubling, 3072, 47685) == 73242624 + 3072);
    }
    TEST_CASE("constant after the warm-up") {
        const LearningRate s{Schedule::constant, 1e-3, 0, 0, 10, 0};
        CHECK(learning_rate(s, 5, 0) == doctest::Approx(5e-4).epsilon(1e-12));
        CHECK(learning_rate(s, 1000000, 0) == 1e-3);
    }
    TEST_CASE("batch ramp-up: iterations for 220,000,000 samples as BigScience's scripts give them") {
        struct Row {
            int64_t start, increment, full, ramp_steps, steps;
        };
        for (const Row& r : {Row{192, 16, 2048, 12658, 115311}, {16, 16, 2048, 0, 128728}, {192, 16, 512, 30743, 441356},
                             {192, 32, 512, 31583, 442197}, {192, 16, 256, 45525, 866753}, {192, 32, 256, 47230, 868457}}) {
            const RampUp ramp{r.start, r.increment, 9765625};
            if (r.ramp_steps) {
                CHECK(samples_after(ramp, r.full, r.ramp_steps) > 9765625);
                CHECK(samples_after(ramp, r.full, r.ramp_steps - 1) <= 9765625);
            }
            CHECK(samples_after(ramp, r.full, r.steps) <= 220000000);
            CHECK(samples_after(ramp, r.full, r.steps + 1) > 220000000);
        }
        CHECK(samples_after({192, 16, 9765625}, 2048, 12658) == 9765808);
    }
    TEST_CASE("no ramp-up") {
        CHECK(global_batch_at({}, 64, 0) == 64);
        CHECK(samples_after({}, 64, 10) == 640);
    }
}
