// numpy.random.RandomState(seed), the legacy generator, bit for bit: MT19937 seeded by init_genrand, and its shuffle by masked rejection.
#pragma once
#include <cstdint>
#include <utility>

namespace clover {

class NumpyLegacyRandom {
public:
    explicit NumpyLegacyRandom(uint32_t seed);
    uint32_t next();
    /// Uniform in [0, largest].
    uint64_t bounded(uint64_t largest);
    template <class T>
    void shuffle(T* values, int64_t count) {
        for (int64_t i = count - 1; i >= 1; i--) std::swap(values[i], values[int64_t(bounded(uint64_t(i)))]);
    }

private:
    uint32_t state_[624];
    int index_ = 624;
};

}  // namespace clover
