#include "gpt_index.h"

#include <unistd.h>

#include <limits>
#include <numeric>

#include "../kernels/error.h"
#include "numpy_random.h"

namespace clover {
namespace {

/// What follows from a specification before any array is made.
struct Plan {
    int64_t tokens = 0, epochs = 0, samples = 0;  // of one epoch; of the whole
    int64_t before_last = 0;                      // samples of all epochs but the last
    bool separate = false;
    IntegerType document_type = IntegerType::i32, sample_type = IntegerType::i32, shuffle_type = IntegerType::u32;
};

/// The smallest e with ⌊(e · tokens − 1) / context⌋ >= samples.
int64_t epochs_for(int64_t tokens, int64_t context, int64_t samples) {
    int64_t needed;
    CLOVER_CHECK(!__builtin_mul_overflow(samples, context, &needed), samples, " samples of ", context, " tokens");
    return needed / tokens + 1;  // ⌈(needed + 1) / tokens⌉
}

Plan plan_of(const SequenceLength& length, const GptIndexSpec& spec) {
    Plan plan;
    for (int64_t i = 0; i < spec.sequences; i++) plan.tokens += length(spec.first + i);
    const int64_t per_epoch = plan.tokens > 0 ? (plan.tokens - 1) / spec.context : 0;
    CLOVER_CHECK(spec.context >= 1 && spec.samples >= 0 && per_epoch >= 1, plan.tokens, " tokens, context ", spec.context, ", ", spec.samples, " samples");
    const int64_t samples = spec.samples > 0 ? spec.samples : per_epoch;
    plan.epochs = epochs_for(plan.tokens, spec.context, samples);
    int64_t all_tokens;
    CLOVER_CHECK(!__builtin_mul_overflow(plan.epochs, plan.tokens, &all_tokens), plan.epochs, " epochs of ", plan.tokens, " tokens");
    plan.samples = (all_tokens - 1) / spec.context;
    plan.before_last = (all_tokens - plan.tokens - 1) / spec.context;
    // Megatron-DeepSpeed's rule: a last epoch of which less than 95% is drawn comes after all others.
    plan.separate = plan.epochs > 1 && samples - plan.before_last < int64_t(0.95 * double(per_epoch));
    // The types that numpy has there, wider ones where those would overflow.
    constexpr int64_t i32_most = std::numeric_limits<int32_t>::max();
    if (spec.first + spec.sequences > i32_most) plan.document_type = IntegerType::i64;
    if (plan.epochs * spec.sequences > i32_most) plan.sample_type = IntegerType::i64;
    if (plan.samples >= std::numeric_limits<uint32_t>::max() - 1) plan.shuffle_type = IntegerType::i64;
    return plan;
}

/// An array in memory, or the file STEM_WHAT.npy: as it lies there, or made by fill(array) and committed.
template <class F>
IntegerArray make_array(const std::string& stem, const char* what, IntegerType type, const std::vector<int64_t>& shape, F fill) {
    if (stem.empty()) {
        IntegerArray array = IntegerArray::in_memory(type, shape);
        fill(array);
        return array;
    }
    const std::string path = stem + what + ".npy";
    try {
        if (::access(path.c_str(), F_OK) == 0) return IntegerArray::open(path, type, shape);
    } catch (const InputError&) {
        // Cut short or of another kind: made anew.
    }
    IntegerArray array = IntegerArray::create(path, type, shape);
    fill(array);
    array.commit();
    return array;
}

/// Each epoch holds every sequence once. With a separate last epoch, all others are shuffled as one, then the last.
void fill_documents(IntegerArray& array, const GptIndexSpec& spec, const Plan& plan, NumpyLegacyRandom& random) {
    array.with_values([&](auto* values) {
        using T = std::remove_pointer_t<decltype(values)>;
        const int64_t count = array.count(), together = plan.separate ? count - spec.sequences : count;
        for (int64_t i = 0; i < count; i++) values[i] = T(spec.first + i % spec.sequences);
        random.shuffle(values, together);
        random.shuffle(values + together, count - together);
    });
}

void fill_shuffle(IntegerArray& array, const Plan& plan, NumpyLegacyRandom& random) {
    array.with_values([&](auto* values) {
        const int64_t count = array.count(), together = plan.separate ? plan.before_last : count;
        std::iota(values, values + count, std::remove_pointer_t<decltype(values)>{0});
        random.shuffle(values, together);
        random.shuffle(values + together, count - together);
    });
}

/// The generator goes on from the documents to the samples; where the documents came from a file it has to be brought there.
void skip_documents(const GptIndexSpec& spec, const Plan& plan, NumpyLegacyRandom& random) {
    const int64_t count = plan.epochs * spec.sequences, together = plan.separate ? count - spec.sequences : count;
    for (const int64_t n : {together, count - together})
        for (int64_t i = n - 1; i >= 1; i--) random.bounded(uint64_t(i));
}

}  // namespace

void fill_sample_boundaries(const SequenceLength& length, const IntegerArray& order, int64_t context, IntegerArray& pairs) {
    pairs.with_values([&](auto* values) {
        using T = std::remove_pointer_t<decltype(values)>;
        int64_t place = 0, offset = 0, available = order.count() > 0 ? length(order[0]) : 0;
        values[0] = values[1] = 0;
        for (int64_t k = 1; k < pairs.count() / 2; k++) {
            // context + 1 tokens from here; the last of them is where the next sample starts.
            int64_t remaining = context + 1;
            while (remaining > available - offset) {
                remaining -= available - offset;
                offset = 0;
                available = length(order[++place]);
            }
            offset += remaining - 1;
            values[2 * k] = T(place);
            values[2 * k + 1] = T(offset);
        }
    });
}

GptIndex make_gpt_index(const SequenceLength& length, const GptIndexSpec& spec, const std::string& stem) {
    const Plan plan = plan_of(length, spec);
    const std::string files = stem.empty() ? "" : text(stem, "_indexmap_", spec.samples, "ns_", spec.context, "sl_", spec.seed, "s_");
    NumpyLegacyRandom random(spec.seed);
    GptIndex index;
    index.epochs = plan.epochs;
    index.separate_last_epoch = plan.separate;
    bool shuffled = false;
    index.document = make_array(files, "doc_idx", plan.document_type, {plan.epochs * spec.sequences}, [&](IntegerArray& array) {
        fill_documents(array, spec, plan, random);
        shuffled = true;
    });
    index.boundaries.pairs = make_array(files, "sample_idx", plan.sample_type, {plan.samples + 1, 2}, [&](IntegerArray& array) {
        fill_sample_boundaries(length, index.document, spec.context, array);
    });
    index.shuffle = make_array(files, "shuffle_idx", plan.shuffle_type, {plan.samples}, [&](IntegerArray& array) {
        if (!shuffled) skip_documents(spec, plan, random);
        fill_shuffle(array, plan, random);
    });
    return index;
}

GptShuffle gpt_shuffle(const SequenceLength& length, const GptIndexSpec& spec) {
    const Plan plan = plan_of(length, spec);
    return {plan.epochs, plan.separate};
}

int64_t gpt_index_bytes(const SequenceLength& length, const GptIndexSpec& spec) {
    const Plan plan = plan_of(length, spec);
    return plan.epochs * spec.sequences * size_of(plan.document_type) + (plan.samples + 1) * 2 * size_of(plan.sample_type) +
           plan.samples * size_of(plan.shuffle_type);
}

}  // namespace clover
