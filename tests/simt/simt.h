// The SIMT harness: runs CUDA kernels on the CPU, thread by thread, and checks what they do.
//
// The .cu files are compiled by g++ with -fsanitize=thread against the headers of this folder; every load and store that the compiler
// instruments arrives in our own __tsan_* functions. A block is a set of fibers; a fiber runs until it must wait for others (barrier,
// shuffle, vote, mma, ldmatrix) and the scheduler picks the next one at random from a seed. All blocks of a launch are treated as
// running at the same time.
//
// A fault ends the launch and is thrown as Fault from the call of the runtime that ran the kernel, naming the kernel, the source
// line, the block and the thread. Kernels run on one thread of the host at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace simt {

// ---- For tests -----------------------------------------------------------------------------------------------------------------

struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// How mma adds its products (facts: section 1.4): exactly in f32, or truncated in groups of 8 (sm_80) or 16 (sm_90).
enum class MmaModel : uint8_t { exact, sm80, sm90 };

struct Options {
    uint64_t seed = 0;      // of the order of blocks, warps and lanes, and of when queued work runs
    MmaModel mma = MmaModel::exact;
    bool counters = false;  // count bytes, sectors and bank conflicts of each launch (slower)
    int capability = 90;    // of the pretended GPU: 80 or 90
    int devices = 1;        // how many of them there are
    size_t memory = size_t{16} << 30;                  // bytes that each can allocate
    int64_t most_accesses = int64_t{1} << 28;          // that a thread may make without waiting; more is an endless loop
    double most_seconds = 120;                         // that a launch, or a wait for other ranks, may take
};
/// Of the launches that follow.
Options& options();

/// What one launch did. A sector is 32 aligned bytes of global memory; a pass is one turn of the 32 banks of shared memory.
struct LaunchCounters {
    std::string kernel;
    uint32_t grid[3], block[3];
    size_t shared_bytes;
    int64_t launches = 1;
    int64_t read_bytes = 0, written_bytes = 0;          // global memory, as asked for by the threads
    int64_t read_sectors = 0, written_sectors = 0;      // after coalescing the accesses of a warp's instruction
    int64_t distinct_read_bytes = 0, distinct_written_bytes = 0;  // each byte once per launch: the least possible
    int64_t shared_passes = 0, least_shared_passes = 0; // all accesses to shared memory; ldmatrix included
    int64_t mma = 0;                                    // warp-wide matrix instructions
};
/// Of the launches since the last clear, in order; only with options().counters.
std::vector<LaunchCounters>& counters();
/// A table with one line for each kernel.
void print_counters(std::FILE* to);

/// Marks memory as not written by anyone (and fills it with NaN if it is managed): a kernel that reads it before writing is at fault.
void forget(void* p, size_t bytes);
/// Whether all of it (device or managed memory) was written.
bool written(const void* p, size_t bytes);

// ---- For the emulated instructions and the library stand-ins -------------------------------------------------------------------

/// True inside a kernel.
bool in_kernel();
int lane();
/// Ends the launch with a Fault: the kernel, the source line of the innermost kernel code, block and thread are added to `what`.
[[noreturn]] void fault(const std::string& what);

/// A warp-wide instruction: every lane of `mask` must arrive with the same `instruction` and mask at the same place of the program
/// (else a Fault, also when the others have exited or wait elsewhere). `mine` of all lanes is then given to `run`, once, as an array
/// of 32 (null for lanes outside the mask); after it all lanes go on.
void warp_collective(const char* instruction, uint32_t mask, void* mine, void (*run)(void* const* lanes));

/// Checks an access of `bytes` at p by this thread (bounds, alignment to `bytes`, written before, races) and counts it.
void check_access(const void* p, size_t bytes, bool write);

// ---- For kernels/ptx.cuh -------------------------------------------------------------------------------------------------------

void* shared_memory();
uint32_t shared_address(const void* p);
void load(void* to, const void* p, int bytes);
void store(void* p, const void* from, int bytes);
uint32_t pack_bf16(float low, float high);
float exp2_approximate(float x);
void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void ldmatrix_x4(uint32_t (&r)[4], const void* row, bool transposed);
uint32_t movmatrix_transposed(uint32_t a);
void cp_async(void* shared, const void* global, int bytes, int valid);
void cp_async_commit();
void cp_async_wait(int pending);
[[noreturn]] void trap();

}  // namespace simt
