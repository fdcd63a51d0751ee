// The PTX instructions of kernels/ptx.cuh, emulated from the documented register layouts (facts: cuda.md, sections 1-3 and 6.2). With
// lane = 4 g + t, and element h = 0, 1 of a register being its low or high half:
//   mma A   register r: row g + 8 (r & 1), column 2 t + h + 8 (r >> 1)
//   mma B   register r: row k = 2 t + h + 8 r, column n = g
//   mma C   float i:    row g + 8 (i >> 1), column 2 t + (i & 1)
//   ldmatrix   matrix m has its row r at the address of lane 8 m + r; register m of a lane is elements (g, 2 t + h) of it, transposed
//              (2 t + h, g)
//   movmatrix  from elements (g, 2 t + h) to (2 t + h, g)
// cp.async is as late as the rules allow: its bytes arrive when the issuing thread waits for their group, as that thread's write. Until
// then any access to them is a Fault, and so is a change of the source.
#include <bit>
#include <cmath>
#include <cstring>
#include <sstream>

#include "async_copy.h"
#include "tensor_core.h"

namespace simt {
namespace {

constexpr int lanes_of_warp = 32;
constexpr uint32_t whole_warp = 0xffffffffu;
constexpr uint16_t poison = 0x7fc0;  // NaN in bf16, and twice in a row in f32

template <class... Parts>
std::string message(const Parts&... parts) {
    std::ostringstream s;
    (s << ... << parts);
    return s.str();
}

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
    multiply(tile, options().mma);
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

// Reads of 8, 4, 2 and 1 bytes add up to any number of bytes from an aligned address.
void check_source(const void* from, int valid) {
    const char* p = static_cast<const char*>(from);
    for (int bytes : {16, 8, 4, 2, 1})
        if (valid & bytes) check_access(p, size_t(bytes), false), p += bytes;
}

void deliver(const AsyncCopy& copy) {
    if (std::memcmp(copy.data, copy.from, size_t(copy.valid)) != 0)
        fault(message("cp.async: the source ", copy.from, " of the copy to ", copy.to, " was changed before the copy was waited for"));
    end_async_write(copy.to, sizeof copy.data);
    std::memcpy(copy.to, copy.data, sizeof copy.data);
}

uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return (x ^ x >> 32) * 0xd6e8feb86659fd93u >> 32;
}

}  // namespace

void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    Mma mine{c, a, b};
    warp_collective("mma.m16n8k16", whole_warp, &mine, run_mma);
}

void ldmatrix_x4(uint32_t (&r)[4], const void* row, bool transposed) {
    check_access(row, 16, false);
    LoadMatrix mine{r, row};
    if (transposed)
        warp_collective("ldmatrix.x4.trans", whole_warp, &mine, run_ldmatrix<true>);
    else
        warp_collective("ldmatrix.x4", whole_warp, &mine, run_ldmatrix<false>);
}

uint32_t movmatrix_transposed(uint32_t a) {
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
    if (bytes != 16) fault(message("cp.async.cg copies 16 bytes, not ", bytes));
    if (valid < 0 || valid > bytes) fault(message("cp.async: ", valid, " of ", bytes, " bytes to be read"));
    if (reinterpret_cast<uintptr_t>(global) % 16 != 0) fault(message("cp.async: the source ", global, " is not aligned to 16 bytes"));
    check_source(global, valid);
    check_access(shared, size_t(bytes), true);
    AsyncCopy copy{shared, global, valid, {}};
    std::memcpy(copy.data, global, size_t(valid));
    for (int i = 0; i < bytes; i += 2) std::memcpy(static_cast<char*>(shared) + i, &poison, sizeof poison);
    begin_async_write(shared, size_t(bytes));
    async_copies().copies.push_back(copy);
}

void cp_async_commit() { async_copies().groups.push_back(async_copies().copies.size()); }

// All but the latest `pending` groups arrive, and nothing that was not committed.
void cp_async_wait(int pending) {
    AsyncCopies& mine = async_copies();
    if (pending < 0) fault(message("cp.async.wait_group ", pending));
    if (mine.groups.size() <= size_t(pending)) return;
    const auto still_pending = mine.groups.end() - pending;
    const size_t arrived = still_pending[-1];
    for (size_t i = 0; i < arrived; i++) deliver(mine.copies[i]);
    mine.copies.erase(mine.copies.begin(), mine.copies.begin() + ptrdiff_t(arrived));
    mine.groups.erase(mine.groups.begin(), still_pending);
    for (size_t& end : mine.groups) end -= arrived;
}

void trap() { fault("trap"); }

}  // namespace simt
