// golden/optimizers.safetensors (golden/make_optimizers.py): three parameters, 25 gradients, where optimizers bring the parameters.
#pragma once
#include <cstring>
#include <filesystem>

#include "../model/safetensors.h"
#include "pointwise_device.h"

namespace clover::test {

struct OptimizerGolden {
    static constexpr int64_t steps = 25, first[] = {0, 240, 408}, count[] = {240, 165, 17}, columns[] = {20, 5, 0}, elements = 428;
    static constexpr const char* names[] = {"wide", "tall", "vector"};
    SafetensorsFile file{(std::filesystem::path(__FILE__).parent_path() / "golden/optimizers.safetensors").string()};

    /// Parameters (row 0), gradients (row: step from 0) or results (row 0) as one arena of `elements`.
    std::vector<double> arena(const std::string& group, int64_t row = 0) const {
        std::vector<double> all(elements);
        for (int k = 0; k < 3; k++) {
            const float* const x = reinterpret_cast<const float*>(file.data(file.at(group + "/" + names[k]))) + row * count[k];
            std::copy_n(x, count[k], all.begin() + first[k]);
        }
        return all;
    }
    void check(const std::vector<double>& ours, const std::string& group) const {
        const std::vector<double> want = arena(group), start = arena("param");
        for (int k = 0; k < 3; k++) {
            INFO(group, " ", names[k]);
            const auto part = [&](const std::vector<double>& v) { return std::vector<double>(v.begin() + first[k], v.begin() + first[k] + count[k]); };
            CHECK(normalised_error(part(ours), part(want)) <= 1e-6);
            CHECK(normalised_error(part(start), part(want)) >= 1e-3);
        }
    }
};

inline void fill(Owned& to, const std::vector<double>& from) {
    to.fill([&](int64_t i) { return from[size_t(i)]; });
}

}  // namespace clover::test
