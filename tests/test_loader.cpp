#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <stdexcept>

#include "../data/loader.h"
#include "../kernels/error.h"

using namespace clover;

namespace {

/// Sample i is the tokens 10·i, 10·i + 1, …
void read_sample(int64_t i, int32_t* tokens) {
    for (int t = 0; t < 5; t++) tokens[t] = int32_t(10 * i + t);
}

/// Batches of 4, from sample 12 on of 8.
int64_t ramp(int64_t consumed) { return consumed < 12 ? 4 : 8; }

LoaderOptions options(int64_t rank = 0, int64_t ranks = 1, int64_t micro_batch = 2) {
    return {.example = {.context = 4}, .micro_batch = micro_batch, .rank = rank, .ranks = ranks, .total = 36};
}

std::vector<int64_t> samples_of(const Batch& batch) {
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < batch.sequences; i++) {
        const int32_t first = batch.ids[size_t(4 * i)];
        for (int t = 0; t < 4; t++) {
            CHECK(batch.ids[size_t(4 * i + t)] == first + t);
            CHECK(batch.targets[size_t(4 * i + t)] == first + t + 1);
        }
        samples.push_back(first / 10);
    }
    return samples;
}

}  // namespace

TEST_SUITE("loader") {
    TEST_CASE("batches follow each other, of the size of the step") {
        Loader loader(read_sample, ramp, options());
        int64_t next = 0;
        for (int64_t size : {4, 4, 4, 8, 8, 8}) {
            const Batch& batch = loader.next();
            CHECK(batch.first == next);
            CHECK(batch.global_batch == size);
            for (int64_t sample : samples_of(batch)) CHECK(sample == next++);
        }
        CHECK(next == 36);
    }

    // Megatron's MegatronPretrainingSampler: of each micro_batch · ranks samples, rank r takes [r · micro_batch, (r + 1) · micro_batch).
    TEST_CASE("ranks deal the samples of each step out among them, without overlap, whatever their number") {
        for (int64_t ranks : {1, 2, 4}) {
            CAPTURE(ranks);
            const int64_t micro = ranks == 4 ? 1 : 2;
            std::vector<std::unique_ptr<Loader>> loaders;
            for (int64_t r = 0; r < ranks; r++) loaders.push_back(std::make_unique<Loader>(read_sample, ramp, options(r, ranks, micro)));
            for (int64_t first = 0; first < 36; first += ramp(first)) {
                std::vector<int64_t> seen(size_t(ramp(first)), 0);
                for (int64_t r = 0; r < ranks; r++) {
                    const std::vector<int64_t> samples = samples_of(loaders[size_t(r)]->next());
                    CHECK(int64_t(samples.size()) == ramp(first) / ranks);
                    for (size_t i = 0; i < samples.size(); i++) {
                        CHECK(samples[i] == first + int64_t(i) / micro * micro * ranks + r * micro + int64_t(i) % micro);
                        seen[size_t(samples[i] - first)]++;
                    }
                }
                for (int64_t n : seen) CHECK(n == 1);
            }
        }
    }

    TEST_CASE("it continues from any number of samples consumed, at once or in the middle of work") {
        Loader loader(read_sample, ramp, options());
        loader.next();
        loader.seek(20);
        CHECK(samples_of(loader.next()) == std::vector<int64_t>{20, 21, 22, 23, 24, 25, 26, 27});
        loader.seek(4);
        loader.seek(8);
        CHECK(samples_of(loader.next()) == std::vector<int64_t>{8, 9, 10, 11});
        CHECK(loader.next().first == 12);
    }

    TEST_CASE("the next batch is read while the present one is in use, and none is beyond the end") {
        std::atomic<int64_t> reads = 0, most = 0;
        Loader loader(
            [&](int64_t i, int32_t* tokens) {
                read_sample(i, tokens);
                most = std::max<int64_t>(most, i);
                reads++;
            },
            ramp, options());
        loader.next();
        while (reads < 8) std::this_thread::yield();  // without being asked again
        for (int step = 1; step < 6; step++) loader.next();
        CHECK(reads == 36);
        CHECK(most == 35);
    }

    TEST_CASE("a failure of the reader is thrown where the batch is asked for") {
        Loader loader([](int64_t i, int32_t* tokens) { i < 6 ? read_sample(i, tokens) : throw InputError("sample 6"); }, ramp, options());
        loader.next();
        CHECK_THROWS_WITH_AS(loader.next(), "sample 6", InputError);
        CHECK_THROWS_WITH_AS(loader.next(), "sample 6", InputError);
        loader.seek(0);
        CHECK(loader.next().first == 0);
    }

    TEST_CASE("a batch that the ranks cannot share evenly is refused") {
        Loader loader(read_sample, [](int64_t) { return int64_t{6}; }, options(0, 2, 2));
        CHECK_THROWS_AS(loader.next(), Error);
    }
}
