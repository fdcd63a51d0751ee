// The oracles are what numpy 2.4.6 and Megatron give: Megatron-DeepSpeed's gpt_dataset.py transcribed to numpy, with sample_idx
// and the blends from the compiled helpers of megatron-core 0.16.1.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "../data/numpy_random.h"
#include "../data/sample_sequence.h"
#include "../kernels/error.h"
#include "temporary_folder.h"

using namespace clover;
using test::TemporaryFolder;
using doctest::Contains;

namespace {

template <class T>
uint64_t hash_of(const std::vector<T>& values) {
    uint64_t h = 0;
    for (T v : values) h = h * 31 + uint64_t(v);
    return h;
}

std::vector<int64_t> shuffled(uint32_t seed, int64_t n) {
    std::vector<int64_t> values(size_t(n), 0);
    std::iota(values.begin(), values.end(), 0);
    NumpyLegacyRandom(seed).shuffle(values.data(), n);
    return values;
}

using Pairs = std::vector<std::pair<int64_t, int64_t>>;
Pairs pairs(const SampleBoundaries& b) {
    Pairs p;
    for (int64_t k = 0; k <= b.sample_count(); k++) p.emplace_back(b.place(k), b.offset(k));
    return p;
}
std::vector<int64_t> values(const IntegerArray& array) {
    std::vector<int64_t> v;
    for (int64_t i = 0; i < array.count(); i++) v.push_back(array[i]);
    return v;
}

SampleBoundaries boundaries(const std::vector<int32_t>& lengths, const std::vector<int32_t>& order, int64_t context) {
    IntegerArray sequences = IntegerArray::in_memory(IntegerType::i32, {int64_t(order.size())});
    sequences.with_values([&](auto* v) { std::copy(order.begin(), order.end(), v); });
    int64_t tokens = 0;
    for (int32_t i : order) tokens += lengths[size_t(i)];
    SampleBoundaries b;
    b.pairs = IntegerArray::in_memory(IntegerType::i32, {tokens > 0 ? (tokens - 1) / context + 1 : 1, 2});
    fill_sample_boundaries([&](int64_t i) { return lengths[size_t(i)]; }, sequences, context, b.pairs);
    return b;
}

GptIndex gpt_index(const std::vector<int32_t>& lengths, int64_t context, int64_t samples, uint32_t seed, const std::string& stem = "") {
    return make_gpt_index([&](int64_t i) { return lengths[size_t(i)]; },
                          {.sequences = int64_t(lengths.size()), .context = context, .samples = samples, .seed = seed}, stem);
}

struct Draws {
    std::vector<int64_t> set, sample;
};
Draws draws(const std::vector<double>& weights, int64_t count) {
    const Blend blend(weights, count);
    Draws d;
    for (int64_t k = 0; k < count; k++) d.set.push_back(blend[k].set), d.sample.push_back(blend[k].sample);
    return d;
}

/// A set of documents of these lengths whose tokens are first, first + 1, …
WeightedDataset make_set(const TemporaryFolder& folder, const std::string& name, const std::vector<int>& lengths, double weight, int32_t first = 0) {
    IndexedDatasetWriter writer(folder / name, 60000);
    for (int length : lengths) {
        std::vector<int32_t> tokens(size_t(length), 0);
        std::iota(tokens.begin(), tokens.end(), first);
        first += length;
        writer.add_document(tokens);
    }
    writer.finish();
    return {name, std::make_shared<IndexedDataset>(folder / name), weight, 0, -1};
}

std::vector<int32_t> sample(const SampleSequence& sequence, int64_t context, int64_t i) {
    std::vector<int32_t> tokens(size_t(context + 1), -1);
    sequence.read(i, tokens.data());
    return tokens;
}

}  // namespace

TEST_SUITE("sample sequence") {
    TEST_CASE("numpy.random.RandomState(seed).shuffle") {
        CHECK(shuffled(0, 10) == std::vector<int64_t>{2, 8, 4, 9, 1, 6, 7, 3, 0, 5});
        CHECK(shuffled(42, 10) == std::vector<int64_t>{8, 1, 5, 0, 7, 2, 9, 4, 3, 6});
        CHECK(shuffled(1234, 10) == std::vector<int64_t>{7, 2, 9, 1, 0, 8, 4, 5, 6, 3});
        CHECK(shuffled(4294967295u, 10) == std::vector<int64_t>{6, 9, 5, 1, 8, 0, 7, 4, 2, 3});
        CHECK(hash_of(shuffled(42, 1000)) == 0x531a9736c4581c06);
        CHECK(hash_of(shuffled(0, 70000)) == 0xfc460f2f9c0e0130);
        CHECK(hash_of(shuffled(1234, 200000)) == 0xb0720ba215f50354);
        CHECK(hash_of(shuffled(4294967295u, 200000)) == 0x73346a94f0d4228);
        CHECK(NumpyLegacyRandom(5).bounded(0) == 0);
    }

    TEST_CASE("sample boundaries: short documents, empty ones, one token of overlap") {
        CHECK(pairs(boundaries({3, 1, 5, 2}, {0, 1, 2, 3}, 4)) == Pairs{{0, 0}, {2, 0}, {2, 4}});
        CHECK(pairs(boundaries({3, 0, 6, 2}, {0, 1, 2, 3}, 4)) == Pairs{{0, 0}, {2, 1}, {2, 5}});
        CHECK(pairs(boundaries({3, 1, 5, 2}, {2, 0, 3, 1}, 4)) == Pairs{{0, 0}, {0, 4}, {2, 0}});
        CHECK(pairs(boundaries({3, 1, 5, 2}, {0, 1, 2, 3, 0, 1, 2, 3}, 4)) == Pairs{{0, 0}, {2, 0}, {2, 4}, {4, 1}, {6, 1}, {7, 0}});
        CHECK(boundaries({4}, {0}, 4).sample_count() == 0);
        CHECK(boundaries({5}, {0}, 4).sample_count() == 1);
        CHECK(boundaries({9}, {0}, 4).sample_count() == 2);
        CHECK(pairs(boundaries({2, 2, 1}, {0, 1, 2}, 4)) == Pairs{{0, 0}, {2, 0}});
        CHECK(boundaries({}, {}, 4).sample_count() == 0);
    }

    TEST_CASE("the three indices of GPTDataset, a small set") {
        const GptIndex index = gpt_index({5, 3, 9, 1, 7}, 4, 14, 1234);
        CHECK(index.epochs == 3);
        CHECK(index.separate_last_epoch);
        CHECK(values(index.document) == std::vector<int64_t>{2, 2, 4, 1, 0, 3, 4, 0, 1, 3, 0, 4, 3, 2, 1});
        CHECK(pairs(index.boundaries) == Pairs{{0, 0}, {0, 4}, {0, 8}, {1, 3}, {1, 7}, {2, 2}, {2, 6}, {4, 0}, {4, 4}, {6, 2},
                                               {6, 6}, {7, 3}, {8, 2}, {10, 2}, {11, 1}, {11, 5}, {13, 1}, {13, 5}, {14, 0}});
        CHECK(values(index.shuffle) == std::vector<int64_t>{7, 11, 2, 3, 1, 9, 5, 4, 0, 8, 6, 10, 17, 13, 16, 15, 12, 14});
    }

    TEST_CASE("the three indices of GPTDataset, 500 documents: one epoch, several, the last one apart or not") {
        std::vector<int32_t> lengths;
        for (int i = 0; i < 500; i++) lengths.push_back((i * i * 7 + 3) % 97);
        struct Case {
            int64_t context, samples;
            uint32_t seed;
            int64_t epochs;
            bool separate;
            uint64_t document, boundaries, shuffle;
        };
        const Case cases[] = {{16, 1000, 7, 1, false, 0x682d07899b5acb10, 0xfa7a477decc474e7, 0xea711ede235e5db},
                              {16, 7000, 7, 5, true, 0x449f5e409007ef96, 0xf35852814932b758, 0xc5a3b41e16d12822},
                              {16, 7900, 1234, 5, false, 0x512584f015ae0b3c, 0xa899cc4a582b06d4, 0x7b185d124fa771d8},
                              {33, 600, 42, 1, false, 0xa689316d48ccb038, 0xe9c3d2b275694f9a, 0x7f05a98deccb861e}};
        for (const Case& c : cases) {
            CAPTURE(c.samples);
            const GptIndex index = gpt_index(lengths, c.context, c.samples, c.seed);
            CHECK(index.epochs == c.epochs);
            CHECK(index.separate_last_epoch == c.separate);
            CHECK(hash_of(values(index.document)) == c.document);
            CHECK(hash_of(values(index.boundaries.pairs)) == c.boundaries);
            CHECK(hash_of(values(index.shuffle)) == c.shuffle);
        }
        // 1586 samples an epoch, 6346 in four: the fifth is apart while fewer than int(0.95 · 1586) = 1506 of it are drawn.
        CHECK(gpt_index(lengths, 16, 6346 + 1505, 1).separate_last_epoch);
        CHECK_FALSE(gpt_index(lengths, 16, 6346 + 1506, 1).separate_last_epoch);
    }

    TEST_CASE("the number of epochs is the least that suffices") {
        // 25 tokens, context 4: 6 samples in one epoch, 12 in two.
        for (int64_t samples = 1; samples <= 6; samples++) CHECK(gpt_index({25}, 4, samples, 1).epochs == 1);
        for (int64_t samples = 7; samples <= 12; samples++) CHECK(gpt_index({25}, 4, samples, 1).epochs == 2);
        CHECK(gpt_index({25}, 4, 13, 1).epochs == 3);
    }

    TEST_CASE("blending: the greedy rule") {
        CHECK(draws({.5, .25, .25}, 12).set == std::vector<int64_t>{0, 1, 2, 0, 0, 1, 2, 0, 0, 1, 2, 0});
        CHECK(draws({.875, .125}, 16).set == std::vector<int64_t>{0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0});
        CHECK(draws({1, 0}, 8).set == std::vector<int64_t>(8, 0));
        CHECK(draws({0, 1}, 8).set == std::vector<int64_t>(8, 1));
        const Draws blend = draws({.5, .3, .2}, 12);
        CHECK(blend.set == std::vector<int64_t>{0, 1, 2, 0, 1, 0, 2, 0, 1, 0, 0, 1});
        CHECK(blend.sample == std::vector<int64_t>{0, 0, 0, 1, 1, 2, 1, 3, 2, 4, 5, 3});
        CHECK(draws({1, 1}, 100).set == draws({2, 2}, 100).set);
        CHECK(draws({1, 1}, 100).set == draws({50, 50}, 100).set);
    }

    TEST_CASE("blending: many sets, to the last bit of numpy's sum of the weights") {
        std::vector<double> weights(51, 0.002);
        weights[0] = 0.9;
        std::vector<int> counts(51);
        for (int64_t set : draws(weights, 100).set) counts[size_t(set)]++;
        CHECK(counts[0] == 89);
        for (size_t i = 1; i < 51; i++) CHECK(counts[i] == (i <= 11 ? 1 : 0));

        const std::map<int, std::pair<uint64_t, uint64_t>> megatron = {
            {3, {0x175ef98428860dff, 0x99417d02c686f133}},  {7, {0xab4ff811f2d056e3, 0x807851e44ac10ecb}},
            {8, {0x15aeb72a8d62f026, 0xd914fd733b6aabb7}},  {9, {0xe24f02866f7f19bb, 0xf37668c9470f1d3}},
            {28, {0xbc2001e9cbddac02, 0x1248bfc559214f62}}, {51, {0x792663f39505925f, 0xada93bcafbab7ea5}},
            {130, {0x6f25ec29fca01254, 0x429bfd7530cac99d}}, {200, {0xe957e4a401fb6217, 0x8365662d793439ef}}};
        uint64_t x = 12345;
        for (const auto& [sets, hashes] : megatron) {
            CAPTURE(sets);
            weights.assign(size_t(sets), 0);
            for (double& w : weights) {
                x = x * 6364136223846793005u + 1442695040888963407u;
                w = double((x >> 40) % 1000 + 1);
            }
            const Draws blend = draws(weights, 5000);
            CHECK(hash_of(blend.set) == hashes.first);
            CHECK(hash_of(blend.sample) == hashes.second);
        }
    }

    TEST_CASE("blending: weights that are none") {
        CHECK_THROWS_WITH_AS(Blend({0, 0}, 4), Contains("add up to 0, expected more than 0"), InputError);
        CHECK_THROWS_WITH_AS(Blend({1, -0.5}, 4), Contains("weight of data set 2 is -0.5"), InputError);
        CHECK_THROWS_AS(Blend({std::nan(""), 1}, 4), InputError);
        CHECK_THROWS_AS(Blend({INFINITY, 1}, 4), InputError);
        CHECK_THROWS_AS(Blend({1e308, 1e308}, 4), InputError);
        CHECK_THROWS_AS(Blend({}, 4), InputError);
    }

    TEST_CASE("one set: the samples are the indices' windows of the packed, shuffled stream") {
        TemporaryFolder folder;
        const std::vector<int32_t> lengths = {5, 3, 9, 1, 7};
        const SampleSequence sequence({make_set(folder, "a", {5, 3, 9, 1, 7}, 1)}, {.context = 4, .total = 14, .seed = 1234, .vocab = 25});
        CHECK(sequence.size() == 14);
        CHECK(sequence.epochs(0) == 3);
        const GptIndex index = gpt_index(lengths, 4, 14, 1234);
        std::vector<int32_t> starts = {0, 5, 8, 17, 18}, stream;
        for (int64_t d : values(index.document))
            for (int32_t k = 0; k < lengths[size_t(d)]; k++) stream.push_back(starts[size_t(d)] + k);
        for (int64_t i = 0; i < 14; i++) {
            const auto from = stream.begin() + index.shuffle[i] * 4;
            CHECK(sample(sequence, 4, i) == std::vector<int32_t>(from, from + 5));
            CHECK(sequence.set_of(i) == 0);
        }
        int32_t tokens[5];
        CHECK_THROWS_AS(sequence.read(14, tokens), Error);
        CHECK_THROWS_AS(sequence.read(-1, tokens), Error);
    }

    TEST_CASE("every epoch shows every sample once, in another order") {
        // One document of 40 · 4 + 1 tokens. Epoch 2 starts within the sample that closes epoch 1, so each epoch is drawn for itself.
        const GptIndex one = gpt_index({161}, 4, 40, 3);
        CHECK(one.epochs == 1);
        std::vector<int64_t> sorted = values(one.shuffle);
        std::sort(sorted.begin(), sorted.end());
        for (int64_t i = 0; i < 40; i++) CHECK(sorted[size_t(i)] == i);
        // 60 of two epochs: the second is apart, so the first 40 draws are the whole first epoch and no more.
        const GptIndex two = gpt_index({161}, 4, 60, 3);
        CHECK(two.separate_last_epoch);
        const std::vector<int64_t> drawn = values(two.shuffle);
        std::vector<int64_t> first(drawn.begin(), drawn.begin() + 40);
        const std::vector<int64_t> second(drawn.begin() + 40, drawn.end());
        std::sort(first.begin(), first.end());
        CHECK(first == sorted);
        std::vector<int64_t> order(drawn.begin(), drawn.begin() + 40);
        for (int64_t& k : order) k += 40;
        CHECK(std::vector<int64_t>(second.begin(), second.begin() + 40) != order);
    }

    TEST_CASE("a small set with a large weight starts over, never past its end") {
        TemporaryFolder folder;
        std::vector<int> large(30, 20);
        const SampleSequence sequence({make_set(folder, "large", large, 1), make_set(folder, "small", {6, 7}, 1, 1000)}, {.context = 4, .total = 18, .seed = 7, .vocab = 60000});
        // 13 tokens are 3 samples an epoch; ⌈18 · 0.5 · 1.005⌉ = 10 of them take ⌈(10 · 4 + 1) / 13⌉ = 4 epochs (9 would take 3).
        CHECK(sequence.epochs(1) == 4);
        int from_small = 0;
        std::set<int32_t> seen;
        for (int64_t i = 0; i < 18; i++) {
            const bool small = sequence.set_of(i) == 1;
            from_small += small;
            for (int32_t token : sample(sequence, 4, i)) {
                CHECK((token >= 1000) == small);
                if (small) seen.insert(token);
            }
        }
        CHECK(from_small == 9);
        CHECK(seen.size() == 13);
    }

    TEST_CASE("sample i depends on nothing but i: read backwards, read again") {
        TemporaryFolder folder;
        const auto make = [&] {
            return SampleSequence({make_set(folder, "a", {50, 60, 70}, .7), make_set(folder, "b", {80, 9}, .3, 500)}, {.context = 8, .total = 100, .seed = 42, .vocab = 60000});
        };
        const SampleSequence straight = make(), again = make();
        for (int64_t i = 99; i >= 0; i--) CHECK(sample(straight, 8, i) == sample(again, 8, i));
    }

    TEST_CASE("weights of zero: by tokens if all are, else never drawn") {
        TemporaryFolder folder;
        const auto a = make_set(folder, "a", {300}, 0), b = make_set(folder, "b", {100}, 0);
        const SampleSequence by_tokens({a, b}, {.context = 4, .total = 40, .seed = 1, .vocab = 60000});
        CHECK(by_tokens.set_of(0) == 0);
        int from_b = 0;
        for (int64_t i = 0; i < 40; i++) from_b += by_tokens.set_of(i);
        CHECK(from_b == 10);
        const auto tiny = make_set(folder, "tiny", {1}, 0);
        auto weighted = b;
        weighted.weight = 2;
        const SampleSequence one({tiny, weighted}, {.context = 4, .total = 10, .seed = 1, .vocab = 60000});
        for (int64_t i = 0; i < 10; i++) CHECK(one.set_of(i) == 1);
    }

    TEST_CASE("runs of another length draw the same samples where same_order() says so") {
        TemporaryFolder folder;
        const auto a = make_set(folder, "a", {50, 60, 70}, .7), b = make_set(folder, "b", {80, 9}, .3, 500);
        int same = 0, other = 0;
        for (const SampleOrder order : {SampleOrder::megatron, SampleOrder::epochs})
            for (const std::vector<WeightedDataset>& sets : {std::vector<WeightedDataset>{a}, {a, b}}) {
                const auto make = [&](int64_t total) {
                    return std::make_unique<SampleSequence>(sets, SampleOptions{.context = 8, .total = total, .seed = 42, .vocab = 60000, .order = order});
                };
                for (int64_t x = 5; x <= 100; x += 5)
                    for (int64_t y : {7, 30, 41, 43, 44, 66, 90}) {
                        const auto first = make(x), second = make(y);
                        bool equal = true;
                        for (int64_t i = 0; i < std::min(x, y); i++) equal = equal && sample(*first, 8, i) == sample(*second, 8, i);
                        const bool said = first->same_order(y);
                        CHECK(said == second->same_order(x));
                        CHECK((!said || equal));
                        CHECK((said || order == SampleOrder::megatron));
                        (said ? same : other)++;
                    }
            }
        CHECK(same > 100);
        CHECK(other > 100);
    }

    TEST_CASE("what cannot be sampled is refused, naming the set and the need") {
        TemporaryFolder folder;
        const auto good = make_set(folder, "good", {300}, 1), small = make_set(folder, "small", {2, 2}, 1), empty = make_set(folder, "empty", {}, 0);
        const auto make = [](std::vector<WeightedDataset> sets, int64_t total, int64_t seed = 1, int64_t vocab = 60000) {
            SampleSequence(std::move(sets), {.context = 4, .total = total, .seed = seed, .vocab = vocab});
        };
        CHECK_THROWS_WITH_AS(make({good, small}, 10), Contains("data set small has 4 tokens, but one sample of context 4 needs 5"), InputError);
        CHECK_THROWS_WITH_AS(make({empty}, 10), Contains("data set empty has 0 tokens"), InputError);
        CHECK_THROWS_WITH_AS(make({good}, 10, 1, 299), Contains("data set good holds token id 299, but the vocabulary has 299"), InputError);
        CHECK_NOTHROW(make({good}, 10, 1, 300));
        CHECK_THROWS_WITH_AS(make({good}, 0), Contains("draws 0 samples from good"), InputError);
        CHECK_THROWS_WITH_AS(make({}, 10), Contains("no data set"), InputError);
        CHECK_THROWS_WITH_AS(make({good}, 10, -1), Contains("seed -1"), InputError);
        CHECK_THROWS_AS(make({good}, 10, int64_t{1} << 32), InputError);
        auto negative = good;
        negative.weight = -1;
        CHECK_THROWS_WITH_AS(make({good, negative}, 10), Contains("weight of data set 2 is -1"), InputError);
        CHECK_THROWS_AS(make({negative}, 10), InputError);
    }

    TEST_CASE("indices in files are the arrays in memory, made once, and numpy's own format") {
        TemporaryFolder folder;
        std::vector<int32_t> lengths;
        for (int i = 0; i < 500; i++) lengths.push_back((i * i * 7 + 3) % 97);
        const GptIndex memory = gpt_index(lengths, 16, 7000, 7);
        const std::string stem = folder / "set";
        const auto same = [&](const GptIndex& index) {
            return values(index.document) == values(memory.document) && values(index.boundaries.pairs) == values(memory.boundaries.pairs) &&
                   values(index.shuffle) == values(memory.shuffle);
        };
        CHECK(same(gpt_index(lengths, 16, 7000, 7, stem)));
        CHECK(folder.file_count() == 3);
        CHECK(same(gpt_index(lengths, 16, 7000, 7, stem)));
        // What numpy.save writes of np.arange(3, dtype=np.int32) has this header.
        const std::string doc = folder.contents("set_indexmap_7000ns_16sl_7s_doc_idx.npy");
        CHECK(doc.substr(0, 128) == std::string("\x93NUMPY\x01\x00v\x00", 10) + "{'descr': '<i4', 'fortran_order': False, 'shape': (2500,), }" +
                                        std::string(57, ' ') + "\n");
        CHECK(doc.size() == 128 + 4 * 2500);
        // One gone, one cut short: made anew, though the generator must come from the first to the third.
        std::filesystem::remove(folder / "set_indexmap_7000ns_16sl_7s_shuffle_idx.npy");
        std::filesystem::resize_file(folder / "set_indexmap_7000ns_16sl_7s_sample_idx.npy", 1000);
        CHECK(same(gpt_index(lengths, 16, 7000, 7, stem)));
        CHECK(same(gpt_index(lengths, 16, 7000, 7, stem)));
        CHECK(folder.file_count() == 3);
    }

    TEST_CASE("a sequence with its indices in a cache draws the same samples; a changed token file gets other indices") {
        TemporaryFolder folder;
        const auto set = make_set(folder, "a", {50, 60, 70}, 1);
        const SampleSequence memory({set}, {.context = 8, .total = 100, .seed = 42, .vocab = 60000});
        const SampleOptions cached{.context = 8, .total = 100, .seed = 42, .vocab = 60000, .cache = folder / "cache", .memory_limit = 0};
        const SampleSequence files({set}, cached);
        for (int64_t i = 0; i < 100; i++) CHECK(sample(files, 8, i) == sample(memory, 8, i));
        const size_t before = folder.file_count();
        SampleSequence({set}, cached);
        CHECK(folder.file_count() == before);
        SampleSequence({make_set(folder, "a", {70, 60, 50}, 1)}, cached);
        CHECK(folder.file_count() == before + 3);
    }

    TEST_CASE("order epochs: each epoch shows every sample once, in an order of its own") {
        TemporaryFolder folder;
        const SampleSequence sequence({make_set(folder, "a", {161}, 1)}, {.context = 4, .total = 130, .seed = 3, .vocab = 60000, .order = SampleOrder::epochs});
        CHECK(sequence.epochs(0) == 4);
        std::vector<std::vector<int32_t>> epochs(4);
        for (int64_t i = 0; i < 130; i++) epochs[size_t(i / 40)].push_back(sample(sequence, 4, i)[0]);
        std::vector<int32_t> all;
        for (int32_t k = 0; k < 40; k++) all.push_back(4 * k);
        for (int e = 0; e < 3; e++) {
            std::vector<int32_t> sorted = epochs[size_t(e)];
            std::sort(sorted.begin(), sorted.end());
            CHECK(sorted == all);
            CHECK(epochs[size_t(e)] != epochs[size_t(e + 1)]);
        }
        CHECK(sample(sequence, 4, 7)[0] == epochs[0][7]);
    }

    TEST_CASE("a part of a file: only its sequences are drawn, under their own numbers") {
        TemporaryFolder folder;
        auto set = make_set(folder, "a", {10, 10, 10, 10}, 1);
        set.first = 1, set.sequences = 2;
        const SampleSequence sequence({set}, {.context = 4, .total = 12, .seed = 3, .vocab = 60000});
        CHECK(sequence.token_count(0) == 20);
        for (int64_t i = 0; i < 12; i++)
            for (int32_t token : sample(sequence, 4, i)) CHECK((token >= 10 && token < 30));
    }

    TEST_CASE("splits and shares, rounded as Python does") {
        CHECK(split_bounds(1000, {949, 50, 1}) == std::vector<int64_t>{0, 949, 999, 1000});
        CHECK(split_bounds(103, {949, 50, 1}) == std::vector<int64_t>{0, 98, 103, 103});
        CHECK(split_bounds(2, {1, 1, 1}) == std::vector<int64_t>{0, 0, 1, 2});
        CHECK(split_bounds(5, {100, 0, 0}) == std::vector<int64_t>{0, 5, 5, 5});
        CHECK_THROWS_WITH_AS(split_bounds(5, {0, 0}), Contains("add up to 0"), InputError);
        CHECK_THROWS_AS(split_bounds(5, {1, -1, 1}), InputError);
        CHECK(share_of(10, 0, 0.95) == std::pair<int64_t, int64_t>{0, 10});  // round(9.5) = 10
        CHECK(share_of(10, 0.25, 1) == std::pair<int64_t, int64_t>{2, 10});  // round(2.5) = 2
    }

    TEST_CASE("how many of the first draws came from each set; far draws without the ones between") {
        const Blend blend({.5, .3, .2}, 200000);
        std::vector<int64_t> counts(3);
        for (int64_t k = 0; k < 200000; k++) {
            if (k % 40009 == 0 || k == 65536) CHECK(blend.drawn(k) == counts);
            const Blend::Draw draw = blend[k];
            if (draw.sample != counts[size_t(draw.set)]++) FAIL("draw ", k);
        }
        CHECK(blend.drawn(200000) == counts);
        CHECK(blend[5].set == 0);
        CHECK(blend[199999].sample == counts[size_t(blend[199999].set)] - 1);
    }
}
