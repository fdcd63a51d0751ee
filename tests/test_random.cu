// The counter-based generator gives the same bits in a kernel as on the host.
#include "../kernels/cuda.cuh"
#include "../kernels/random.h"
#include "support.h"

using namespace clover;
using namespace clover::test;

namespace {

struct Key {
    uint64_t seed;
    Stream stream;
    uint32_t substream, step;
};

/// words (n, 4) and uniforms (n) of elements first … first + n − 1.
__global__ void draw_kernel(int32_t* words, float* uniforms, Key key, uint64_t first, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const auto bits = random_bits(key.seed, key.stream, key.substream, key.step, first + uint64_t(i));
    for (int w = 0; w < 4; w++) words[4 * i + w] = int32_t(bits[size_t(w)]);
    uniforms[i] = uniform(bits[0]);
}

TEST_SUITE("random") {
    TEST_CASE("a kernel draws the host's bits") {
        if (!usable_cuda()) return;
        const Device& device = *usable_cuda();
        constexpr int64_t n = 1000;
        constexpr Key keys[] = {{1, Stream::rounding, 0, 0}, {~uint64_t{0}, Stream::dropout, 77, 3}, {uint64_t{1} << 40, Stream::sampling, 1u << 28, ~0u}};
        for (const Key& key : keys)
            for (uint64_t first : {uint64_t{0}, (uint64_t{1} << 32) - 500, ~uint64_t{0} - uint64_t(n)}) {
                Owned words = unwritten(device, Dtype::i32, {n, 4}), uniforms = unwritten(device, Dtype::f32, {n});
                TestContext ctx(device);
                launch(ctx, {.grid = blocks_for(n, 128), .block = 128}, draw_kernel, words.t.as<int32_t>(), uniforms.t.as<float>(), key, first, n);
                synchronize();
                int64_t wrong = 0;
                for (int64_t i = 0; i < n; i++) {
                    const auto want = random_bits(key.seed, key.stream, key.substream, key.step, first + uint64_t(i));
                    for (int64_t w = 0; w < 4; w++) wrong += uint32_t(words.t.as<int32_t>()[4 * i + w]) != want[size_t(w)];
                    wrong += uniforms.t.as<float>()[i] != uniform(want[0]);
                }
                CHECK(wrong == 0);
            }
    }
}

}  // namespace
