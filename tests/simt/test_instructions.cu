// The emulated instructions against the tables and the outputs recorded on hardware in facts: cuda.md, sections 1-3 and 6.
#include <random>

#include "../../kernels/ptx.cuh"
#include "buffer.h"
#include "tensor_core.h"

namespace {

using clover::shared_memory;
namespace ptx = clover::ptx;
using simt::MmaModel;
using namespace simt::test;

// ---- Running small kernels -----------------------------------------------------------------------------------------------------

template <class... Parameters, class... Arguments>
void run(void (*kernel)(Parameters...), unsigned threads, size_t shared_bytes, Arguments... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = 1;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared_bytes;
    expect(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
    expect(cudaDeviceSynchronize());
}

struct WithModel {
    MmaModel before = simt::options().mma;
    explicit WithModel(MmaModel m) { simt::options().mma = m; }
    ~WithModel() { simt::options().mma = before; }
};
/// Reading what another thread writes, without a barrier, is a fault in every order of the threads.
void check_unordered(const std::function<void()>& run) {
    const uint64_t before = simt::options().seed;
    int races = 0;
    for (uint64_t seed = 0; seed < 16; seed++) {
        simt::options().seed = seed;
        const std::string fault = fault_of(run);
        CHECK(fault != "");
        races += fault.find("race") != std::string::npos;
    }
    CHECK(races > 0);
    simt::options().seed = before;
}

constexpr MmaModel models[] = {MmaModel::exact, MmaModel::sm80, MmaModel::sm90};

uint16_t bf16_bits(float x) { return uint16_t(std::bit_cast<uint32_t>(x) >> 16); }

/// Small integers: every sum of products of them is exact under every model.
std::vector<float> small_integers(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> v(n);
    for (float& x : v) x = float(int(random() % 7) - 3);
    return v;
}

// ---- mma: the register layout --------------------------------------------------------------------------------------------------

__global__ void recorded_mma(float* out) {
    const int lane = int(threadIdx.x);
    float x[8];
    for (int i = 0; i < 8; i++) x[i] = float(8 * lane + i);
    const uint32_t a[4] = {ptx::pack_bf16(x[1], x[0]), ptx::pack_bf16(x[3], x[2]), ptx::pack_bf16(x[5], x[4]), ptx::pack_bf16(x[7], x[6])};
    const uint32_t b[2] = {ptx::pack_bf16(x[1], x[0]), ptx::pack_bf16(x[3], x[2])};
    float c[4] = {x[0], x[1], x[2], x[3]};
    ptx::mma_m16n8k16(c, a, b);
    for (int i = 0; i < 4; i++) out[4 * lane + i] = c[i];
}

// ---- ldmatrix: every recipe ----------------------------------------------------------------------------------------------------

constexpr int pitch = 24;  // elements per row in shared memory

struct Tiles {
    uint16_t a[16 * pitch], b[16 * pitch];
};

__device__ void load_tiles(const float* a, const float* b) {
    Tiles& s = *shared_memory<Tiles>();
    for (int i = int(threadIdx.x); i < 256; i += int(blockDim.x)) {
        s.a[i / 16 * pitch + i % 16] = uint16_t(ptx::pack_bf16(a[i], 0));
        s.b[i / 16 * pitch + i % 16] = uint16_t(ptx::pack_bf16(b[i], 0));
    }
    __syncthreads();
}

__device__ void load_a(uint32_t (&r)[4], const uint16_t* tile, bool stored_k_by_m) {
    const int lane = int(threadIdx.x % 32);
    if (stored_k_by_m)
        ptx::ldmatrix_x4_transposed(r, tile + ((lane & 7) + 8 * (lane >> 4)) * pitch + 8 * ((lane >> 3) & 1));
    else
        ptx::ldmatrix_x4(r, tile + (lane & 15) * pitch + 8 * (lane >> 4));
}
/// B (16, 16): the registers of its two tiles of 8 columns.
__device__ void load_b(uint32_t (&first)[2], uint32_t (&second)[2], const uint16_t* tile, bool stored_k_by_n) {
    const int lane = int(threadIdx.x % 32);
    uint32_t r[4];
    if (stored_k_by_n)
        ptx::ldmatrix_x4_transposed(r, tile + (lane & 15) * pitch + 8 * (lane >> 4));
    else
        ptx::ldmatrix_x4(r, tile + ((lane & 7) + 8 * (lane >> 4)) * pitch + 8 * ((lane >> 3) & 1));
    first[0] = r[0], first[1] = r[1], second[0] = r[2], second[1] = r[3];
}
__device__ void store_c(float* out, const float (&c)[4], int first_column) {
    const int lane = int(threadIdx.x % 32), g = lane >> 2, t = lane & 3;
    for (int i = 0; i < 4; i++) out[(g + 8 * (i >> 1)) * 16 + first_column + 2 * t + (i & 1)] = c[i];
}

__global__ void product(float* out, const float* a, const float* b, bool a_k_by_m, bool b_k_by_n) {
    load_tiles(a, b);
    const Tiles& s = *shared_memory<Tiles>();
    uint32_t ra[4], b0[2], b1[2];
    load_a(ra, s.a, a_k_by_m);
    load_b(b0, b1, s.b, b_k_by_n);
    float c0[4] = {}, c1[4] = {};
    ptx::mma_m16n8k16(c0, ra, b0);
    ptx::mma_m16n8k16(c1, ra, b1);
    store_c(out, c0, 0);
    store_c(out, c1, 8);
}

/// (16, 16) = a (16, 16) b (16, 16), with either stored transposed.
std::vector<float> plain_product(const std::vector<float>& a, const std::vector<float>& b, bool a_k_by_m, bool b_n_by_k) {
    std::vector<float> c(256);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            for (int k = 0; k < 16; k++)
                c[size_t(16 * i + j)] += a[size_t(a_k_by_m ? 16 * k + i : 16 * i + k)] * b[size_t(b_n_by_k ? 16 * j + k : 16 * k + j)];
    return c;
}

// S = a bᵀ, packed, is the A operand of S b; with `transposed`, of Sᵀ b.
__global__ void product_of_product(float* out, const float* a, const float* b, bool transposed) {
    load_tiles(a, b);
    const Tiles& s = *shared_memory<Tiles>();
    uint32_t ra[4], b0[2], b1[2];
    load_a(ra, s.a, false);
    load_b(b0, b1, s.b, false);
    float c0[4] = {}, c1[4] = {};
    ptx::mma_m16n8k16(c0, ra, b0);
    ptx::mma_m16n8k16(c1, ra, b1);
    uint32_t p[4] = {ptx::pack_bf16(c0[0], c0[1]), ptx::pack_bf16(c0[2], c0[3]), ptx::pack_bf16(c1[0], c1[1]), ptx::pack_bf16(c1[2], c1[3])};
    if (transposed) {
        for (uint32_t& r : p) r = ptx::movmatrix_transposed(r);
        const uint32_t swapped = p[1];
        p[1] = p[2];
        p[2] = swapped;
    }
    load_b(b0, b1, s.b, true);
    float d0[4] = {}, d1[4] = {};
    ptx::mma_m16n8k16(d0, p, b0);
    ptx::mma_m16n8k16(d1, p, b1);
    store_c(out, d0, 0);
    store_c(out, d1, 8);
}

// A C tile (16, 8), moved, is a B operand whose k are the tile's rows: a (a b) by its column tiles.
__global__ void product_as_second_factor(float* out, const float* a, const float* b) {
    load_tiles(a, b);
    const Tiles& s = *shared_memory<Tiles>();
    uint32_t ra[4], b0[2], b1[2];
    load_a(ra, s.a, false);
    load_b(b0, b1, s.b, true);
    for (int tile = 0; tile < 2; tile++) {
        float c[4] = {}, d[4] = {};
        ptx::mma_m16n8k16(c, ra, tile == 0 ? b0 : b1);
        const uint32_t moved[2] = {ptx::movmatrix_transposed(ptx::pack_bf16(c[0], c[1])), ptx::movmatrix_transposed(ptx::pack_bf16(c[2], c[3]))};
        ptx::mma_m16n8k16(d, ra, moved);
        store_c(out, d, 8 * tile);
    }
}

// ---- Planted faults ------------------------------------------------------------------------------------------------------------

__global__ void mma_after_exit() {
    if (threadIdx.x == 5) return;
    float c[4] = {};
    const uint32_t a[4] = {}, b[2] = {};
    ptx::mma_m16n8k16(c, a, b);
}
__global__ void ldmatrix_in_half_a_warp() {
    Tiles& s = *shared_memory<Tiles>();
    for (int i = int(threadIdx.x); i < 16 * pitch; i += 32) s.a[i] = 0;
    __syncthreads();
    uint32_t r[4];
    if (threadIdx.x < 16) ptx::ldmatrix_x4(r, s.a + threadIdx.x * pitch);
}
__global__ void ldmatrix_from_global_memory(const float* in) {
    uint32_t r[4];
    ptx::ldmatrix_x4(r, in + 4 * threadIdx.x);
}
__global__ void ldmatrix_row(int offset, int written_rows, bool barrier) {
    Tiles& s = *shared_memory<Tiles>();
    if (!barrier) {
        for (int i = int(threadIdx.x); i < 16 * pitch; i += 32) s.a[i] = 1;
        __syncthreads();
    }
    for (int i = int(threadIdx.x); i < written_rows * pitch; i += 32) s.a[i] = 0;
    if (barrier) __syncthreads();
    uint32_t r[4];
    ptx::ldmatrix_x4(r, s.a + threadIdx.x % 16 * pitch + offset);
}

// Rows of 16 bytes at a pitch, chunk c of row r at c ^ swizzle(r): one ldmatrix of 8 rows per matrix, all of chunk 0.
__global__ void ldmatrix_at_pitch(int bytes_per_row, int swizzle_shift, int swizzle_mask, bool load) {
    char* const s = shared_memory<char>();
    for (int i = 4 * int(threadIdx.x); i < 32 * bytes_per_row; i += 128) *reinterpret_cast<uint32_t*>(s + i) = 0;
    __syncthreads();
    const int row = int(threadIdx.x), chunk = (row >> swizzle_shift) & swizzle_mask;
    uint32_t r[4];
    if (load) ptx::ldmatrix_x4(r, s + row * bytes_per_row + 16 * chunk);
}

struct CopyCase {
    int to_offset = 0, from_offset = 0;  // in bytes
    int valid = 16;
    bool commit = true;
    int pending = 0;              // what the wait allows
    bool wait = true, barrier = true;
    bool read_by_neighbour = false;
    bool overwrite_source = false;
    bool write_destination = false;
};
// Each of 32 threads copies 16 bytes, in the last of two groups (the first is empty), and reads them or its neighbour's.
__global__ void copy_rows(float* out, float* in, CopyCase c) {
    const int i = int(threadIdx.x);
    float* const s = shared_memory<float>();
    if (c.read_by_neighbour) {
        for (int j = 0; j < 4; j++) s[4 * i + j] = 0;
        __syncthreads();
    }
    char* const to = reinterpret_cast<char*>(s + 4 * i) + c.to_offset;
    const char* const from = reinterpret_cast<const char*>(in + 4 * i) + c.from_offset;
    ptx::cp_async_commit();
    ptx::cp_async_16(to, from, c.valid);
    if (c.commit) ptx::cp_async_commit();
    if (c.overwrite_source) in[4 * i] = -1;
    if (c.write_destination) s[4 * i] = -1;
    if (c.wait && c.pending == 0) ptx::cp_async_wait<0>();
    if (c.wait && c.pending == 1) ptx::cp_async_wait<1>();
    if (c.barrier) __syncthreads();
    const int of = c.read_by_neighbour ? i ^ 1 : i;
    for (int j = 0; j < 4; j++) out[4 * i + j] = s[4 * of + j];
}

std::vector<float> counted(size_t n) {
    std::vector<float> v(n);
    for (size_t i = 0; i < n; i++) v[i] = float(i + 1);
    return v;
}
std::vector<float> run_copy(const CopyCase& c) {
    Buffer<float> in(counted(128 + 4)), out(128);
    run(copy_rows, 32, 32 * 16 + 16, out.p, in.p, c);
    return out.values();
}

// Two stages of copies: tile i is waited for while tile i + 1 is under way. `allowed` is 1 where the kernel is right.
__global__ void pipeline(float* out, const float* in, int tiles, bool always_commit, int allowed) {
    float* const s = shared_memory<float>();
    const int i = int(threadIdx.x);
    ptx::cp_async_16(s + 4 * i, in + 4 * i);
    ptx::cp_async_commit();
    float sum = 0;
    for (int tile = 0; tile < tiles; tile++) {
        const bool more = tile + 1 < tiles;
        if (more) ptx::cp_async_16(s + (tile + 1) % 2 * 128 + 4 * i, in + (tile + 1) * 128 + 4 * i);
        if (more || always_commit) ptx::cp_async_commit();
        if (allowed == 1) ptx::cp_async_wait<1>();
        if (allowed == 2) ptx::cp_async_wait<2>();
        __syncthreads();
        sum += s[tile % 2 * 128 + 127 - i];
        __syncthreads();
    }
    out[i] = sum;
}

}  // namespace

TEST_SUITE("simt instructions") {
    TEST_CASE("mma gives what hardware was recorded to give") {
        for (MmaModel model : models) {
            const WithModel use(model);
            Buffer<float> out(128);
            run(recorded_mma, 32, 0, out.p);
            const std::vector<float> got = out.values();
            const float want[3][4] = {{4448, 11873, 4882, 13331}, {19304, 26729, 21786, 30235}, {785752, 907865, 792330, 915467}};
            for (int i = 0; i < 4; i++) {
                CHECK(got[size_t(i)] == want[0][i]);
                CHECK(got[size_t(4 + i)] == want[1][i]);
                CHECK(got[size_t(4 * 31 + i)] == want[2][i]);
            }
        }
    }
    TEST_CASE("ldmatrix recipes: A and B from either storage order") {
        for (MmaModel model : models)
            for (int form = 0; form < 4; form++) {
                CAPTURE(form);
                const WithModel use(model);
                const bool a_k_by_m = form & 1, b_k_by_n = form & 2;
                const std::vector<float> a = small_integers(256, 1), b = small_integers(256, 2);
                Buffer<float> da(a), db(b), out(256);
                run(product, 32, sizeof(Tiles), out.p, da.p, db.p, a_k_by_m, b_k_by_n);
                CHECK(out.values() == plain_product(a, b, a_k_by_m, !b_k_by_n));
            }
    }
    TEST_CASE("a packed C fragment is an A fragment, and transposed by movmatrix that of the transpose") {
        const std::vector<float> a = small_integers(256, 3), b = small_integers(256, 4);
        const std::vector<float> s = plain_product(a, b, false, true);
        Buffer<float> da(a), db(b), out(256);
        for (bool transposed : {false, true}) {
            run(product_of_product, 32, sizeof(Tiles), out.p, da.p, db.p, transposed);
            CHECK(out.values() == plain_product(s, b, transposed, false));
        }
    }
    TEST_CASE("a C fragment moved by movmatrix is a B fragment") {
        const std::vector<float> a = small_integers(256, 5), b = small_integers(256, 6);
        Buffer<float> da(a), db(b), out(256);
        run(product_as_second_factor, 32, sizeof(Tiles), out.p, da.p, db.p);
        CHECK(out.values() == plain_product(a, plain_product(a, b, false, false), false, false));
    }

    TEST_CASE("the probe vectors of the accumulation models") {
        constexpr float T = 0x1p-12f, H = 0x1p-13f;
        struct Factor {
            int k;
            float b;  // beside a = T
        };
        struct Probe {
            std::vector<Factor> factors;
            uint32_t exact, sm80, sm90;
        };
        const Probe probes[] = {
            {{{0, T}, {1, H}, {2, H}}, 0x3f800000, 0x3f800000, 0x3f800001},
            {{{0, T}, {8, T}}, 0x3f800000, 0x3f800000, 0x3f800001},
            {{{0, T}, {1, H}}, 0x3f800000, 0x3f800000, 0x3f800000},
            {{{0, T}, {1, T}}, 0x3f800000, 0x3f800001, 0x3f800001},
        };
        for (const Probe& probe : probes)
            for (MmaModel model : models) {
                simt::TensorCoreTile tile{};
                tile.c[9][3] = 1;
                for (const Factor& f : probe.factors) tile.a[9][f.k] = bf16_bits(T), tile.b[f.k][3] = bf16_bits(f.b);
                simt::multiply(tile, model);
                const uint32_t want = model == MmaModel::exact ? probe.exact : model == MmaModel::sm80 ? probe.sm80 : probe.sm90;
                CHECK(std::bit_cast<uint32_t>(tile.c[9][3]) == want);
                CHECK(tile.c[9][2] == 0);
            }
    }
    TEST_CASE("truncation is toward zero, for either sign") {
        for (float sign : {1.0f, -1.0f}) {
            simt::TensorCoreTile tile{};
            tile.c[0][0] = sign;
            tile.a[0][0] = bf16_bits(0x1p-12f), tile.b[0][0] = bf16_bits(sign * 0x1.8p-12f);  // 1.5 half ulps of 1
            simt::multiply(tile, MmaModel::sm90);
            CHECK(tile.c[0][0] == sign);
        }
    }
    TEST_CASE("same-sign sums lose what the facts say") {
        // Products of 1 and random x in [0, 1), 4096 of them in one accumulator.
        for (const auto& [model, least, most] : {std::tuple{MmaModel::exact, 0.0, 8e-6}, {MmaModel::sm80, 1e-5, 6e-5}, {MmaModel::sm90, 4e-6, 3e-5}}) {
            std::mt19937 random(7);
            simt::TensorCoreTile tile{};
            double sum = 0;
            for (int step = 0; step < 256; step++) {
                for (int k = 0; k < 16; k++) {
                    tile.a[0][k] = bf16_bits(float(random()) * 0x1p-32f), tile.b[k][0] = bf16_bits(float(random()) * 0x1p-32f);
                    sum += double(std::bit_cast<float>(uint32_t{tile.a[0][k]} << 16)) * double(std::bit_cast<float>(uint32_t{tile.b[k][0]} << 16));
                }
                simt::multiply(tile, model);
            }
            const double loss = (sum - tile.c[0][0]) / sum;
            CHECK(std::abs(loss) <= most);
            CHECK(loss >= (least > 0 ? least : -most));
        }
    }
    TEST_CASE("subnormal numbers, infinities, NaN, cancellation, overflow") {
        const auto result = [](MmaModel model, float c, std::vector<std::pair<float, float>> factors) {
            simt::TensorCoreTile tile{};
            tile.c[2][1] = c;
            for (size_t k = 0; k < factors.size(); k++) tile.a[2][k] = bf16_bits(factors[k].first), tile.b[k][1] = bf16_bits(factors[k].second);
            simt::multiply(tile, model);
            return std::bit_cast<uint32_t>(tile.c[2][1]);
        };
        for (MmaModel model : models) {
            CHECK(result(model, 0, {{0x1p-130f, 1}}) == std::bit_cast<uint32_t>(0x1p-130f));
            CHECK(result(model, 0x1p-149f, {{0x1p-133f, 0x1p-16f}}) == 2);
            CHECK(result(model, 0, std::vector<std::pair<float, float>>(16, {0x1p-76f, 0x1p-76f})) == 0);  // each is below 2^(−126−F)
            CHECK(result(model, INFINITY, {{1, 1}}) == 0x7f800000);
            CHECK(result(model, 0, {{-INFINITY, 2}}) == 0xff800000);
            CHECK(result(model, INFINITY, {{-INFINITY, 1}}) == 0x7fffffff);
            CHECK(result(model, 0, {{INFINITY, 0}}) == 0x7fffffff);
            CHECK(result(model, NAN, {{1, 1}}) == 0x7fffffff);
            CHECK(result(model, -6, {{2, 3}}) == 0);
            CHECK(result(model, 0, {{0x1p127f, 2}}) == 0x7f800000);
        }
    }

    TEST_CASE("pack_bf16 puts the first number in the low half and rounds to even") {
        CHECK(simt::pack_bf16(1, 2) == 0x40003f80);
        CHECK(simt::pack_bf16(12.9f, 0.40625f) == 0x3ed0414e);
        CHECK(simt::pack_bf16(std::bit_cast<float>(0x3f808000u), std::bit_cast<float>(0x3f818000u)) == 0x3f823f80);
        CHECK(simt::pack_bf16(-NAN, std::bit_cast<float>(0x7f7fffffu)) == 0x7f807fff);
        CHECK(simt::pack_bf16(std::bit_cast<float>(0x00008001u), -0.0f) == 0x80000001);
    }
    TEST_CASE("exp2_approximate stays within 2 ulp and is not the rounded value") {
        int moved = 0;
        for (float x = -125.9f; x < 127.9f; x += 0.0137f) {
            const double exact = std::exp2(double(x)), got = simt::exp2_approximate(x);
            const double ulp = std::exp2(std::floor(std::log2(exact)) - 23);
            CHECK(std::abs(got - exact) <= 2 * ulp);
            CHECK(std::bit_cast<uint32_t>(float(got)) == std::bit_cast<uint32_t>(simt::exp2_approximate(x)));
            moved += float(exact) != float(got);
        }
        CHECK(moved > 1000);
        CHECK(simt::exp2_approximate(0) == 1);
        CHECK(simt::exp2_approximate(-0x1p-140f) == 1);
        CHECK(simt::exp2_approximate(-127) == 0);
        CHECK(simt::exp2_approximate(-INFINITY) == 0);
        CHECK(simt::exp2_approximate(INFINITY) == INFINITY);
        CHECK(std::isnan(simt::exp2_approximate(NAN)));
    }

    TEST_CASE("mma with an exited lane and ldmatrix in a divergent branch are faults") {
        check_contains(fault_of([] { run(mma_after_exit, 32, 0); }), "mma");
        check_contains(fault_of([] { run(ldmatrix_in_half_a_warp, 32, sizeof(Tiles)); }), "ldmatrix");
    }
    TEST_CASE("ldmatrix checks each row in the name of the lane that gave its address") {
        CHECK(fault_of([] { run(ldmatrix_row, 32, sizeof(Tiles), 0, 16, true); }) == "");
        check_contains(fault_of([] { run(ldmatrix_row, 32, sizeof(Tiles), 1, 16, true); }), "align");
        check_contains(fault_of([] { run(ldmatrix_row, 32, sizeof(Tiles), 0, 15, true); }), "nobody wrote");
        check_contains(fault_of([] { run(ldmatrix_row, 32, 15 * pitch * 2, 0, 15, true); }), "720 of shared memory");
        check_unordered([] { run(ldmatrix_row, 32, sizeof(Tiles), 0, 16, false); });
        const Buffer<float> in(std::vector<float>(128, 1));
        check_contains(fault_of([&] { run(ldmatrix_from_global_memory, 32, 1024, in.p); }), "not in shared memory");
    }

    TEST_CASE("ldmatrix is counted as one phase for each matrix: the table of bank conflicts") {
        struct Layout {
            int pitch, shift, mask, passes;  // passes of one matrix
        };
        const simt::Options before = simt::options();
        simt::options().counters = true;
        for (const Layout& l : {Layout{32, 0, 0, 2}, {64, 0, 0, 4}, {128, 0, 0, 8}, {256, 0, 0, 8}, {80, 0, 0, 1}, {144, 0, 0, 1}, {272, 0, 0, 1}, {528, 0, 0, 1},
                                {64, 1, 3, 1}, {64, 0, 3, 2}, {128, 0, 7, 1}, {256, 0, 7, 1}}) {
            CAPTURE(l.pitch); CAPTURE(l.mask);
            int64_t passes[2], least[2];
            for (bool load : {false, true}) {
                run(ldmatrix_at_pitch, 32, size_t(32 * l.pitch), l.pitch, l.shift, l.mask, load);
                passes[load] = simt::counters().back().shared_passes, least[load] = simt::counters().back().least_shared_passes;
            }
            CHECK(passes[1] - passes[0] == 4 * l.passes);
            CHECK(least[1] - least[0] == 4);
        }
        Buffer<float> out(128);
        run(recorded_mma, 32, 0, out.p);
        CHECK(simt::counters().back().mma == 1);
        simt::options() = before;
        simt::counters().clear();
    }

    TEST_CASE("cp.async copies, and zeroes what it does not read") {
        const std::vector<float> all = counted(128);
        CHECK(run_copy({}) == all);
        CHECK(run_copy({.barrier = false}) == all);
        for (int valid : {0, 4, 8, 12}) {
            std::vector<float> want = all;
            for (int i = 0; i < 128; i++)
                if (i % 4 * 4 >= valid) want[size_t(i)] = 0;
            CHECK(run_copy({.valid = valid}) == want);
        }
        std::vector<float> neighbours(128);
        for (int i = 0; i < 128; i++) neighbours[size_t(i)] = all[size_t(i ^ 4)];
        CHECK(run_copy({.read_by_neighbour = true}) == neighbours);
    }
    TEST_CASE("cp.async: each misuse is a fault") {
        const auto fails = [](const CopyCase& c, const char* part) { check_contains(fault_of([&] { run_copy(c); }), part); };
        fails({.wait = false}, "asynchronous copy into it is under way");                                     // read before the wait
        fails({.commit = false}, "asynchronous copy into it is under way");                                   // the wait is for committed groups alone
        fails({.pending = 1}, "asynchronous copy into it is under way");                                      // the wait leaves the latest group pending
        check_unordered([] { run_copy({.barrier = false, .read_by_neighbour = true}); });  // another's data without a barrier
        fails({.overwrite_source = true}, "overwritten");
        fails({.write_destination = true}, "asynchronous copy into it is under way");
        fails({.to_offset = 8}, "align");
        fails({.from_offset = 4}, "align");
        fails({.valid = 17}, "17");
        fails({.valid = -1}, "-1");
    }
    TEST_CASE("a pipeline of copies needs its commits and the right count in its wait") {
        for (int tiles : {1, 2, 3, 5}) {
            CAPTURE(tiles);
            const std::vector<float> in = counted(size_t(128 * tiles));
            Buffer<float> d(in), out(32);
            run(pipeline, 32, 2 * 128 * 4, out.p, d.p, tiles, true, 1);
            std::vector<float> want(32);
            for (int tile = 0; tile < tiles; tile++)
                for (int i = 0; i < 32; i++) want[size_t(i)] += in[size_t(128 * tile + 127 - i)];
            CHECK(out.values() == want);
            check_contains(fault_of([&] { run(pipeline, 32, 2 * 128 * 4, out.p, d.p, tiles, false, 1); }), "asynchronous copy into it is under way");
            check_contains(fault_of([&] { run(pipeline, 32, 2 * 128 * 4, out.p, d.p, tiles, true, 2); }), "asynchronous copy into it is under way");
        }
    }
}
