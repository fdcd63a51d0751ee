#include "sample_sequence.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "../kernels/error.h"
#include "hash.h"
#include "token_record.h"

namespace clover {
namespace {

int64_t tokens_of(const WeightedDataset& set) {
    int64_t tokens = 0;
    for (int64_t i = 0; i < set.sequences; i++) tokens += set.data->length(set.first + i);
    return tokens;
}

std::vector<double> weights_of(const std::vector<WeightedDataset>& sets, const std::vector<int64_t>& tokens) {
    std::vector<double> weights;
    for (const WeightedDataset& set : sets) weights.push_back(set.weight);
    if (std::all_of(weights.begin(), weights.end(), [](double w) { return w == 0; })) weights.assign(tokens.begin(), tokens.end());
    return weights;
}

void check_set(const WeightedDataset& set, int64_t tokens, const SampleOptions& o) {
    require(tokens > o.context, "data set ", set.name, " has ", tokens, " tokens, but one sample of context ", o.context, " needs ", o.context + 1,
            "; add text or lower model.context");
    // A record that fits says it; else the file is read once. Each sample is looked at again when it is drawn.
    const std::optional<TokenRecord> record = read_token_record(set.data->prefix());
    const bool known = record && record->tokens == set.data->token_count() && record->largest_token >= 0;
    const int64_t largest = known ? record->largest_token : set.data->largest_token();
    require(largest < o.vocab, "data set ", set.name, " holds token id ", largest, ", but the vocabulary has ", o.vocab,
            " entries; use the tokenizer the set was made with, or raise model.vocab to ", largest + 1);
}

}  // namespace

SampleSequence::SampleSequence(std::vector<WeightedDataset> sets, const SampleOptions& options)
    : sets_(std::move(sets)), options_(options), requested_(sets_.size()) {
    const SampleOptions& o = options_;
    CLOVER_CHECK(o.context >= 1, "context ", o.context);
    require(!sets_.empty(), "no data set is given; name at least one in data.train");
    require(o.total >= 1, "the run draws ", o.total, " samples from ", sets_[0].name, ", expected at least 1; raise train.steps");
    require(o.seed >= 0 && o.seed <= std::numeric_limits<uint32_t>::max(), "seed ", o.seed, ", expected 0 to ", std::numeric_limits<uint32_t>::max());
    for (WeightedDataset& set : sets_) {
        if (set.sequences < 0) set.sequences = set.data->sequence_count() - set.first;
        CLOVER_CHECK(set.first >= 0 && set.sequences >= 0 && set.first + set.sequences <= set.data->sequence_count(), set.name);
        tokens_.push_back(tokens_of(set));
    }
    const bool by_size = std::all_of(sets_.begin(), sets_.end(), [](const WeightedDataset& set) { return set.weight == 0; });
    for (size_t i = 0; i < sets_.size(); i++)
        if (by_size) check_set(sets_[i], tokens_[i], o);
    const Blend shares(weights_of(sets_, tokens_), 0);  // refuses weights that are none, for a single set as well
    if (sets_.size() > 1) blend_ = std::make_unique<Blend>(weights_of(sets_, tokens_), o.total);
    requested_ = requests(o.total);
    for (size_t i = 0; i < sets_.size(); i++) {
        if (requested_[i] == 0) continue;
        if (!by_size) check_set(sets_[i], tokens_[i], o);
        index(i, 0);
    }
}

/// Samples that each set's index must hold in a run of `total`; 0 for a set that is not drawn from.
std::vector<int64_t> SampleSequence::requests(int64_t total) const {
    if (!blend_) return {total};
    const bool ours = total == options_.total;
    const Blend another(weights_of(sets_, tokens_), ours ? 0 : total);
    const Blend& blend = ours ? *blend_ : another;
    std::vector<int64_t> requests = blend.drawn(total);
    for (size_t i = 0; i < sets_.size(); i++)
        // Megatron asks each set of a blend for 0.5% more than its share. It never falls short, but a draw must not depend on that.
        if (requests[i] > 0) requests[i] = std::max(int64_t(std::ceil(double(total) * blend.shares()[i] * 1.005)), requests[i]);
    return requests;
}

bool SampleSequence::same_order(int64_t total) const {
    if (options_.order == SampleOrder::epochs || total == options_.total) return true;
    const std::vector<int64_t> other = requests(total);
    for (size_t i = 0; i < sets_.size(); i++) {
        if (requested_[i] == 0 || other[i] == 0) continue;  // then the shorter run does not draw from it at all
        const SequenceLength length = [&data = *sets_[i].data](int64_t sequence) { return data.length(sequence); };
        GptIndexSpec then = spec(i, 0);
        then.samples = other[i];
        if (gpt_shuffle(length, then) != gpt_shuffle(length, spec(i, 0))) return false;
    }
    return true;
}

Blend::Draw SampleSequence::draw(int64_t i) const {
    CLOVER_CHECK(i >= 0 && i < size(), "sample ", i, " of ", size());
    return blend_ ? (*blend_)[i] : Blend::Draw{0, i};
}

int SampleSequence::set_of(int64_t i) const { return draw(i).set; }

std::vector<int64_t> SampleSequence::drawn(int64_t i) const { return blend_ ? blend_->drawn(i) : std::vector<int64_t>{i}; }

int64_t SampleSequence::epochs(int set) const {
    const size_t s = size_t(set);
    if (requested_[s] == 0) return 0;
    if (options_.order == SampleOrder::megatron) return index(s, 0)->epochs;
    const int64_t per_epoch = (tokens_[s] - 1) / options_.context;
    return (drawn(size())[s] + per_epoch - 1) / per_epoch;
}

GptIndexSpec SampleSequence::spec(size_t set, int64_t epoch) const {
    const bool megatron = options_.order == SampleOrder::megatron;
    return {.first = sets_[set].first, .sequences = sets_[set].sequences, .context = options_.context, .samples = megatron ? requested_[set] : 0,
            .seed = uint32_t(options_.seed + epoch)};
}

/// The name tells the token file, as it is now, and the part of it apart.
std::string SampleSequence::cache_stem(size_t set) const {
    const WeightedDataset& s = sets_[set];
    const std::string idx = std::filesystem::absolute(s.data->prefix() + ".idx").lexically_normal().string();
    struct stat info {};
    ::stat(idx.c_str(), &info);
    const uint64_t hash = hash64(text(idx, '\0', info.st_size, ' ', info.st_mtim.tv_sec, ' ', info.st_mtim.tv_nsec, ' ', s.first, ' ', s.sequences));
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
    std::filesystem::create_directories(options_.cache);
    return (std::filesystem::path(options_.cache) / (std::filesystem::path(idx).stem().string() + "-" + digits)).string();
}

std::shared_ptr<const GptIndex> SampleSequence::index(size_t set, int64_t epoch) const {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const GptIndex>& found = indices_[{set, epoch}];
    if (!found) {
        const GptIndexSpec wanted = spec(set, epoch);
        const SequenceLength length = [&data = *sets_[set].data](int64_t i) { return data.length(i); };
        const bool in_memory = options_.cache.empty() || gpt_index_bytes(length, wanted) <= options_.memory_limit;
        found = std::make_shared<const GptIndex>(make_gpt_index(length, wanted, in_memory ? "" : cache_stem(set)));
        indices_.erase({set, epoch - 2});  // readers may still be in the epoch before
    }
    return indices_[{set, epoch}];
}

void SampleSequence::read_window(size_t set, const GptIndex& index, int64_t sample, int32_t* tokens) const {
    const IndexedDataset& data = *sets_[set].data;
    const int64_t wanted = options_.context + 1;
    int64_t place = index.boundaries.place(sample), offset = index.boundaries.offset(sample);
    for (int64_t read = 0; read < wanted; place++, offset = 0) {
        const int64_t sequence = index.document[place], n = std::min(wanted - read, data.length(sequence) - offset);
        data.read(sequence, offset, n, tokens + read);
        read += n;
    }
}

void SampleSequence::read(int64_t i, int32_t* tokens) const {
    const Blend::Draw draw = this->draw(i);
    const size_t set = size_t(draw.set);
    const int64_t per_epoch = options_.order == SampleOrder::epochs ? (tokens_[set] - 1) / options_.context : std::numeric_limits<int64_t>::max();
    const std::shared_ptr<const GptIndex> index = this->index(set, draw.sample / per_epoch);
    read_window(set, *index, index->shuffle[draw.sample % per_epoch], tokens);
    const int32_t largest = *std::max_element(tokens, tokens + options_.context + 1), least = *std::min_element(tokens, tokens + options_.context + 1);
    require(least >= 0 && largest < options_.vocab, "data set ", sets_[set].name, " holds token id ", least < 0 ? least : largest,
            ", but the vocabulary has ", options_.vocab, " entries; has its file changed?");
}

std::pair<int64_t, int64_t> share_of(int64_t sequences, double from, double to) {
    return {int64_t(std::nearbyint(from * double(sequences))), int64_t(std::nearbyint(to * double(sequences)))};
}

std::vector<int64_t> split_bounds(int64_t sequences, const std::vector<double>& shares) {
    double sum = 0;
    for (double s : shares) {
        require(std::isfinite(s) && s >= 0, "a share of the split is ", s, ", expected a number of 0 or more");
        sum += s;
    }
    require(sum > 0, "the shares of the split add up to 0, expected more");
    std::vector<int64_t> bounds = {0};
    for (double s : shares) bounds.push_back(bounds.back() + int64_t(std::nearbyint(s / sum * double(sequences))));
    // What rounding has left over or overdrawn is taken from every bound but the first.
    const int64_t excess = bounds.back() - sequences;
    for (size_t i = 1; i < bounds.size(); i++) bounds[i] -= excess;
    return bounds;
}

}  // namespace clover
