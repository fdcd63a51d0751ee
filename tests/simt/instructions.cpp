// The PTX instructions of kernels/ptx.cuh, emulated from the documented register layouts (facts: cuda.md, sections 1-3 and 6.2). With
// lane = 4 g + t, and element h = 0, 1 of a register being its low or high half:
//   mma A   register r: row g + 8 (r & 1), column 2 t + h + 8 (r >> 1)
//   mma B   register r: row k = 2 t + h + 8 r, column n = g
//   mma C   float i:    row g + 8 (i >> 1), column 2 t + (i & 1)
//   ldmatrix   matrix m has its row r at the address of lane 8 m + r; register m of a lane is elements (g, 2 t + h) of it, transposed
//              (2 t + h, g)
//   movmatrix  from elements (g, 2 t + h) to (2 t + h, g)
// What cp.async does with the bytes is in async.cpp.
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "internal.h"
#include "tensor_core.h"

namespace simt {
namespace {

constexpr int lanes_of_warp = 32;
constexpr uint32_t whole_warp = 0xffffffffu;
constexpr ptrdiff_t most_shared = 228 << 10;

uint16_t half(uint32_t packed, int h) { return uint16_t(packed >> (16 * h)); }
uint32_t pack(uint16_t low, uint16_t high) { return uint32_t{low} | uint32_t{high} << 16; }

uint16_t round_to_bf16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if (std::isnan(x)) return 0x7fff;
    return uint16_t((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

struct Mma {
    float* c;
    const uint32_t *a, *b;
};

void run_mma(void* const* lanes) {
    TensorCoreTile tile;
    for (int lane = 0; lane < lanes_of_warp; lane++) {
        const Mma& of = *static_cast<const Mma*>(lanes[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int r = 0; r < 4; r++)
            for (int h = 0; h < 2; h++) tile.a[g + 8 * (r & 1)][2 * t + h + 8 * (r >> 1)] = half(of.a[r], h);
        for (int r = 0; r < 2; r++)
            for (int h = 0; h < 2; h++) tile.b[2 * t + h + 8 * r][g] = half(of.b[r], h);
        for (int i = 0; i < 4; i++) tile.c[g + 8 * (i >> 1)][2 * t + (i & 1)] = of.c[i];
    }
    multiply(tile, launch_options().mma);
    count_mma();
    for (int lane = 0; lane < lanes_of_warp; lane++) {
        float* const c = static_cast<const Mma*>(lanes[lane])->c;
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) c[i] = tile.c[g + 8 * (i >> 1)][2 * t + (i & 1)];
    }
}

struct LoadMatrix {
    uint32_t* r;
    const void* row;
};

template <bool transposed>
void run_ldmatrix(void* const* lanes) {
    for (int m = 0; m < 4; m++) {
        uint16_t matrix[8][8];
        for (int row = 0; row < 8; row++) std::memcpy(matrix[row], static_cast<const LoadMatrix*>(lanes[8 * m + row])->row, sizeof matrix[row]);
        for (int lane = 0; lane < lanes_of_warp; lane++) {
            const int g = lane / 4, t = lane % 4;
            static_cast<const LoadMatrix*>(lanes[lane])->r[m] =
                transposed ? pack(matrix[2 * t][g], matrix[2 * t + 1][g]) : pack(matrix[g][2 * t], matrix[g][2 * t + 1]);
        }
    }
}

void run_movmatrix(void* const* lanes) {
    uint16_t matrix[8][8];
    for (int lane = 0; lane < lanes_of_warp; lane++)
        for (int h = 0; h < 2; h++) matrix[lane / 4][2 * (lane % 4) + h] = half(*static_cast<const uint32_t*>(lanes[lane]), h);
    for (int lane = 0; lane < lanes_of_warp; lane++) {
        const int g = lane / 4, t = lane % 4;
        *static_cast<uint32_t*>(lanes[lane]) = pack(matrix[2 * t][g], matrix[2 * t + 1][g]);
    }
}

uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return (x ^ x >> 32) * 0xd6e8feb86659fd93u >> 32;
}

}  // namespace

void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    SIMT_PLACE();
    Mma mine{c, a, b};
    warp_collective("mma.m16n8k16", whole_warp, &mine, run_mma);
}

void ldmatrix_x4(uint32_t (&r)[4], const void* row, bool transposed) {
    SIMT_PLACE();
    if (static_cast<const char*>(row) - static_cast<char*>(shared_memory()) >= most_shared || row < shared_memory())
        fault("ldmatrix: a row that is not in shared memory");
    check_access(row, 16, false);
    LoadMatrix mine{r, row};
    if (transposed)
        warp_collective("ldmatrix.x4.trans", whole_warp, &mine, run_ldmatrix<true>);
    else
        warp_collective("ldmatrix.x4", whole_warp, &mine, run_ldmatrix<false>);
}

uint32_t movmatrix_transposed(uint32_t a) {
    SIMT_PLACE();
    warp_collective("movmatrix.trans", whole_warp, &a, run_movmatrix);
    return a;
}

uint32_t pack_bf16(float low, float high) { return pack(round_to_bf16(low), round_to_bf16(high)); }

// Rounded to nearest and then moved by −1, 0 or 1 ulp, so that nothing can lean on the last bits: 1.5 of the 2 ulp that are promised.
float exp2_approximate(float x) {
    if (std::isnan(x)) return std::bit_cast<float>(0x7fffffffu);
    if (std::abs(x) < 0x1p-126f) return 1;
    const float y = float(std::exp2(double(x)));
    if (y < 0x1p-126f) return 0;
    if (std::isinf(y)) return y;
    const uint32_t bits = std::bit_cast<uint32_t>(y) + uint32_t(mixed(std::bit_cast<uint32_t>(x)) % 3) - 1;
    const float moved = std::bit_cast<float>(bits);
    return moved < 0x1p-126f ? 0 : std::isinf(moved) ? y : moved;
}

void cp_async(void* shared, const void* global, int bytes, int valid) {
    SIMT_PLACE();
    if (bytes != 16) fault("cp.async.cg copies 16 bytes, not " + std::to_string(bytes));
    if (valid < 0 || valid > bytes) fault("cp.async: " + std::to_string(valid) + " of 16 bytes are to be read");
    async_issue(shared, global, bytes, valid);
}
void cp_async_commit() {
    SIMT_PLACE();
    async_commit();
}
void cp_async_wait(int pending) {
    SIMT_PLACE();
    if (pending < 0) fault("cp.async.wait_group " + std::to_string(pending));
    async_wait(pending);
}

}  // namespace simt
