#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>

#include "../data/ordered.h"

using namespace clover;

TEST_SUITE("ordered_parallel") {
    TEST_CASE("results come in the order of the items, few of them in memory at a time") {
        for (int threads : {1, 3}) {
            int64_t made = 0;
            std::atomic<int64_t> alive = 0, most = 0;
            std::vector<int64_t> seen;
            ordered_parallel<int64_t>(
                threads,
                [&](int64_t& item) {
                    item = made;
                    if (made++ == 2000) return false;
                    int64_t now = ++alive, before = most;
                    while (now > before && !most.compare_exchange_weak(before, now)) {
                    }
                    return true;
                },
                [&](int64_t& item, int worker) {
                    if (worker < 0 || worker >= threads) throw std::runtime_error("worker");
                    if (item % 64 == 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    item *= 3;
                },
                [&](int64_t& item) { seen.push_back(item), alive--; });
            REQUIRE(seen.size() == 2000);
            for (int64_t i = 0; i < 2000; i++)
                if (seen[size_t(i)] != 3 * i) FAIL("item ", i);
            CHECK(most <= 4 * threads + 6);
        }
    }

    TEST_CASE("no items") {
        ordered_parallel<int>(2, [](int&) { return false; }, [](int&, int) { FAIL("work"); }, [](int&) { FAIL("consume"); });
    }

    TEST_CASE("of several failures the earliest item's is thrown, after what came before it") {
        for (const std::string where : {"produce", "work", "consume"}) {
            int made = 0, consumed = 0;
            const auto run = [&] {
                ordered_parallel<int>(
                    2,
                    [&](int& item) {
                        item = made++;
                        if (where == "produce" && item == 10) throw std::runtime_error("10");
                        return item < 100;
                    },
                    [&](int& item, int) {
                        if (where == "work" && item >= 10) throw std::runtime_error(std::to_string(item));
                    },
                    [&](int& item) {
                        if (where == "consume" && item == 10) throw std::runtime_error("10");
                        consumed++;
                    });
            };
            CHECK_THROWS_WITH_AS(run(), "10", std::runtime_error);
            CHECK(consumed == 10);
        }
    }
}
