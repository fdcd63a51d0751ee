// The harness: each fault is planted and must be reported with kernel, line, block and thread; right kernels must pass; the primitives do what
// the documents say (facts: section 5); the counters count known patterns.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kernels/bf16.h"
#include "../../kernels/cuda.cuh"

using namespace clover;

namespace {

// ---- What the cases share ------------------------------------------------------------------------------------------------------

/// Memory of the device for the length of a test.
template <class T>
struct Memory {
    T* p = nullptr;
    size_t n;
    explicit Memory(size_t n, bool managed = true) : n(n) { CLOVER_CUDA(managed ? cudaMallocManaged(&p, n * sizeof(T)) : cudaMalloc(&p, n * sizeof(T))); }
    ~Memory() { cudaFree(p); }
    Memory(const Memory&) = delete;
    T& operator[](size_t i) { return p[i]; }
    operator T*() const { return p; }
};

/// Options that end with the scope.
struct With {
    simt::Options before = simt::options();
    explicit With(const simt::Options& o) { simt::options() = o; }
    ~With() { simt::options() = before; }
};

template <class... Parameters, class... Arguments>
cudaError_t start(dim3 grid, dim3 block, size_t shared, void (*kernel)(Parameters...), const Arguments&... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}
template <class... Parameters, class... Arguments>
void run(dim3 grid, dim3 block, size_t shared, void (*kernel)(Parameters...), const Arguments&... arguments) {
    CLOVER_CUDA(start(grid, block, shared, kernel, arguments...));
    CLOVER_CUDA(cudaDeviceSynchronize());
}
/// What a launch is found guilty of; empty if of nothing.
template <class... Parameters, class... Arguments>
std::string verdict(dim3 grid, dim3 block, size_t shared, void (*kernel)(Parameters...), const Arguments&... arguments) {
    try {
        run(grid, block, shared, kernel, arguments...);
    } catch (const simt::Fault& fault) {
        return fault.what();
    }
    return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::string at(int line) { return "test_simt.cu:" + std::to_string(line); }

/// Each part must be in the verdict.
void check_verdict(const std::string& verdict, std::initializer_list<std::string> parts) {
    CAPTURE(verdict);
    CHECK(!verdict.empty());
    for (const std::string& part : parts) {
        CAPTURE(part);
        CHECK(has(verdict, part));
    }
}

/// A race is found whichever thread comes first.
template <class... Parameters, class... Arguments>
void check_race(std::initializer_list<std::string> parts, dim3 grid, dim3 block, size_t shared, void (*kernel)(Parameters...), const Arguments&... arguments) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        const With w({.seed = seed});
        CAPTURE(seed);
        const std::string found = verdict(grid, block, shared, kernel, arguments...);
        check_verdict(found, parts);
        CHECK(has(found, ": a race: "));
    }
}

// ---- Races ---------------------------------------------------------------------------------------------------------------------

__global__ void missing_barrier(int* out) {
    int* s = shared_memory<int>();
    const int i = int(threadIdx.x);
    s[i] = i;
    out[i] = s[(i + 32) % 64];
}
constexpr int missing_barrier_line = __LINE__ - 2, missing_barrier_write_line = __LINE__ - 3;

__global__ void missing_syncwarp(int* out, bool sync, bool shuffle) {
    int* s = shared_memory<int>();
    const int i = int(threadIdx.x);
    s[i] = i;
    if (sync) __syncwarp();
    if (shuffle) __shfl_xor_sync(all_lanes, i, 1);
    out[i] = s[i ^ 1];
}
constexpr int missing_syncwarp_line = __LINE__ - 2;

__global__ void half_syncwarp(int* out, int distance) {
    int* s = shared_memory<int>();
    const int i = int(threadIdx.x);
    s[i] = i;
    __syncwarp(i < 16 ? 0xffffu : 0xffff0000u);
    out[i] = s[i ^ distance];
}
constexpr int half_syncwarp_line = __LINE__ - 2;

/// Lane 0 tells lane 1, and lane 1 then the others.
__global__ void chain_of_syncwarps(int* out, bool whole) {
    int* s = shared_memory<int>();
    const int i = int(threadIdx.x);
    if (i == 0) s[0] = 7;
    if (i < 2) __syncwarp(3u);
    if (i > 0 || whole) __syncwarp(whole ? all_lanes : all_lanes & ~1u);
    out[i] = s[0];
}

__global__ void blocks_write_one_place(int* out) {
    if (threadIdx.x == 5) out[0] = 1;  // the same value: still a race
}
constexpr int blocks_write_one_place_line = __LINE__ - 2;

__global__ void block_reads_what_another_writes(int* x, int* out) {
    out[blockIdx.x] = x[0];
    if (blockIdx.x == 3) x[0] = 2;
}
constexpr int block_reads_line = __LINE__ - 3, block_writes_line = __LINE__ - 2;

__global__ void writes_after_reads(int* x, int* out, bool barrier) {
    const int i = int(threadIdx.x);
    out[i] = x[0];
    if (barrier) __syncthreads();
    if (i == 7) x[0] = 2;
}
constexpr int writes_after_reads_line = __LINE__ - 2;

__global__ void neighbours_in_a_word(bf16* out) {
    out[threadIdx.x].bits = uint16_t(threadIdx.x);
}
__global__ void bytes_in_a_word(unsigned char* out, int shift) {
    out[threadIdx.x >> shift] = 1;
}
constexpr int bytes_in_a_word_line = __LINE__ - 2;

__global__ void word_over_its_halves(bf16* out, uint32_t* whole) {
    out[threadIdx.x].bits = 1;
    __syncwarp();
    if (threadIdx.x == 3) whole[1] = 5;  // its own half and that of thread 2
    if (threadIdx.x == 2) out[2].bits = 3;
}

__global__ void counts_atomically(unsigned* counter, unsigned* out, bool peek) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(counter, 1u);
    if (peek) out[blockIdx.x * blockDim.x + threadIdx.x] = *counter;
}
constexpr int peek_line = __LINE__ - 2;

__global__ void one_peeks(unsigned* counter, unsigned* out, bool write) {
    if (blockIdx.x == 0) atomicAdd(counter, 1u);
    else if (write) *counter = 1;
    else out[0] = *counter;
}
constexpr int peek_atomic_line = __LINE__ - 4, peek_write_line = __LINE__ - 3, peek_read_line = __LINE__ - 2;

__global__ void one_reads_one_writes(int* x, int* out, int other) {
    if (int(threadIdx.x) == other) out[0] = x[0];
    if (threadIdx.x == 0) x[0] = 2;
}
constexpr int two_threads_line = __LINE__ - 3;

TEST_SUITE("simt") {
    TEST_CASE("race: a missing barrier in shared memory") {
        Memory<int> out(64);
        check_race({"missing_barrier: a race", "of shared memory", at(missing_barrier_line), at(missing_barrier_write_line), "block (0,0,0), thread ("},
                   1, 64, 256, missing_barrier, out);
    }
    TEST_CASE("race: lanes of a warp without __syncwarp; a shuffle does not help") {
        Memory<int> out(32);
        for (bool shuffle : {false, true}) {
            check_race({"missing_syncwarp: a race", at(missing_syncwarp_line)}, 1, 32, 128, missing_syncwarp, out, false, shuffle);
            CHECK(verdict(1, 32, 128, missing_syncwarp, out, true, shuffle) == "");
        }
    }
    TEST_CASE("race: __syncwarp orders the lanes of its mask, and chains of it") {
        Memory<int> out(64);
        check_race({"half_syncwarp: a race", at(half_syncwarp_line)}, 1, 32, 256, half_syncwarp, out, 16);
        for (uint64_t seed = 0; seed < 8; seed++) {
            const With w({.seed = seed});
            CHECK(verdict(1, 32, 256, half_syncwarp, out, 1) == "");
            CHECK(verdict(1, 32, 256, chain_of_syncwarps, out, false) == "");
            CHECK(verdict(1, 32, 256, chain_of_syncwarps, out, true) == "");
        }
        for (int i = 0; i < 32; i++) CHECK(out[size_t(i)] == 7);
    }
    TEST_CASE("race: between blocks") {
        Memory<int> x(1), out(8);
        x[0] = 1;
        check_race({"blocks_write_one_place: a race", at(blocks_write_one_place_line), "thread (5,0,0) of block (", "wrote"}, 2, 32, 0, blocks_write_one_place, out);
        check_race({at(block_reads_line), at(block_writes_line)}, 8, 1, 0, block_reads_what_another_writes, x, out);
        CHECK(verdict(3, 1, 0, block_reads_what_another_writes, x, out) == "");
    }
    TEST_CASE("race: a write after reads of others") {
        Memory<int> x(1), out(64);
        x[0] = 1;
        for (unsigned threads : {32u, 64u}) {
            check_race({"writes_after_reads: a race", at(writes_after_reads_line)}, 1, threads, 0, writes_after_reads, x, out, false);
            CHECK(verdict(1, threads, 0, writes_after_reads, x, out, true) == "");
        }
        // Two threads alone, of one warp and of two.
        for (int other : {1, 31, 32, 63}) check_race({at(two_threads_line), at(two_threads_line + 1)}, 1, 64, 0, one_reads_one_writes, x, out, other);
    }
    TEST_CASE("race: exact to the byte") {
        Memory<bf16> halves(256);
        Memory<unsigned char> bytes(256);
        CHECK(verdict(1, 256, 0, neighbours_in_a_word, halves) == "");
        CHECK(verdict(1, 256, 0, bytes_in_a_word, bytes, 0) == "");
        check_race({"bytes_in_a_word: a race", at(bytes_in_a_word_line)}, 1, 256, 0, bytes_in_a_word, bytes, 1);
        check_race({"word_over_its_halves: a race"}, 1, 32, 0, word_over_its_halves, halves, reinterpret_cast<uint32_t*>(halves.p));
    }
    TEST_CASE("race: atomic operations only with plain accesses") {
        Memory<unsigned> counter(1), out(256);
        counter[0] = 0;
        CHECK(verdict(4, 64, 0, counts_atomically, counter, out, false) == "");
        CHECK(counter[0] == 256);
        CHECK(std::set<unsigned>(out.p, out.p + 256).size() == 256);
        check_race({at(peek_line)}, 4, 64, 0, counts_atomically, counter, out, true);
        // One thread changes it atomically and one reads or writes it, in either order.
        for (bool write : {false, true}) check_race({at(write ? peek_write_line : peek_read_line), at(peek_atomic_line)}, 2, 1, 0, one_peeks, counter, out, write);
    }
}

// ---- Memory --------------------------------------------------------------------------------------------------------------------

__global__ void one_too_far(float* out, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = 1;
}
constexpr int one_too_far_line = __LINE__ - 2;

__global__ void before_the_start(const float* x, float* out) {
    out[0] = x[-1];
}
constexpr int before_the_start_line = __LINE__ - 2;

__global__ void beyond_shared_memory() {
    float* s = shared_memory<float>();
    s[threadIdx.x] = 1;
}
constexpr int beyond_shared_memory_line = __LINE__ - 2;

__global__ void copies(const float* x, float* out) {
    out[threadIdx.x] = x[threadIdx.x];
}
constexpr int copies_line = __LINE__ - 2;

__global__ void copies_by_four(const float* x, float* out) {
    const auto v = load_vector<4>(x + threadIdx.x * 4);
    store_vector(out + threadIdx.x * 4, v);
}
constexpr int load_line = __LINE__ - 3, store_line = __LINE__ - 2;

__global__ void reads_unwritten_shared(float* out, int n) {
    float* s = shared_memory<float>();
    if (int(threadIdx.x) < n) s[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
constexpr int reads_unwritten_shared_line = __LINE__ - 2;

__global__ void copies_by_library(char* out, const char* x, int64_t n) {
    memcpy(out, x, size_t(n));
}
constexpr int copies_by_library_line = __LINE__ - 2;
__global__ void clears_by_library(char* out, int64_t n) {
    std::memset(out, 0, size_t(n));
}

struct Parameters {
    int64_t n;
    float factor[20];
    float* out;
};
__global__ void reads_its_parameters(Parameters p) {
    if (int64_t(threadIdx.x) < p.n) p.out[threadIdx.x] = p.factor[threadIdx.x];
}

constexpr float table[] = {2, 3, 5, 7, 11, 13, 17, 19};
__global__ void reads_a_table(float* out) {
    out[threadIdx.x] = table[threadIdx.x];
}

__global__ void reads_anothers_local(float** where, float* out) {
    volatile float local = float(threadIdx.x);
    if (threadIdx.x == 0) *where = const_cast<float*>(&local);
    __syncthreads();
    if (threadIdx.x == 1) out[0] = **where;
    __syncthreads();
    out[1 + threadIdx.x] = local;
}
constexpr int reads_anothers_local_line = __LINE__ - 4;

TEST_SUITE("simt") {
    TEST_CASE("memory: one element beyond an allocation") {
        Memory<float> out(100, false);
        CHECK(verdict(4, 32, 0, one_too_far, out, int64_t{99}) == "");
        check_verdict(verdict(4, 32, 0, one_too_far, out, int64_t{100}),
                      {"one_too_far: writes 4 bytes out of bounds", "0 bytes behind the end of an allocation of 400 bytes", at(one_too_far_line), "block (3,0,0), thread (4,0,0)"});
        Memory<float> x(4);
        check_verdict(verdict(1, 1, 0, before_the_start, x, out), {"before_the_start: reads 4 bytes out of bounds", "4 bytes before an allocation", at(before_the_start_line)});
        check_verdict(verdict(1, 1, 0, copies, static_cast<float*>(nullptr), out), {"a null pointer"});
    }
    TEST_CASE("memory: beyond the launch's shared memory") {
        CHECK(verdict(1, 64, 256, beyond_shared_memory) == "");
        check_verdict(verdict(1, 64, 252, beyond_shared_memory),
                      {"beyond_shared_memory: writes 4 bytes out of bounds", "byte 252 of shared memory, of which the launch has 252", at(beyond_shared_memory_line), "thread (63,0,0)"});
    }
    TEST_CASE("memory: reads of what nobody wrote") {
        Memory<float> x(32, false), managed(32), out(64);
        check_verdict(verdict(1, 32, 0, copies, x, out), {"copies: reads memory that nobody wrote: 4 bytes at byte", "of an allocation of 128", at(copies_line)});
        CLOVER_CUDA(cudaMemset(x, 0, 31 * sizeof(float)));
        CHECK(verdict(1, 31, 0, copies, x, out) == "");
        check_verdict(verdict(1, 32, 0, copies, x, out), {"nobody wrote", "byte 124", "thread (31,0,0)"});
        CHECK(verdict(1, 32, 0, copies, managed, out) == "");
        simt::forget(managed + 3, 4);
        check_verdict(verdict(1, 32, 0, copies, managed, out), {"nobody wrote", "byte 12 ", "thread (3,0,0)"});
        check_verdict(verdict(1, 64, 256, reads_unwritten_shared, out, 63), {"nobody wrote", "shared memory at byte 252", at(reads_unwritten_shared_line), "thread (63,0,0)"});
        CHECK(verdict(1, 64, 256, reads_unwritten_shared, out, 64) == "");
    }
    TEST_CASE("memory: shared memory is fresh in each block") {
        Memory<float> out(64);
        CHECK(verdict(1, 64, 256, reads_unwritten_shared, out, 64) == "");
        check_verdict(verdict(2, 64, 256, reads_unwritten_shared, out, 0), {"nobody wrote"});
    }
    TEST_CASE("memory: which bytes a kernel wrote") {
        Memory<float> x(32), out(64);
        simt::forget(out, 64 * sizeof(float));
        CHECK(!simt::written(out, 4));
        run(1, 32, 0, copies, x, out);
        CHECK(simt::written(out, 32 * sizeof(float)));
        CHECK(!simt::written(out, 33 * sizeof(float)));
        CHECK(std::isnan(out[32]));
        Memory<bf16> halves(3);
        simt::forget(halves, 6);
        CHECK(std::isnan(to_float(halves[1])));
    }
    TEST_CASE("memory: misaligned vectors") {
        Memory<float> x(256), out(256);
        CHECK(verdict(1, 32, 0, copies_by_four, x, out) == "");
        check_verdict(verdict(1, 32, 0, copies_by_four, x + 1, out), {"copies_by_four: reads 16 bytes misaligned", at(load_line)});
        check_verdict(verdict(1, 32, 0, copies_by_four, x, out + 2), {"copies_by_four: writes 16 bytes misaligned", at(store_line)});
        check_verdict(verdict(1, 1, 0, copies_by_four, x + 252 + 4, out), {"out of bounds"});
    }
    TEST_CASE("memory: library calls in kernels") {
        Memory<char> x(64), out(64);
        CHECK(verdict(1, 1, 0, copies_by_library, out, x, int64_t{64}) == "");
        check_verdict(verdict(1, 1, 0, copies_by_library, out, x, int64_t{65}), {"copies_by_library: reads", "out of bounds", at(copies_by_library_line)});
        check_verdict(verdict(1, 1, 0, clears_by_library, out, int64_t{70}), {"clears_by_library: writes", "out of bounds"});
        simt::forget(x + 63, 1);
        check_verdict(verdict(1, 1, 0, copies_by_library, out, x, int64_t{64}), {"nobody wrote", "byte 60"});
    }
    TEST_CASE("memory: of the host") {
        float host[32] = {};
        std::vector<float> heap(32);
        Memory<float> out(32);
        check_verdict(verdict(1, 32, 0, copies, static_cast<float*>(host), out), {"copies: reads 4 bytes out of bounds", "no memory of the device", at(copies_line)});
        check_verdict(verdict(1, 32, 0, copies, heap.data(), out), {"no memory of the device"});
        check_verdict(verdict(1, 32, 0, copies, out, heap.data()), {"copies: writes 4 bytes", "no memory of the device"});
        float* pinned;
        CLOVER_CUDA(cudaMallocHost(&pinned, 128));
        check_verdict(verdict(1, 32, 0, copies, pinned, out), {"no memory of the device"});
        CLOVER_CUDA(cudaFreeHost(pinned));
    }
    TEST_CASE("memory: parameters and constants are the kernel's to read") {
        Memory<float> out(20);
        Parameters p{20, {}, out};
        for (int i = 0; i < 20; i++) p.factor[i] = float(i * i);
        run(1, 32, 0, reads_its_parameters, p);
        for (int i = 0; i < 20; i++) CHECK(out[size_t(i)] == float(i * i));
        run(1, 8, 0, reads_a_table, out);
        CHECK(out[7] == 19);
    }
    TEST_CASE("memory: another thread's local variable") {
        Memory<float*> where(1);
        Memory<float> out(40);
        check_verdict(verdict(1, 32, 0, reads_anothers_local, where, out), {"reads_anothers_local: reads 4 bytes out of bounds", at(reads_anothers_local_line), "thread (1,0,0)"});
    }
    TEST_CASE("memory: use after free") {
        Memory<float> out(32);
        float* x;
        CLOVER_CUDA(cudaMalloc(&x, 128));
        CLOVER_CUDA(cudaMemset(x, 0, 128));
        CHECK(verdict(1, 32, 0, copies, x, out) == "");
        CLOVER_CUDA(cudaFree(x));
        check_verdict(verdict(1, 32, 0, copies, x, out), {"out of bounds", "a freed allocation of 128 bytes", at(copies_line)});
        CHECK(cudaFree(x) == cudaErrorInvalidValue);
        CHECK(cudaGetLastError() == cudaErrorInvalidValue);
        CHECK(cudaGetLastError() == cudaSuccess);
    }
    TEST_CASE("memory: of another device") {
        const With w({.devices = 2});
        Memory<float> here(32, false), out(32);
        CLOVER_CUDA(cudaMemset(here, 0, 128));
        CLOVER_CUDA(cudaSetDevice(1));
        check_verdict(verdict(1, 32, 0, copies, here, out), {"on another device"});
        CLOVER_CUDA(cudaSetDevice(0));
        CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
        cudaGetLastError();
    }
    TEST_CASE("memory: the host cannot touch device memory") {
        Memory<float> x(32, false);
        int pipe_ends[2];
        CHECK(pipe(pipe_ends) == 0);
        const pid_t child = fork();
        if (child == 0) {
            dup2(pipe_ends[1], 2);
            signal(SIGSEGV, SIG_DFL);
            CLOVER_CUDA(cudaMemset(x, 0, 4));
            CLOVER_CUDA(cudaDeviceSynchronize());  // puts the harness's handler in
            x[3] = 1;
            _exit(0);
        }
        close(pipe_ends[1]);
        char text[4096];
        std::string said;
        for (ssize_t n; (n = read(pipe_ends[0], text, sizeof text)) > 0;) said.append(text, size_t(n));
        close(pipe_ends[0]);
        int status = 0;
        waitpid(child, &status, 0);
        CHECK(status != 0);
        CAPTURE(said);
        CHECK(has(said, "host code touches device memory"));
        CHECK(has(said, "byte 12 of an allocation of 128 bytes"));
    }
}

// ---- Threads that miss each other ----------------------------------------------------------------------------------------------

__global__ void barrier_in_a_branch(int* out) {
    if (threadIdx.x < 32) {
        __syncthreads();
        out[threadIdx.x] = 1;
    } else {
        __syncthreads();
        out[threadIdx.x] = 2;
    }
}
constexpr int branch_line = __LINE__ - 7, other_branch_line = __LINE__ - 4;

__global__ void barrier_that_some_skip(bool leave) {
    if (threadIdx.x == 3 && leave) return;
    if (threadIdx.x != 4) __syncthreads();
    __syncwarp();
}
constexpr int skipped_barrier_line = __LINE__ - 3, skipping_line = __LINE__ - 2;

__global__ void early_exit_then_barrier(int* out, int n) {
    int* s = shared_memory<int>();
    if (int(threadIdx.x) >= n) return;
    s[threadIdx.x] = int(threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = s[unsigned(n) - 1 - threadIdx.x];
}

__global__ void shuffle_that_some_skip(int* out) {
    int x = int(threadIdx.x);
    if (threadIdx.x != 9) x = __shfl_xor_sync(all_lanes, x, 1);
    __syncthreads();
    out[threadIdx.x] = x;
}
constexpr int skipped_shuffle_line = __LINE__ - 4, waiting_barrier_line = __LINE__ - 3;

__global__ void shuffle_after_exit(int* out) {
    if (threadIdx.x == 30) return;
    out[threadIdx.x] = __shfl_down_sync(all_lanes, 1, 1);
}
constexpr int shuffle_after_exit_line = __LINE__ - 2;

__global__ void not_in_its_mask(int* out) {
    out[threadIdx.x] = int(__ballot_sync(0x7fffffffu, 1));
}
constexpr int not_in_its_mask_line = __LINE__ - 2;

__global__ void different_masks(int* out) {
    out[threadIdx.x] = int(__ballot_sync(threadIdx.x < 16 ? all_lanes : 0xffff0000u, 1));
}
__global__ void different_places(int* out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __any_sync(all_lanes, 1);
    else out[threadIdx.x] = 2 * __any_sync(all_lanes, 1);
}
constexpr int different_places_line = __LINE__ - 3;

__global__ void halves_shuffle_apart(int* out) {
    const unsigned half = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(half, int(threadIdx.x), 1);
    else out[threadIdx.x] = __shfl_xor_sync(half, int(threadIdx.x), 2);
}

__global__ void reads_absent_lane(int* out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, int(threadIdx.x), 20);
}
constexpr int reads_absent_lane_line = __LINE__ - 2;

__global__ void wrong_width(int* out) {
    out[threadIdx.x] = __shfl_sync(all_lanes, 1, 0, 12);
}

__global__ void spins(int* flag) {
    while (*static_cast<volatile int*>(flag) == 0) {}
}
constexpr int spins_line = __LINE__ - 2;

__global__ void barriers_for_ever(int* flag) {
    do __syncthreads();
    while (*static_cast<volatile int*>(flag) == 0);
}

__global__ void stops_itself(int* out) {
    if (threadIdx.x == 2) ptx::trap();
    out[threadIdx.x] = 1;
}
constexpr int stops_itself_line = __LINE__ - 3;

TEST_SUITE("simt") {
    TEST_CASE("meeting: barriers") {
        Memory<int> out(64);
        check_verdict(verdict(1, 64, 0, barrier_in_a_branch, out), {"barrier_in_a_branch: __syncthreads", "in divergent code", at(branch_line), at(other_branch_line)});
        check_verdict(verdict(1, 32, 0, barrier_that_some_skip, false),
                      {"barrier_that_some_skip", "wait for ever", "31 threads", "in __syncthreads at " + at(skipped_barrier_line), "in __syncwarp at " + at(skipping_line)});
        check_verdict(verdict(1, 32, 0, barrier_that_some_skip, true), {"30 threads", "left the kernel"});
        CHECK(verdict(1, 64, 256, early_exit_then_barrier, out, 40) == "");
        CHECK(out[0] == 39);
    }
    TEST_CASE("meeting: warp-wide instructions") {
        Memory<int> out(64);
        check_verdict(verdict(1, 32, 0, shuffle_that_some_skip, out), {"shuffle_that_some_skip", "wait for ever", "in __shfl_xor_sync at " + at(skipped_shuffle_line), "in __syncthreads at " + at(waiting_barrier_line)});
        check_verdict(verdict(1, 32, 0, shuffle_after_exit, out), {"shuffle_after_exit", "__shfl_down_sync", at(shuffle_after_exit_line)});
        check_verdict(verdict(1, 48, 0, shuffle_that_some_skip, out), {"__shfl_xor_sync"});
        check_verdict(verdict(1, 32, 0, not_in_its_mask, out), {"lane 31 is not in its own mask 0x7fffffff", at(not_in_its_mask_line), "thread (31,0,0)"});
        check_verdict(verdict(1, 32, 0, different_masks, out), {"different_masks: ", "mask 0xffffffff"});
        check_verdict(verdict(1, 32, 0, different_places, out), {"different_places: __any_sync with mask 0xffffffff (lane ", at(different_places_line), at(different_places_line + 1)});
        CHECK(verdict(1, 32, 0, halves_shuffle_apart, out) == "");
        CHECK(out[4] == 5);
        CHECK(out[17] == 19);
        check_verdict(verdict(1, 32, 0, reads_absent_lane, out), {"reads_absent_lane: __shfl_sync reads lane 20, which is not in the mask 0x0000ffff", at(reads_absent_lane_line)});
        check_verdict(verdict(1, 32, 0, wrong_width, out), {"the width 12"});
    }
    TEST_CASE("meeting: endless loops") {
        Memory<int> flag(1);
        flag[0] = 0;
        const With w({.most_accesses = 100000, .most_seconds = 0.2});
        check_verdict(verdict(1, 32, 0, spins, flag), {"spins: an endless loop?", at(spins_line)});
        check_verdict(verdict(1, 32, 0, barriers_for_ever, flag), {"barriers_for_ever: still running after"});
        check_verdict(verdict(1, 1, 0, barriers_for_ever, flag), {"barriers_for_ever: an endless loop?"});
    }
    TEST_CASE("meeting: a trap") {
        Memory<int> out(32);
        check_verdict(verdict(1, 32, 0, stops_itself, out), {"stops_itself: the kernel stopped itself", at(stops_itself_line), "thread (2,0,0)"});
        CHECK(verdict(1, 2, 0, stops_itself, out) == "");
    }
}

// ---- Launches ------------------------------------------------------------------------------------------------------------------

__global__ void nothing() {}

TEST_SUITE("simt") {
    TEST_CASE("launch: what a GPU refuses") {
        CHECK(start(1, 1024, 0, nothing) == cudaSuccess);
        CHECK(start(1, 1025, 0, nothing) == cudaErrorInvalidConfiguration);
        CHECK(start(1, dim3(32, 33), 0, nothing) == cudaErrorInvalidConfiguration);
        CHECK(start(1, dim3(1, 1, 65), 0, nothing) == cudaErrorInvalidConfiguration);
        CHECK(start(0, 32, 0, nothing) == cudaErrorInvalidConfiguration);
        CHECK(start(1, 0, 0, nothing) == cudaErrorInvalidConfiguration);
        CHECK(start(dim3(1, 65535), 32, 0, nothing) == cudaSuccess);
        CHECK(start(dim3(1, 65536), 32, 0, nothing) == cudaErrorInvalidConfiguration);
        CHECK(start(dim3(1, 1, 65536), 32, 0, nothing) == cudaErrorInvalidConfiguration);
        CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    }
    TEST_CASE("launch: shared memory by capability") {
        for (const auto& [capability, limit] : {std::pair{80, 163 << 10}, std::pair{90, 227 << 10}}) {
            const With w({.capability = capability});
            CLOVER_CUDA(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 0));
            CHECK(start(1, 32, 48 << 10, nothing) == cudaSuccess);
            CHECK(start(1, 32, (48 << 10) + 1, nothing) == cudaErrorInvalidValue);
            CHECK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, limit + 1) == cudaErrorInvalidValue);
            CHECK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, limit) == cudaSuccess);
            CHECK(start(1, 32, size_t(limit), nothing) == cudaSuccess);
            int most = 0;
            CLOVER_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
            CHECK(most == limit);
        }
        cudaGetLastError();
    }
}

// ---- Order ---------------------------------------------------------------------------------------------------------------------

__global__ void order_of_arrival(unsigned* counter, unsigned* out) {
    const unsigned turn = atomicAdd(counter, 1u);
    out[turn] = blockIdx.x * blockDim.x + threadIdx.x;
}

TEST_SUITE("simt") {
    TEST_CASE("order: by the seed, and the same for the same seed") {
        std::set<std::vector<unsigned>> orders;
        std::set<unsigned> first_blocks, first_warps, first_lanes;
        for (uint64_t seed = 0; seed < 40; seed++)
            for (int repeat = 0; repeat < 2; repeat++) {
                const With w({.seed = seed});
                Memory<unsigned> counter(1), out(4 * 64);
                counter[0] = 0;
                run(4, 64, 0, order_of_arrival, counter, out);
                orders.insert(std::vector<unsigned>(out.p, out.p + 4 * 64));
                first_blocks.insert(out[0] / 64), first_warps.insert(out[0] % 64 / 32), first_lanes.insert(out[0] % 32);
            }
        CHECK(orders.size() == 40);
        CHECK(first_blocks.size() == 4);
        CHECK(first_warps.size() == 2);
        CHECK(first_lanes.size() > 8);
    }
}

// ---- Streams -------------------------------------------------------------------------------------------------------------------

__global__ void adds_one(int* x) { x[threadIdx.x]++; }

struct Stream {
    cudaStream_t s = nullptr;
    Stream() { CLOVER_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); }
    ~Stream() { cudaStreamDestroy(s); }
    operator cudaStream_t() const { return s; }
};
template <class... Parameters, class... Arguments>
void queue(cudaStream_t stream, void (*kernel)(Parameters...), const Arguments&... arguments) {
    cudaLaunchConfig_t config{};
    config.blockDim = 32;
    config.stream = stream;
    CLOVER_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

TEST_SUITE("simt") {
    TEST_CASE("streams: the default stream and the others") {
        int behind = 0;
        for (uint64_t seed = 0; seed < 16; seed++) {
            const With w({.seed = seed});
            Memory<int> x(32, false);
            int got[32];
            cudaStream_t blocking;
            CLOVER_CUDA(cudaStreamCreate(&blocking));
            CLOVER_CUDA(cudaMemset(x, 0, 128));
            queue(blocking, adds_one, x);
            CLOVER_CUDA(cudaMemcpy(got, x, 128, cudaMemcpyDeviceToHost));
            CHECK(got[31] == 1);
            CLOVER_CUDA(cudaStreamDestroy(blocking));
            // What is not ordered with the default stream may come before its memset, or after the copy.
            const Stream independent;
            CLOVER_CUDA(cudaMemset(x, 0, 128));
            queue(independent, adds_one, x);
            CLOVER_CUDA(cudaMemcpy(got, x, 128, cudaMemcpyDeviceToHost));
            behind += got[31] != 1;
        }
        CHECK(behind > 0);
        CHECK(behind < 16);
    }
    TEST_CASE("streams: what the host does too early is seen under some seeds") {
        int early = 0, overtaken = 0;
        for (uint64_t seed = 0; seed < 16; seed++) {
            const With w({.seed = seed});
            const Stream stream;
            Memory<int> x(32), y(32, false);
            int* pinned;
            CLOVER_CUDA(cudaMallocHost(&pinned, 128));
            for (size_t i = 0; i < 32; i++) x[i] = 1, pinned[i] = 10;
            queue(stream, adds_one, x);
            early += x[0] == 1;
            // An asynchronous copy from pinned memory that the host changes before it ran.
            CLOVER_CUDA(cudaMemcpyAsync(y, pinned, 128, cudaMemcpyHostToDevice, stream));
            pinned[0] = 20;
            CLOVER_CUDA(cudaStreamSynchronize(stream));
            CHECK(x[0] == 2);
            int got = 0;
            CLOVER_CUDA(cudaMemcpy(&got, y, 4, cudaMemcpyDeviceToHost));
            overtaken += got == 20;
            // Pageable memory is read at the call.
            int pageable[32] = {5};
            CLOVER_CUDA(cudaMemcpyAsync(y, pageable, 128, cudaMemcpyHostToDevice, stream));
            pageable[0] = 6;
            CLOVER_CUDA(cudaStreamSynchronize(stream));
            CLOVER_CUDA(cudaMemcpy(&got, y, 4, cudaMemcpyDeviceToHost));
            CHECK(got == 5);
            CLOVER_CUDA(cudaFreeHost(pinned));
        }
        CHECK(early > 0);
        CHECK(early < 16);
        CHECK(overtaken > 0);
        CHECK(overtaken < 16);
    }
    TEST_CASE("streams: pinned memory freed before its copy ran") {
        int found = 0;
        for (uint64_t seed = 0; seed < 16; seed++) {
            const With w({.seed = seed});
            const Stream stream;
            Memory<int> y(32, false);
            int* pinned;
            CLOVER_CUDA(cudaMallocHost(&pinned, 128));
            std::memset(pinned, 0, 128);
            try {
                CLOVER_CUDA(cudaMemcpyAsync(y, pinned, 128, cudaMemcpyHostToDevice, stream));
                CLOVER_CUDA(cudaFreeHost(pinned));
                CLOVER_CUDA(cudaStreamSynchronize(stream));
            } catch (const simt::Fault& fault) {
                found += has(fault.what(), "freed before the copy ran");
            }
        }
        CHECK(found > 0);
        CHECK(found < 16);
    }
    TEST_CASE("streams: unordered but for events") {
        int behind = 0;
        for (uint64_t seed = 0; seed < 16; seed++) {
            const With w({.seed = seed});
            const Stream a, b;
            Memory<int> x(32), y(32);
            cudaEvent_t event;
            CLOVER_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
            for (bool ordered : {false, true}) {
                for (size_t i = 0; i < 32; i++) x[i] = y[i] = 0;
                queue(a, adds_one, x);
                CLOVER_CUDA(cudaEventRecord(event, a));
                if (ordered) CLOVER_CUDA(cudaStreamWaitEvent(b, event));
                CLOVER_CUDA(cudaMemcpyAsync(y, x, 128, cudaMemcpyDeviceToDevice, b));
                CLOVER_CUDA(cudaStreamSynchronize(b));
                if (ordered) CHECK(y[0] == 1);
                else behind += y[0] == 0;
                CLOVER_CUDA(cudaStreamSynchronize(a));
                CHECK(x[0] == 1);
            }
            CLOVER_CUDA(cudaEventDestroy(event));
        }
        CHECK(behind > 0);
        CHECK(behind < 16);
    }
    TEST_CASE("streams: a fault is thrown where the kernel ran, and is over then") {
        for (uint64_t seed = 0; seed < 8; seed++) {
            const With w({.seed = seed});
            const Stream stream;
            Memory<int> x(16);
            bool thrown = false;
            try {
                queue(stream, adds_one, x);
                CLOVER_CUDA(cudaStreamSynchronize(stream));
            } catch (const simt::Fault& fault) {
                thrown = true;
            }
            CHECK(thrown);
            CLOVER_CUDA(cudaStreamSynchronize(stream));
        }
    }
    TEST_CASE("streams: copies in the wrong direction or beyond an allocation") {
        Memory<int> x(8, false);
        int host[16] = {};
        CHECK(cudaMemcpy(host, x, 32, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
        CHECK(cudaMemcpy(x, host, 32, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
        CHECK(cudaMemcpy(x, host, 32, cudaMemcpyHostToHost) == cudaErrorInvalidValue);
        CHECK_THROWS_AS(cudaMemcpy(x, host, 36, cudaMemcpyHostToDevice), simt::Fault);
        const auto clear_too_much = [&] {
            CLOVER_CUDA(cudaMemset(x, 0, 36));
            CLOVER_CUDA(cudaDeviceSynchronize());
        };
        CHECK_THROWS_AS(clear_too_much(), simt::Fault);
        cudaGetLastError();
    }
    TEST_CASE("memory: what fits") {
        const With w({.memory = 1 << 20});
        void* p;
        size_t free = 0, total = 0;
        CLOVER_CUDA(cudaMemGetInfo(&free, &total));
        CHECK(total == 1 << 20);
        CHECK(cudaMalloc(&p, (1 << 20) + 1) == cudaErrorMemoryAllocation);
        CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
        CLOVER_CUDA(cudaMalloc(&p, free));
        CHECK(reinterpret_cast<uintptr_t>(p) % 256 == 0);
        CLOVER_CUDA(cudaFree(p));
    }
}

// ---- Asynchronous copies -------------------------------------------------------------------------------------------------------

enum class AsyncFault { none, early_read, early_overwrite, source_changes, no_barrier };

__global__ void copies_asynchronously(int* x, int* out, AsyncFault plant) {
    int* s = shared_memory<int>();
    const int i = int(threadIdx.x);
    ptx::cp_async_16(s + 4 * i, x + 4 * i);
    ptx::cp_async_commit();
    if (plant == AsyncFault::early_read) out[i] = s[4 * i];
    if (plant == AsyncFault::early_overwrite) s[4 * i] = 1;
    if (plant == AsyncFault::source_changes) x[4 * i] = 1;
    ptx::cp_async_wait<0>();
    out[i] = s[4 * i];
    if (plant != AsyncFault::no_barrier) __syncthreads();
    out[i] = s[4 * (i ^ 32)];
}
constexpr int async_line = __LINE__ - 10;

TEST_SUITE("simt") {
    TEST_CASE("cp.async: data arrives at the wait, for others at the barrier") {
        Memory<int> x(256), out(64);
        for (size_t i = 0; i < 256; i++) x[i] = int(i);
        const auto try_one = [&](AsyncFault plant) { return verdict(1, 64, 1024, copies_asynchronously, x, out, plant); };
        CHECK(try_one(AsyncFault::none) == "");
        CHECK(out[3] == 4 * 35);
        check_verdict(try_one(AsyncFault::early_read), {"copies_asynchronously: reads", "asynchronous copy into it is under way", at(async_line), at(async_line + 2)});
        check_verdict(try_one(AsyncFault::early_overwrite), {"copies_asynchronously: writes", "asynchronous copy into it is under way", at(async_line + 3)});
        check_verdict(try_one(AsyncFault::source_changes), {"source of the asynchronous copy", at(async_line), "was overwritten", at(async_line + 4)});
        check_verdict(try_one(AsyncFault::no_barrier), {"a race", at(async_line), at(async_line + 8)});
        CHECK(try_one(AsyncFault::none) == "");
    }
}

// ---- Right kernels -------------------------------------------------------------------------------------------------------------

__global__ void block_sums(float* out, const float* x, int64_t n) {
    float* partial = shared_memory<float>();
    float sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < blockDim.x / 32; w++) sum += partial[w];
        out[blockIdx.x] = sum;
    }
}

/// Inclusive sums over the block (Hillis and Steele).
__global__ void scan(int* x) {
    int* s = shared_memory<int>();
    const int i = int(threadIdx.x);
    s[i] = x[i];
    __syncthreads();
    for (int d = 1; d < int(blockDim.x); d *= 2) {
        const int add = i >= d ? s[i - d] : 0;
        __syncthreads();
        s[i] += add;
        __syncthreads();
    }
    x[i] = s[i];
}

template <int pitch>
__global__ void transpose(float* out, const float* x, int64_t n) {
    auto* tile = shared_memory<float[pitch]>();
    const int64_t row = int64_t(blockIdx.y) * 32 + threadIdx.y, column = int64_t(blockIdx.x) * 32 + threadIdx.x;
    for (int i = 0; i < 32; i += int(blockDim.y)) tile[int(threadIdx.y) + i][threadIdx.x] = x[(row + i) * n + column];
    __syncthreads();
    const int64_t to_row = int64_t(blockIdx.x) * 32 + threadIdx.y, to_column = int64_t(blockIdx.y) * 32 + threadIdx.x;
    for (int i = 0; i < 32; i += int(blockDim.y)) out[(to_row + i) * n + to_column] = tile[threadIdx.x][int(threadIdx.y) + i];
}

__global__ void twenty_barriers(int* out) {
    int* s = shared_memory<int>();
    const int i = int(threadIdx.x), n = int(blockDim.x);
    s[i] = 0;
    for (int turn = 0; turn < 10; turn++) {
        __syncthreads();
        const int neighbour = s[(i + 1) % n];
        __syncthreads();
        s[i] = neighbour + 1;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = s[i];
}

TEST_SUITE("simt") {
    TEST_CASE("right kernels pass under every seed") {
        for (uint64_t seed = 0; seed < 20; seed++) {
            const With w({.seed = seed});
            Memory<float> x(8 * 1000), sums(8), square(64 * 64), turned(64 * 64);
            for (size_t i = 0; i < 8000; i++) x[i] = float(i % 7);
            run(8, 256, 32, block_sums, sums, x, int64_t{1000});
            for (size_t b = 0; b < 8; b++) {
                float want = 0;
                for (size_t i = 0; i < 1000; i++) want += float((b * 1000 + i) % 7);
                CHECK(sums[b] == want);
            }
            Memory<int> series(512);
            for (size_t i = 0; i < 512; i++) series[i] = int(i);
            run(1, 512, 2048, scan, series);
            for (int i = 0; i < 512; i++) CHECK(series[size_t(i)] == i * (i + 1) / 2);
            for (size_t i = 0; i < 64 * 64; i++) square[i] = float(i);
            run(dim3(2, 2), dim3(32, 8), 32 * 33 * 4, transpose<33>, turned, square, int64_t{64});
            for (size_t i = 0; i < 64; i++)
                for (size_t j = 0; j < 64; j++) CHECK(turned[j * 64 + i] == float(i * 64 + j));
        }
    }
    TEST_CASE("256,000 threads with 20 barriers") {
        Memory<int> out(1000 * 256);
        run(1000, 256, 1024, twenty_barriers, out);
        CHECK(out[0] == 10);
        CHECK(out[255999] == 10);
    }
}

// ---- Shuffles, votes, reductions -----------------------------------------------------------------------------------------------

template <class T>
__global__ void shuffles(T* out, int mode, int argument, int width) {
    const T x = T(threadIdx.x);
    T y = x;
    if (mode == 0) y = __shfl_sync(all_lanes, x, argument, width);
    if (mode == 1) y = __shfl_up_sync(all_lanes, x, unsigned(argument), width);
    if (mode == 2) y = __shfl_down_sync(all_lanes, x, unsigned(argument), width);
    if (mode == 3) y = __shfl_xor_sync(all_lanes, x, argument, width);
    out[threadIdx.x] = y;
}

/// The PTX pseudo-code of shfl.sync, from the instruction's operands.
int ptx_shuffle(int mode, int lane, int b, int width) {
    const int c = ((32 - width) << 8) | (mode == 1 ? 0 : 0x1f);
    const int bval = b & 0x1f, cval = c & 0x1f, mask = (c >> 8) & 0x1f;
    const int max_lane = (lane & mask) | (cval & ~mask), min_lane = lane & mask;
    int j = 0;
    bool p = false;
    switch (mode) {
        case 1: j = lane - bval, p = j >= max_lane; break;
        case 2: j = lane + bval, p = j <= max_lane; break;
        case 3: j = lane ^ bval, p = j <= max_lane; break;
        default: j = min_lane | (bval & ~mask), p = j <= max_lane;
    }
    return p ? j : lane;
}

__global__ void votes_and_sums(int* out) {
    const int i = int(threadIdx.x);
    int* mine = out + 12 * i;
    mine[0] = int(__ballot_sync(all_lanes, i % 3 == 0));
    mine[1] = __any_sync(all_lanes, i == 31);
    mine[2] = __all_sync(all_lanes, i < 31);
    mine[3] = __reduce_add_sync(all_lanes, i - 40);
    mine[4] = __reduce_min_sync(all_lanes, i - 40);
    mine[5] = int(__reduce_max_sync(all_lanes, unsigned(i - 16)));
    mine[6] = int(__reduce_or_sync(all_lanes, 1u << (i & 7)));
    mine[7] = int(__reduce_and_sync(all_lanes, 255u & ~(1u << (i & 3))));
    mine[8] = int(__reduce_xor_sync(all_lanes, unsigned(i)));
    mine[9] = __syncthreads_count(i % 2);
    mine[10] = __syncthreads_or(i == 7);
    mine[11] = __syncthreads_and(i != 7);
}

__global__ void integer_atomics(int* x, unsigned long long* wide) {
    const int i = int(threadIdx.x);
    atomicAdd(x, i);
    atomicMax(x + 1, i - 50);
    atomicMin(x + 2, i - 50);
    atomicOr(reinterpret_cast<unsigned*>(x + 3), 1u << (i & 31));
    atomicCAS(x + 4, 5, 6);
    atomicAdd(wide, 1ull << 33);
}

TEST_SUITE("simt") {
    TEST_CASE("shuffles are PTX's shfl.sync") {
        Memory<int> out(32);
        Memory<double> wide(32);
        for (int mode = 0; mode < 4; mode++)
            for (int width : {1, 2, 4, 8, 16, 32})
                for (int argument : {0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31}) {
                    run(1, 32, 0, shuffles<int>, out, mode, argument, width);
                    run(1, 32, 0, shuffles<double>, wide, mode, argument, width);
                    CAPTURE(mode); CAPTURE(width); CAPTURE(argument);
                    for (int lane = 0; lane < 32; lane++) {
                        CHECK(out[size_t(lane)] == ptx_shuffle(mode, lane, argument, width));
                        CHECK(wide[size_t(lane)] == ptx_shuffle(mode, lane, argument, width));
                    }
                }
    }
    TEST_CASE("votes and reductions") {
        Memory<int> out(32 * 12);
        run(1, 32, 0, votes_and_sums, out);
        const int want[] = {0x49249249, 1, 0, 31 * 16 - 32 * 40, -40, -1, 255, 240, 0, 16, 1, 0};
        for (size_t lane = 0; lane < 32; lane++)
            for (size_t i = 0; i < 12; i++) CHECK(out[lane * 12 + i] == want[i]);
    }
    TEST_CASE("atomic operations on integers") {
        Memory<int> x(5);
        Memory<unsigned long long> wide(1);
        x[0] = x[3] = 0, x[1] = -1000, x[2] = 1000, x[4] = 5, wide[0] = 3;
        run(2, 64, 0, integer_atomics, x, wide);
        CHECK(x[0] == 2 * 63 * 32);
        CHECK(x[1] == 13);
        CHECK(x[2] == -50);
        CHECK(x[3] == -1);
        CHECK(x[4] == 6);
        CHECK(wide[0] == (128ull << 33) + 3);
    }
}

// ---- Counters ------------------------------------------------------------------------------------------------------------------

__global__ void strided_copy(float* out, const float* x, int stride) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    out[i] = x[i * stride];
}
__global__ void column_read(float* out, int pitch) {
    float* s = shared_memory<float>();
    for (int row = 0; row < 32; row++) s[row * pitch + int(threadIdx.x)] = 1;  // 1 pass each
    __syncwarp();
    out[threadIdx.x] = s[int(threadIdx.x) * pitch];
}
__global__ void vector_passes(float* out, int width, int pitch) {
    float* s = shared_memory<float>();
    float* mine = s + int(threadIdx.x) * pitch;
    if (width == 8) ptx::store<8>(mine, out);
    if (width == 16) ptx::store<16>(mine, out);
}
__global__ void loops_over_rows(float* out, const float* x) {
    float sum = 0;
    for (int row = 0; row < 10; row++) sum += x[row * 32 + int(threadIdx.x)];
    out[threadIdx.x] = sum;
}

template <class... Parameters, class... Arguments>
simt::LaunchCounters counted(dim3 grid, dim3 block, size_t shared, void (*kernel)(Parameters...), const Arguments&... arguments) {
    const With w({.counters = true});
    simt::counters().clear();
    run(grid, block, shared, kernel, arguments...);
    REQUIRE(simt::counters().size() == 1);
    const simt::LaunchCounters c = simt::counters()[0];
    simt::counters().clear();
    return c;
}

TEST_SUITE("simt") {
    TEST_CASE("counters: global memory") {
        Memory<float> x(128 * 32 + 1), out(128 * 4);
        auto c = counted(4, 32, 0, strided_copy, out, x, 1);
        CHECK(has(c.kernel, "strided_copy"));
        CHECK(c.grid[0] == 4);
        CHECK(c.block[0] == 32);
        CHECK(c.read_bytes == 512);
        CHECK(c.written_bytes == 512);
        CHECK(c.read_sectors == 16);
        CHECK(c.written_sectors == 16);
        CHECK(c.distinct_read_bytes == 512);
        CHECK(counted(4, 32, 0, strided_copy, out, x + 1, 1).read_sectors == 20);  // shifted by 4 bytes: 5 for 4
        CHECK(counted(1, 32, 0, strided_copy, out, x, 8).read_sectors == 32);
        CHECK(counted(1, 32, 0, strided_copy, out, x, 32).read_sectors == 32);
        c = counted(1, 32, 0, strided_copy, out, x, 0);
        CHECK(c.read_sectors == 1);
        CHECK(c.distinct_read_bytes == 4);
        c = counted(1, 32, 0, copies_by_four, x, out);
        CHECK(c.read_sectors == 16);
        CHECK(c.written_sectors == 16);
        c = counted(1, 32, 0, loops_over_rows, out, x);
        CHECK(c.read_sectors == 40);
        CHECK(c.read_bytes == 1280);
    }
    TEST_CASE("counters: shared memory") {
        Memory<float> out(32);
        auto c = counted(1, 32, 32 * 32 * 4, column_read, out, 32);
        CHECK(c.shared_passes == 32 + 32);
        CHECK(c.least_shared_passes == 32 + 1);
        c = counted(1, 32, 32 * 33 * 4, column_read, out, 33);
        CHECK(c.shared_passes == 32 + 1);
        for (const auto& [width, pitch, passes, least] : {std::array{8, 2, 2, 2}, std::array{8, 4, 4, 2}, std::array{16, 4, 4, 4}, std::array{16, 32, 32, 4}, std::array{16, 36, 4, 4}}) {
            CAPTURE(width); CAPTURE(pitch);
            c = counted(1, 32, size_t(32 * pitch * 4), vector_passes, out, width, pitch);
            CHECK(c.shared_passes == passes);
            CHECK(c.least_shared_passes == least);
        }
    }
    TEST_CASE("counters: the table") {
        const With w({.counters = true});
        Memory<float> x(32), out(32);
        simt::counters().clear();
        for (int i = 0; i < 3; i++) run(1, 32, 0, copies, x, out);
        run(1, 32, 32 * 32 * 4, column_read, out, 32);
        std::FILE* file = std::tmpfile();
        simt::print_counters(file);
        std::rewind(file);
        std::vector<std::string> lines;
        for (char line[400]; std::fgets(line, sizeof line, file);) lines.push_back(line);
        std::fclose(file);
        simt::counters().clear();
        REQUIRE(lines.size() == 4);
        CHECK(lines[2].starts_with("column_read "));
        CHECK(has(lines[2], " 1.939 "));  // 64 passes for 33
        CHECK(lines[3].starts_with("copies  "));
        CHECK(has(lines[3], "  3  "));
    }
    TEST_CASE("counters: blocks of several warps and barriers") {
        Memory<float> x(64 * 64), turned(64 * 64);
        auto c = counted(dim3(2, 2), dim3(32, 8), 32 * 33 * 4, transpose<33>, turned, x, int64_t{64});
        CHECK(c.read_bytes == 64 * 64 * 4);
        CHECK(c.read_sectors == 64 * 64 * 4 / 32);
        CHECK(c.written_sectors == 64 * 64 * 4 / 32);
        CHECK(c.shared_passes == c.least_shared_passes);
        CHECK(c.kernel == "transpose<33>");
        c = counted(dim3(2, 2), dim3(32, 8), 32 * 32 * 4, transpose<32>, turned, x, int64_t{64});
        CHECK(c.shared_passes == 4 * 32 + 4 * 32 * 32);
    }
}

}  // namespace
