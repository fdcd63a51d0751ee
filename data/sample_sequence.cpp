#include "sample_sequence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "../kernels/error.h"

namespace clover {

NumpyLegacyRandom::NumpyLegacyRandom(uint32_t seed) {
    state_[0] = seed;
    for (uint32_t i = 1; i < 624; i++) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
}

uint32_t NumpyLegacyRandom::next() {
    if (index_ == 624) {
        for (int i = 0; i < 624; i++) {
            const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % 624] & 0x7fffffffu);
            state_[i] = state_[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0u);
        }
        index_ = 0;
    }
    uint32_t y = state_[index_++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

uint64_t NumpyLegacyRandom::bounded(uint64_t largest) {
    uint64_t mask = largest;
    for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
    uint64_t value = 0;
    if (largest == 0) return 0;
    do {
        value = next();
        if (largest > 0xffffffffu) value = value << 32 | next();
        value &= mask;
    } while (value > largest);
    return value;
}

SampleBoundaries sample_boundaries(const std::vector<int32_t>& lengths, const std::vector<int32_t>& order, int64_t context) {
    int64_t tokens = 0;
    for (int32_t sequence : order) tokens += lengths[size_t(sequence)];
    const int64_t samples = tokens > 0 ? (tokens - 1) / context : 0;
    SampleBoundaries boundaries;
    boundaries.place.resize(size_t(samples + 1));
    boundaries.offset.resize(size_t(samples + 1));
    int64_t place = 0, offset = 0;
    for (int64_t k = 1; k <= samples; k++) {
        // context + 1 tokens from here; the last of them is where the next sample starts.
        int64_t remaining = context + 1;
        while (true) {
            const int64_t available = lengths[size_t(order[size_t(place)])] - offset;
            if (remaining <= available) break;
            remaining -= available;
            offset = 0;
            place++;
        }
        offset += remaining - 1;
        boundaries.place[size_t(k)] = place;
        boundaries.offset[size_t(k)] = int32_t(offset);
    }
    return boundaries;
}

namespace {

/// Each epoch of `epochs` holds every sequence once. With a separate last epoch, all others are shuffled as one, then the last.
std::vector<int32_t> shuffled_documents(int64_t sequences, int64_t epochs, bool separate_last_epoch, NumpyLegacyRandom& random) {
    std::vector<int32_t> document(size_t(epochs * sequences));
    for (size_t i = 0; i < document.size(); i++) document[i] = int32_t(i % size_t(sequences));
    const int64_t together = (separate_last_epoch ? epochs - 1 : epochs) * sequences;
    random.shuffle(document.data(), together);
    random.shuffle(document.data() + together, int64_t(document.size()) - together);
    return document;
}

/// The smallest e with ⌊(e · tokens − 1) / context⌋ ≥ samples.
int64_t epochs_for(int64_t tokens, int64_t context, int64_t samples) {
    int64_t needed;
    CLOVER_CHECK(!__builtin_mul_overflow(samples, context, &needed), samples, " samples of ", context, " tokens");
    return needed / tokens + 1;  // ⌈(needed + 1) / tokens⌉
}

}  // namespace

GptIndex make_gpt_index(const std::vector<int32_t>& lengths, int64_t context, int64_t samples, uint32_t seed) {
    const int64_t sequences = int64_t(lengths.size());
    const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    CLOVER_CHECK(tokens >= 1 && context >= 1 && samples >= 1, tokens, " tokens, context ", context, ", ", samples, " samples");
    CLOVER_CHECK(sequences <= std::numeric_limits<int32_t>::max(), sequences, " sequences");
    GptIndex index;
    index.epochs = epochs_for(tokens, context, samples);
    const int64_t before_last = ((index.epochs - 1) * tokens - 1) / context;
    // Megatron-DeepSpeed's rule: a last epoch of which less than 95% is drawn comes after all others.
    index.separate_last_epoch = index.epochs > 1 && samples - before_last < int64_t(0.95 * double((tokens - 1) / context));
    NumpyLegacyRandom random(seed);
    index.document = shuffled_documents(sequences, index.epochs, index.separate_last_epoch, random);
    index.boundaries = sample_boundaries(lengths, index.document, context);
    index.shuffle.resize(size_t(index.boundaries.sample_count()));
    std::iota(index.shuffle.begin(), index.shuffle.end(), int64_t{0});
    const int64_t first = index.separate_last_epoch ? before_last : index.boundaries.sample_count();
    random.shuffle(index.shuffle.data(), first);
    random.shuffle(index.shuffle.data() + first, index.boundaries.sample_count() - first);
    return index;
}

namespace {

/// numpy.sum of f64: eight running sums below 128 values, halves above. The last bit of the sum decides ties between sets.
double numpy_sum(const double* values, size_t n) {
    if (n > 128) {
        const size_t half = n / 2 - (n / 2) % 8;
        return numpy_sum(values, half) + numpy_sum(values + half, n - half);
    }
    double sum = 0;
    size_t i = 0;
    if (n >= 8) {
        double r[8];
        std::copy_n(values, 8, r);
        for (i = 8; i + 8 <= n; i += 8)
            for (size_t k = 0; k < 8; k++) r[k] += values[i + k];
        sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    }
    for (; i < n; i++) sum += values[i];
    return sum;
}

std::vector<double> normalised(std::vector<double> weights) {
    for (size_t i = 0; i < weights.size(); i++)
        require(std::isfinite(weights[i]) && weights[i] >= 0, "the weight of data set ", i + 1, " is ", weights[i],
                ", expected a number of 0 or more");
    const double sum = numpy_sum(weights.data(), weights.size());
    require(std::isfinite(sum) && sum > 0, "the weights of the data sets add up to ", sum, ", expected more than 0");
    for (double& w : weights) w /= sum;
    return weights;
}

}  // namespace

Blend make_blend(const std::vector<double>& weights, int64_t draws) {
    const std::vector<double> share = normalised(weights);
    std::vector<int64_t> drawn(share.size());
    Blend blend;
    blend.set.resize(size_t(draws));
    blend.sample.resize(size_t(draws));
    for (int64_t k = 0; k < draws; k++) {
        size_t chosen = 0;
        double largest_lag = -std::numeric_limits<double>::infinity();
        for (size_t i = 0; i < share.size(); i++) {
            // The product is rounded by itself: fused into the subtraction (FMA), ties between sets would fall otherwise.
            volatile const double due = share[i] * double(std::max(k, int64_t{1}));
            const double lag = due - double(drawn[i]);
            // Megatron draws a set of weight 0 where all others are ahead of their share; here weight 0 means never.
            if (share[i] > 0 && lag > largest_lag) {
                largest_lag = lag;
                chosen = i;
            }
        }
        blend.set[size_t(k)] = int32_t(chosen);
        blend.sample[size_t(k)] = drawn[chosen]++;
    }
    return blend;
}

namespace {

std::vector<double> weights_of(const std::vector<WeightedDataset>& sets) {
    std::vector<double> weights;
    for (const WeightedDataset& set : sets) weights.push_back(set.weight);
    if (std::all_of(weights.begin(), weights.end(), [](double w) { return w == 0; }))
        for (size_t i = 0; i < sets.size(); i++) weights[i] = double(sets[i].data->token_count());
    return weights;
}

void check_set(const WeightedDataset& set, int64_t context, int64_t vocab) {
    require(set.data->token_count() > context, "data set ", set.name, " has ", set.data->token_count(), " tokens, but one sample of context ",
            context, " needs ", context + 1, "; add text or lower model.context");
    require(set.data->sequence_count() <= std::numeric_limits<int32_t>::max(), "data set ", set.name, " has ", set.data->sequence_count(),
            " sequences, at most ", std::numeric_limits<int32_t>::max(), " can be indexed; cut it into several sets");
    const int64_t largest = set.data->largest_token();
    require(largest < vocab, "data set ", set.name, " holds token id ", largest, ", but the vocabulary has ", vocab,
            " entries; use the tokenizer the set was made with, or raise model.vocab to ", largest + 1);
}

}  // namespace

SampleSequence::SampleSequence(std::vector<WeightedDataset> sets, int64_t context, int64_t total, int64_t seed, int64_t vocab)
    : sets_(std::move(sets)), indices_(sets_.size()), context_(context), total_(total) {
    CLOVER_CHECK(context >= 1, "context ", context);
    require(!sets_.empty(), "no data set is given; name at least one in data.train");
    require(total >= 1, "the run draws ", total, " samples from ", sets_[0].name, ", expected at least 1; raise train.steps");
    require(seed >= 0 && seed <= std::numeric_limits<uint32_t>::max(), "seed ", seed, ", expected 0 to ", std::numeric_limits<uint32_t>::max());
    const bool by_size = std::all_of(sets_.begin(), sets_.end(), [](const WeightedDataset& set) { return set.weight == 0; });
    for (const WeightedDataset& set : sets_)
        if (by_size) check_set(set, context, vocab);
    const std::vector<double> share = normalised(weights_of(sets_));
    std::vector<int64_t> drawn(sets_.size());
    if (sets_.size() == 1) {
        drawn[0] = total;
    } else {
        blend_ = make_blend(share, total);
        for (int32_t set : blend_.set) drawn[size_t(set)]++;
    }
    for (size_t i = 0; i < sets_.size(); i++) {
        if (drawn[i] == 0) continue;
        if (!by_size) check_set(sets_[i], context, vocab);
        // Megatron asks each set of a blend for 0.5% more than its share. It never falls short, but a draw must not depend on that.
        const int64_t request = sets_.size() == 1 ? total : int64_t(std::ceil(double(total) * share[i] * 1.005));
        indices_[i] = make_gpt_index(sets_[i].data->lengths(), context, std::max(request, drawn[i]), uint32_t(seed));
    }
}

int SampleSequence::set_of(int64_t i) const {
    CLOVER_CHECK(i >= 0 && i < total_, "sample ", i, " of ", total_);
    return blend_.set.empty() ? 0 : int(blend_.set[size_t(i)]);
}

void SampleSequence::read(int64_t i, int32_t* tokens) const {
    const size_t set = size_t(set_of(i));
    const GptIndex& index = indices_[set];
    const IndexedDataset& data = *sets_[set].data;
    const size_t sample = size_t(index.shuffle[size_t(blend_.set.empty() ? i : blend_.sample[size_t(i)])]);
    int64_t place = index.boundaries.place[sample], offset = index.boundaries.offset[sample];
    for (int64_t read = 0; read < context_ + 1; place++, offset = 0) {
        const int32_t sequence = index.document[size_t(place)];
        const int64_t n = std::min(context_ + 1 - read, data.length(sequence) - offset);
        data.read(sequence, offset, n, tokens + read);
        read += n;
    }
}

}  // namespace clover
