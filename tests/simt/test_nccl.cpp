// The stand-in for NCCL: what it computes, and that each misuse named in facts: cuda.md, section 9, is reported to every rank.
#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include "../../kernels/bf16.h"
#include "buffer.h"
#include "internal.h"
#include "nccl.h"

namespace {

using clover::bf16;
using clover::to_bf16;
using clover::to_float;
using namespace simt::test;

/// As many pretended devices as ranks, and the options of the stand-in as they were, afterwards.
struct Machine {
    simt::Options before = simt::options();
    explicit Machine(int devices) {
        simt::options().devices = devices;
        simt::nccl_options() = {};
    }
    ~Machine() {
        simt::options() = before;
        simt::nccl_options() = {};
        cudaSetDevice(0);
    }
};

/// One rank: its thread, device, stream and communicator.
struct Rank {
    int rank, count;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    ncclResult_t result = ncclSuccess;  // the first that was not a success
    std::string error;                  // its text, or that of a Fault

    void check(ncclResult_t r) {
        if (r == ncclSuccess || result != ncclSuccess) return;
        result = r;
        error = ncclGetLastError(comm);
    }
    void synchronize() {
        cudaStreamSynchronize(stream);
        ncclResult_t state = ncclSuccess;
        check(ncclCommGetAsyncError(comm, &state));
        check(state);
    }
};

/// Runs work(rank) on `count` threads with a communicator among them. Returns what the ranks ended with.
std::vector<Rank> run_ranks(int count, const std::function<void(Rank&)>& work) {
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    std::vector<Rank> ranks(static_cast<size_t>(count));
    std::vector<std::thread> threads;
    for (int r = 0; r < count; r++)
        threads.emplace_back([&, r] {
            Rank& self = ranks[size_t(r)];
            self.rank = r, self.count = count;
            try {
                cudaSetDevice(r);
                cudaStreamCreate(&self.stream);
                self.check(ncclCommInitRank(&self.comm, count, id, r));
                work(self);
                if (self.result == ncclSuccess) self.check(ncclCommDestroy(self.comm));
            } catch (const simt::Fault& fault) {
                self.result = ncclInternalError, self.error = fault.what();
            }
            if (self.comm && self.result != ncclSuccess) ncclCommAbort(self.comm);
            cudaStreamDestroy(self.stream);
        });
    for (std::thread& t : threads) t.join();
    return ranks;
}
void run_well(int count, const std::function<void(Rank&)>& work) {
    for (const Rank& r : run_ranks(count, work)) CHECK_MESSAGE(r.result == ncclSuccess, "rank ", r.rank, ": ", r.error);
}
/// Every rank must fail with a text that has `part`.
void check_all_fail(const std::vector<Rank>& ranks, const std::string& part) {
    for (const Rank& r : ranks) {
        CAPTURE(r.rank);
        CHECK(r.result != ncclSuccess);
        check_contains(r.error, part);
    }
}

/// Memory of the calling thread's device, without doctest's assertions, which belong to the main thread.
template <class T>
struct Memory {
    T* p = nullptr;
    size_t count;
    explicit Memory(size_t n) : count(n) { cudaMalloc(&p, n * sizeof(T)); }
    explicit Memory(const std::vector<T>& v) : Memory(v.size()) { cudaMemcpy(p, v.data(), count * sizeof(T), cudaMemcpyHostToDevice); }
    // It waits for the device, and there the fault may be found that the test is about.
    ~Memory() {
        try {
            cudaFree(p);
        } catch (const simt::Fault&) {
        }
    }
    Memory(const Memory&) = delete;
    std::vector<T> values() const {
        std::vector<T> v(count);
        cudaMemcpy(v.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost);
        return v;
    }
};

std::vector<float> numbers(size_t n, int rank) {
    std::mt19937 random(uint32_t(100 + rank));
    std::vector<float> v(n);
    for (float& x : v) x = float(random()) * 0x1p-31f - 1;
    return v;
}

}  // namespace

TEST_SUITE("simt nccl") {
    TEST_CASE("the collectives and their places, out of place and in place") {
        for (int count : {1, 2, 3, 4}) {
            const Machine machine(count);
            simt::nccl_options().most_delay_microseconds = 300;
            constexpr size_t n = 7;
            std::vector<std::vector<float>> summed(static_cast<size_t>(count)), gathered(summed), scattered(summed), sent(summed), rooted(summed);
            run_well(count, [&](Rank& r) {
                const size_t all = n * size_t(r.count), first = n * size_t(r.rank), self = size_t(r.rank);
                // Integers: sums do not depend on their order.
                std::vector<float> mine(all);
                for (size_t i = 0; i < all; i++) mine[i] = float(1000 * r.rank) + float(i);
                Memory<float> a(mine), sum(all), gather(all), scatter(n), everyone(mine), root(mine);
                r.check(ncclAllReduce(a.p, sum.p, all, ncclFloat32, ncclSum, r.comm, r.stream));
                r.check(ncclAllGather(a.p, gather.p, n, ncclFloat32, r.comm, r.stream));
                r.check(ncclReduceScatter(a.p, scatter.p, n, ncclFloat32, ncclMax, r.comm, r.stream));
                r.check(ncclBroadcast(a.p, everyone.p, n, ncclFloat32, r.count - 1, r.comm, r.stream));
                r.check(ncclReduce(root.p, root.p, n, ncclFloat32, ncclMin, 0, r.comm, r.stream));
                r.check(ncclAllGather(everyone.p + first, everyone.p, n, ncclFloat32, r.comm, r.stream));
                r.synchronize();
                summed[self] = sum.values(), gathered[self] = gather.values(), scattered[self] = scatter.values();
                sent[self] = everyone.values(), rooted[self] = root.values();
            });
            for (size_t r = 0; r < size_t(count); r++)
                for (size_t i = 0; i < n * size_t(count); i++) {
                    const float from = float(1000 * (i / n)), within = float(i % n), last = float(1000 * (count - 1));
                    CHECK(summed[r][i] == float(1000 * count * (count - 1) / 2) + float(count) * float(i));
                    CHECK(gathered[r][i] == from + within);
                    // Rank 0 put the broadcast values in place 0; the others gave what they had.
                    CHECK(sent[r][i] == (i < n ? last + within : from + float(i)));
                    if (i < n) CHECK(scattered[r][i] == last + float(n * r + i));
                    if (i < n && r == 0) CHECK(rooted[r][i] == float(i));
                    if (i < n && r > 0) CHECK(rooted[r][i] == float(1000 * r + i));
                }
        }
    }
    TEST_CASE("bf16 sums are rounded at every hop of the ring, and all ranks get the same bits") {
        constexpr int count = 4;
        constexpr size_t n = 37;
        const auto run = [&](uint64_t order_seed, ncclRedOp_t op) {
            const Machine machine(count);
            simt::nccl_options().order_seed = order_seed;
            std::vector<std::vector<uint16_t>> got(count);
            run_well(count, [&](Rank& r) {
                std::vector<uint16_t> mine;
                for (float x : numbers(n, r.rank)) mine.push_back(to_bf16(x).bits);
                Memory<uint16_t> a(mine);
                r.check(ncclAllReduce(a.p, a.p, n, ncclBfloat16, op, r.comm, r.stream));
                r.synchronize();
                got[size_t(r.rank)] = a.values();
            });
            for (const auto& g : got) CHECK(g == got[0]);
            return got[0];
        };
        const auto want = [&](ncclRedOp_t op) {
            std::vector<uint16_t> want(n);
            for (size_t i = 0; i < n; i++) {
                const auto x = [&](size_t hop) {
                    const float v = to_float(to_bf16(numbers(n, int(hop % count))[i]));
                    return op == ncclAvg ? to_float(to_bf16(v * 0.25f)) : v;
                };
                size_t chunk = 0;
                while ((chunk + 1) * n / count <= i) chunk++;
                float sum = x(chunk + 1);
                for (size_t hop = 2; hop <= count; hop++) sum = to_float(to_bf16(sum + x(chunk + hop)));
                want[i] = to_bf16(sum).bits;
            }
            return want;
        };
        CHECK(run(0, ncclSum) == want(ncclSum));
        CHECK(run(0, ncclAvg) == want(ncclAvg));
        CHECK(run(5, ncclSum) != want(ncclSum));
        CHECK(run(5, ncclSum) == run(5, ncclSum));
    }
    TEST_CASE("one thread drives several devices in groups") {
        constexpr int count = 3;
        const Machine machine(count);
        ncclComm_t comms[count];
        REQUIRE(ncclCommInitAll(comms, count, nullptr) == ncclSuccess);
        cudaStream_t streams[count];
        std::vector<std::unique_ptr<Memory<int32_t>>> memory;
        for (int r = 0; r < count; r++) {
            cudaSetDevice(r);
            expect(cudaStreamCreate(&streams[r]));
            memory.push_back(std::make_unique<Memory<int32_t>>(std::vector<int32_t>{r + 1, 10 * (r + 1)}));
            int value = -1;
            CHECK(ncclCommUserRank(comms[r], &value) == ncclSuccess);
            CHECK(value == r);
            CHECK(ncclCommCuDevice(comms[r], &value) == ncclSuccess);
            CHECK(value == r);
            CHECK(ncclCommCount(comms[r], &value) == ncclSuccess);
            CHECK(value == count);
        }
        REQUIRE(ncclGroupStart() == ncclSuccess);
        for (int r = 0; r < count; r++)
            CHECK(ncclAllReduce(memory[size_t(r)]->p, memory[size_t(r)]->p, 2, ncclInt32, ncclSum, comms[r], streams[r]) == ncclSuccess);
        REQUIRE(ncclGroupEnd() == ncclSuccess);
        for (int r = 0; r < count; r++) {
            expect(cudaStreamSynchronize(streams[r]));
            CHECK(memory[size_t(r)]->values() == std::vector<int32_t>{6, 60});
            CHECK(ncclCommDestroy(comms[r]) == ncclSuccess);
            CHECK(cudaStreamDestroy(streams[r]) == cudaSuccess);
        }
    }
    TEST_CASE("send and receive around a ring, in a group; one after the other in a chain") {
        constexpr int count = 3;
        const Machine machine(count);
        std::vector<std::vector<float>> ring(count), chain(count);
        run_well(count, [&](Rank& r) {
            Memory<float> mine(std::vector<float>(4, float(r.rank))), other(4), passed(std::vector<float>(4, 9));
            const int next = (r.rank + 1) % count, before = (r.rank + count - 1) % count;
            r.check(ncclGroupStart());
            r.check(ncclSend(mine.p, 4, ncclFloat32, next, r.comm, r.stream));
            r.check(ncclRecv(other.p, 4, ncclFloat32, before, r.comm, r.stream));
            r.check(ncclGroupEnd());
            if (r.rank > 0) r.check(ncclRecv(passed.p, 4, ncclFloat32, before, r.comm, r.stream));
            if (r.rank + 1 < count) r.check(ncclSend(r.rank == 0 ? mine.p : passed.p, 4, ncclFloat32, next, r.comm, r.stream));
            r.synchronize();
            ring[size_t(r.rank)] = other.values(), chain[size_t(r.rank)] = passed.values();
        });
        for (int r = 0; r < count; r++) {
            CHECK(ring[size_t(r)] == std::vector<float>(4, float((r + count - 1) % count)));
            CHECK(chain[size_t(r)] == std::vector<float>(4, r == 0 ? 9.0f : 0.0f));
        }
    }
    TEST_CASE("data moves when the stream reaches the operation") {
        const Machine machine(2);
        std::vector<float> got;
        run_well(2, [&](Rank& r) {
            Memory<float> a(std::vector<float>(8, -1)), first(std::vector<float>(8, float(1 + r.rank))), later(std::vector<float>(8, 100)), sum(8);
            cudaMemcpyAsync(a.p, first.p, 32, cudaMemcpyDeviceToDevice, r.stream);
            r.check(ncclAllReduce(a.p, sum.p, 8, ncclFloat32, ncclSum, r.comm, r.stream));
            cudaMemcpyAsync(a.p, later.p, 32, cudaMemcpyDeviceToDevice, r.stream);
            r.synchronize();
            if (r.rank == 0) got = sum.values();
        });
        CHECK(got == std::vector<float>(8, 3));
    }

    TEST_CASE("nothing moves before the streams of all ranks have come to it") {
        const Machine machine(2);
        std::atomic<bool> released = false;
        bool early = false;
        std::vector<float> got;
        run_well(2, [&](Rank& r) {
            Memory<float> a(std::vector<float>(8, -1)), right(std::vector<float>(8, 2)), sum(8);
            if (r.rank == 1) simt::enqueue(r.stream, "held back", [&] { return released.load(); });
            cudaMemcpyAsync(a.p, right.p, 32, cudaMemcpyDeviceToDevice, r.stream);
            r.check(ncclAllReduce(a.p, sum.p, 8, ncclFloat32, ncclSum, r.comm, r.stream));
            if (r.rank == 0) {
                for (int i = 0; i < 50; i++) {
                    early |= cudaStreamQuery(r.stream) == cudaSuccess;
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
                released = true;
            }
            r.synchronize();
            if (r.rank == 0) got = sum.values();
        });
        CHECK(!early);
        CHECK(got == std::vector<float>(8, 4));
    }
    TEST_CASE("waiting for a stream within a group") {
        const Machine machine(1);
        run_well(1, [&](Rank& r) {
            Memory<float> a(std::vector<float>(8, 1));
            r.check(ncclGroupStart());
            r.check(ncclAllReduce(a.p, a.p, 8, ncclFloat32, ncclSum, r.comm, r.stream));
            const std::string fault = fault_of([&] { cudaStreamSynchronize(r.stream); });
            r.check(ncclGroupEnd());
            r.synchronize();
            if (fault.find("open group") == std::string::npos) r.result = ncclInternalError, r.error = "not seen: " + fault;
        });
    }

    TEST_CASE("ranks that differ in a collective are told all sides") {
        struct Case {
            const char* text;
            std::function<ncclResult_t(Rank&, float*, float*)> call;
        };
        const Case cases[] = {
            {"count 5", [](Rank& r, float* a, float* b) { return ncclAllReduce(a, b, r.rank == 1 ? 5 : 4, ncclFloat32, ncclSum, r.comm, r.stream); }},
            {"float64", [](Rank& r, float* a, float* b) { return ncclAllReduce(a, b, 4, r.rank == 1 ? ncclFloat64 : ncclFloat32, ncclSum, r.comm, r.stream); }},
            {"maximum", [](Rank& r, float* a, float* b) { return ncclAllReduce(a, b, 4, ncclFloat32, r.rank == 1 ? ncclMax : ncclSum, r.comm, r.stream); }},
            {"root 1", [](Rank& r, float* a, float* b) { return ncclBroadcast(a, b, 4, ncclFloat32, r.rank, r.comm, r.stream); }},
            {"AllGather", [](Rank& r, float* a, float* b) {
                 return r.rank == 1 ? ncclAllGather(a, b, 4, ncclFloat32, r.comm, r.stream) : ncclReduce(a, b, 4, ncclFloat32, ncclSum, 0, r.comm, r.stream);
             }},
            {"count 0", [](Rank& r, float* a, float* b) { return ncclAllReduce(a, b, r.rank == 1 ? 0 : 4, ncclFloat32, ncclSum, r.comm, r.stream); }},
        };
        for (const Case& c : cases) {
            CAPTURE(c.text);
            const Machine machine(2);
            const std::vector<Rank> ranks = run_ranks(2, [&](Rank& r) {
                Memory<float> a(std::vector<float>(16, 1)), b(16);
                r.check(c.call(r, a.p, b.p));
                r.synchronize();
            });
            check_all_fail(ranks, c.text);
            check_all_fail(ranks, "rank 0 ");
        }
    }
    TEST_CASE("send and receive that differ") {
        const Machine machine(2);
        check_all_fail(run_ranks(2, [&](Rank& r) {
            Memory<float> a(std::vector<float>(16, 1));
            r.check(r.rank == 0 ? ncclSend(a.p, 4, ncclFloat32, 1, r.comm, r.stream) : ncclRecv(a.p, 5, ncclFloat32, 0, r.comm, r.stream));
            r.synchronize();
        }), "count 5");
    }
    TEST_CASE("an operation that waits too long says for whom") {
        const Machine machine(3);
        simt::nccl_options().timeout_seconds = 0.3;
        check_all_fail(run_ranks(3, [&](Rank& r) {
            Memory<float> a(std::vector<float>(4, 1));
            if (r.rank != 1) r.check(ncclAllReduce(a.p, a.p, 4, ncclFloat32, ncclSum, r.comm, r.stream));
            if (r.rank != 1) r.synchronize();
            std::this_thread::sleep_for(std::chrono::milliseconds(r.rank == 1 ? 800 : 0));
            r.synchronize();
        }), "rank 1 has called 0 collectives");
        // Both send first: neither comes to its receive.
        check_all_fail(run_ranks(2, [&](Rank& r) {
            Memory<float> a(std::vector<float>(4, 1)), b(4);
            r.check(ncclSend(a.p, 4, ncclFloat32, 1 - r.rank, r.comm, r.stream));
            r.check(ncclRecv(b.p, 4, ncclFloat32, 1 - r.rank, r.comm, r.stream));
            r.synchronize();
        }), "its stream waits for something else");
    }
    TEST_CASE("an initialisation that waits too long says for whom") {
        const Machine machine(2);
        simt::nccl_options().timeout_seconds = 0.2;
        ncclUniqueId id;
        REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
        ncclComm_t comm;
        CHECK(ncclCommInitRank(&comm, 2, id, 0) == ncclInvalidUsage);
        check_contains(ncclGetLastError(nullptr), "ranks 1");
        CHECK(ncclCommInitRank(&comm, 2, ncclUniqueId{}, 0) == ncclInvalidArgument);
        CHECK(ncclCommInitRank(&comm, 2, id, 2) == ncclInvalidArgument);
    }
    TEST_CASE("initialisations that cannot be") {
        const Machine machine(2);
        const auto second = [](int device, int ranks, int rank) {
            ncclUniqueId id;
            ncclGetUniqueId(&id);
            ncclComm_t comms[2];
            ncclGroupStart();
            cudaSetDevice(0);
            ncclCommInitRank(&comms[0], 2, id, 0);
            cudaSetDevice(device);
            const ncclResult_t result = ncclCommInitRank(&comms[1], ranks, id, rank);
            ncclGroupEnd();
            return result;
        };
        CHECK(second(1, 2, 1) == ncclSuccess);
        CHECK(second(0, 2, 1) == ncclInvalidUsage);
        check_contains(ncclGetLastError(nullptr), "one device");
        CHECK(second(1, 2, 0) == ncclInvalidUsage);
        check_contains(ncclGetLastError(nullptr), "twice");
        CHECK(second(1, 3, 1) == ncclInvalidUsage);
        check_contains(ncclGetLastError(nullptr), "3 ranks");
    }
    TEST_CASE("one thread without a group would deadlock") {
        const Machine machine(2);
        ncclComm_t comms[2];
        REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
        std::vector<std::unique_ptr<Memory<float>>> memory;
        cudaStream_t streams[2];
        ncclResult_t results[2];
        for (int r = 0; r < 2; r++) {
            cudaSetDevice(r);
            cudaStreamCreate(&streams[r]);
            memory.push_back(std::make_unique<Memory<float>>(std::vector<float>(4, 1)));
            results[r] = ncclAllReduce(memory[size_t(r)]->p, memory[size_t(r)]->p, 4, ncclFloat32, ncclSum, comms[r], streams[r]);
        }
        CHECK(results[0] == ncclSuccess);
        CHECK(results[1] == ncclInvalidUsage);
        check_contains(ncclGetLastError(comms[1]), "outside of one group");
        check_contains(fault_of([&] { cudaStreamSynchronize(streams[0]); }), "outside of one group");
        for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
        for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
    }
    TEST_CASE("a send to itself needs a receive in its group") {
        const Machine machine(1);
        std::vector<float> got;
        run_well(1, [&](Rank& r) {
            Memory<float> a(std::vector<float>(4, 5)), b(4);
            r.check(ncclGroupStart());
            r.check(ncclSend(a.p, 4, ncclFloat32, 0, r.comm, r.stream));
            r.check(ncclRecv(b.p, 4, ncclFloat32, 0, r.comm, r.stream));
            r.check(ncclGroupEnd());
            r.synchronize();
            got = b.values();
        });
        CHECK(got == std::vector<float>(4, 5));
        check_all_fail(run_ranks(1, [&](Rank& r) {
            Memory<float> a(std::vector<float>(4, 5));
            r.check(ncclSend(a.p, 4, ncclFloat32, 0, r.comm, r.stream));
        }), "nobody receives it");
    }
    TEST_CASE("two communicators in different orders on two devices") {
        const Machine machine(2);
        simt::nccl_options().timeout_seconds = 1;
        ncclUniqueId id;
        REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
        const std::vector<Rank> ranks = run_ranks(2, [&](Rank& r) {
            ncclComm_t second;
            cudaStream_t stream;
            cudaStreamCreate(&stream);
            r.check(ncclCommInitRank(&second, 2, id, r.rank));
            Memory<float> a(std::vector<float>(4, 1)), b(std::vector<float>(4, 1));
            const auto first_call = [&] { r.check(ncclAllReduce(a.p, a.p, 4, ncclFloat32, ncclSum, r.comm, r.stream)); };
            const auto second_call = [&] { r.check(ncclAllReduce(b.p, b.p, 4, ncclFloat32, ncclSum, second, stream)); };
            if (r.rank == 0) first_call(), second_call();
            else second_call(), first_call();
            if (r.result == ncclSuccess) cudaStreamSynchronize(stream);
            if (r.result == ncclSuccess) r.synchronize();
            if (r.result == ncclSuccess) r.check(ncclCommGetAsyncError(second, &r.result));
            ncclCommAbort(second);
            cudaStreamDestroy(stream);
        });
        bool reported = false;
        for (const Rank& r : ranks) reported |= r.error.find("order of communicators") != std::string::npos;
        CHECK(reported);
    }
    TEST_CASE("buffers: device, overlap, bounds, unwritten memory") {
        const Machine machine(2);
        float host[8] = {};
        Memory<float> of_device_0(std::vector<float>(64, 1));
        struct Case {
            const char* text;
            std::function<ncclResult_t(Rank&, float*)> call;  // with 64 written floats
        };
        const Case cases[] = {
            {"is on device 0", [&](Rank& r, float* a) { return ncclAllReduce(r.rank == 1 ? of_device_0.p : a, a, 8, ncclFloat32, ncclSum, r.comm, r.stream); }},
            {"not device memory", [&](Rank& r, float* a) { return ncclAllReduce(host, a, 8, ncclFloat32, ncclSum, r.comm, r.stream); }},
            {"overlap", [](Rank& r, float* a) { return ncclAllReduce(a, a + 4, 8, ncclFloat32, ncclSum, r.comm, r.stream); }},
            {"overlap", [](Rank& r, float* a) { return ncclAllGather(a, a + 8 * (r.rank + 1), 8, ncclFloat32, r.comm, r.stream) == ncclSuccess
                                                           ? ncclAllGather(a + 4, a, 8, ncclFloat32, r.comm, r.stream) : ncclInternalError; }},
            {"null", [](Rank& r, float* a) { return ncclAllReduce(nullptr, a, 8, ncclFloat32, ncclSum, r.comm, r.stream); }},
            {"more than is left", [](Rank& r, float* a) { return ncclAllReduce(a, a, 65, ncclFloat32, ncclSum, r.comm, r.stream); }},
            {"with rank 2 of 2", [](Rank& r, float* a) { return ncclBroadcast(a, a, 8, ncclFloat32, 2, r.comm, r.stream); }},
        };
        for (const Case& c : cases) {
            CAPTURE(c.text);
            simt::nccl_options().timeout_seconds = 1;
            const std::vector<Rank> ranks = run_ranks(2, [&](Rank& r) {
                Memory<float> a(std::vector<float>(64, 1));
                r.check(c.call(r, a.p));
                if (r.result == ncclSuccess) r.synchronize();
            });
            bool reported = false;
            for (const Rank& r : ranks) reported |= r.error.find(c.text) != std::string::npos;
            CHECK_MESSAGE(reported, ranks[0].error, " | ", ranks[1].error);
        }
        const std::vector<Rank> ranks = run_ranks(2, [&](Rank& r) {
            Memory<float> a(16);
            r.check(ncclAllReduce(a.p, a.p, 16, ncclFloat32, ncclSum, r.comm, r.stream));
            r.synchronize();
        });
        check_all_fail(ranks, "nobody wrote");
    }
    TEST_CASE("use after the end, and ending too early") {
        const Machine machine(1);
        run_well(1, [&](Rank& r) {
            ncclUniqueId id;
            ncclGetUniqueId(&id);
            ncclComm_t comm;
            r.check(ncclCommInitRank(&comm, 1, id, 0));
            Memory<float> a(std::vector<float>(4, 1));
            r.check(ncclCommDestroy(comm));
            const ncclResult_t after = ncclAllReduce(a.p, a.p, 4, ncclFloat32, ncclSum, comm, r.stream);
            const ncclResult_t twice = ncclCommDestroy(comm);
            if (after != ncclInvalidUsage || twice != ncclInvalidUsage) r.result = ncclInternalError, r.error = "use after the end was not seen";
        });
        const Machine two(2);
        simt::nccl_options().timeout_seconds = 0.3;
        const std::vector<Rank> ranks = run_ranks(2, [&](Rank& r) {
            Memory<float> a(std::vector<float>(4, 1));
            if (r.rank == 0) r.check(ncclAllReduce(a.p, a.p, 4, ncclFloat32, ncclSum, r.comm, r.stream));
            r.check(ncclCommDestroy(r.comm));
        });
        check_contains(ranks[0].error, "under way");
    }
    TEST_CASE("a communicator that does not block must be asked") {
        const Machine machine(2);
        ncclUniqueId id;
        REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
        run_well(2, [&](Rank& r) {
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            config.blocking = 0;
            ncclComm_t comm;
            const auto wait = [&] {
                ncclResult_t state = ncclInProgress;
                while (state == ncclInProgress) r.check(ncclCommGetAsyncError(comm, &state));
                r.check(state);
            };
            Memory<float> a(std::vector<float>(4, 1));
            bool right = ncclCommInitRankConfig(&comm, 2, id, r.rank, &config) == ncclInProgress;
            wait();
            right &= ncclAllReduce(a.p, a.p, 4, ncclFloat32, ncclSum, comm, r.stream) == ncclInProgress;
            right &= ncclAllReduce(a.p, a.p, 4, ncclFloat32, ncclSum, comm, r.stream) == ncclInvalidUsage;
            right &= fault_of([&] { cudaStreamSynchronize(r.stream); }).find("ncclInProgress") != std::string::npos;
            wait();
            cudaStreamSynchronize(r.stream);
            right &= a.values() == std::vector<float>(4, 2);
            r.check(ncclCommDestroy(comm));
            if (!right) r.result = ncclInternalError, r.error = "ncclInProgress was not enforced";
        });
    }
}
