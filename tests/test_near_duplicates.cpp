#include "../data/near_duplicates.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

using namespace clover;

namespace {

/// n words, all different, the same for the same arguments.
std::string words(size_t n, uint64_t document) {
    std::string text;
    for (size_t i = 0; i < n; i++) text.append("d").append(std::to_string(document)).append("w").append(std::to_string(i)).append(i % 10 == 9 ? ",\n" : " ");
    return text;
}

struct Pair {
    std::string a, b;
};
/// Two documents of `total` 13-grams each, `shared` of them in both: J = shared / (2 total − shared).
Pair pair_of(size_t shared, size_t total, uint64_t number) {
    const std::string common = words(shared + shingle_words - 1, 3 * number);
    return {common + words(total - shared, 3 * number + 1), common + words(total - shared, 3 * number + 2)};
}

Hash128 exact(std::string_view text) {
    std::string scratch;
    return exact_hash(text, scratch);
}

bool same(std::string_view a, std::string_view b) { return exact(a) == exact(b); }

double similarity(std::string_view a, std::string_view b) { return estimated_jaccard(minhash(a), minhash(b)); }

const std::string thirteen = "a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12 a13";

}  // namespace

TEST_SUITE("near duplicates") {
    TEST_CASE("exact: white space aside, every byte counts") {
        CHECK(same("a b\n\nc", " a\tb \xc2\xa0 c\r\n"));
        CHECK(same("", " \n"));
        CHECK_FALSE(same("a b", "ab"));
        CHECK_FALSE(same("a b", "A b"));
        CHECK_FALSE(same("a b.", "a b"));
        CHECK_FALSE(same("a", std::string_view("a\0", 2)));
        CHECK_FALSE(same("", std::string_view("\0", 1)));
        CHECK_FALSE(same("12345678abcdefgh", "abcdefgh12345678"));
        CHECK_FALSE(same("\xff", "\xfe"));
        ExactDuplicates seen;
        seen.add(exact("a b"));
        CHECK(seen.contains(exact("a  b")));
        CHECK_FALSE(seen.contains(exact("a c")));
    }

    TEST_CASE("exact: a million short texts have different hashes, in each half") {
        std::vector<uint64_t> a, b;
        for (int i = 0; i < 1'000'000; i++) {
            const Hash128 hash = exact(std::to_string(i));
            a.push_back(hash.a);
            b.push_back(hash.b);
        }
        for (auto* half : {&a, &b}) {
            std::sort(half->begin(), half->end());
            CHECK(std::adjacent_find(half->begin(), half->end()) == half->end());
        }
    }

    TEST_CASE("13-grams: white space and punctuation do not count, case and order do") {
        CHECK(similarity(thirteen, "a1, a2\n\n(a3) a4 - a5 a6 a7 a8... a9 a10 *** a11 \"a12\" a1\xe2\x80\xa6" "3!") == 1);
        CHECK(similarity(thirteen, "A1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12 a13") < 0.05);
        CHECK(similarity(thirteen, "a2 a1 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12 a13") < 0.05);
        CHECK(similarity(thirteen, "a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12a13") == 0);
        CHECK(similarity(words(500, 1), words(500, 2)) < 0.05);
        // Twice the same text: 13-grams across the seam are 12 more.
        CHECK(similarity(words(500, 1), words(500, 1) + words(500, 1)) == doctest::Approx(488.0 / 500).epsilon(0.06));
    }

    TEST_CASE("fewer than 13 words have no 13-grams and are like nothing") {
        const std::string twelve = thirteen.substr(0, thirteen.rfind(' '));
        CHECK_FALSE(minhash(twelve).any);
        CHECK_FALSE(minhash("").any);
        CHECK(minhash(thirteen).any);
        CHECK(similarity(twelve, twelve) == 0);
        NearDuplicates seen;
        seen.add(minhash(twelve));
        CHECK_FALSE(seen.contains(minhash(twelve), 0.8));
    }

    TEST_CASE("the estimate is unbiased and has the standard error of 256 hash functions") {
        // Of 200 pairs the mean error has a standard deviation of 0.05·s, their spread one of 0.05·s/√2.
        for (const size_t shared : {66u, 120u, 160u, 180u}) {
            const double j = double(shared) / double(400 - shared), expected = std::sqrt(j * (1 - j) / 256);
            CAPTURE(j);
            double sum = 0, squares = 0;
            for (uint64_t n = 0; n < 200; n++) {
                const Pair p = pair_of(shared, 200, n);
                const double error = similarity(p.a, p.b) - j;
                sum += error;
                squares += error * error;
            }
            CHECK(std::abs(sum / 200) < 4 * expected / std::sqrt(200));
            CHECK(std::sqrt(squares / 200) == doctest::Approx(expected).epsilon(0.25));
        }
    }

    TEST_CASE("how many pairs of a known similarity are found") {
        // J = s / (400 - s); probabilities as in near_duplicates.h; 400 pairs each, four standard deviations.
        const struct {
            size_t shared, total;
            double candidates, dropped;
        } cases[] = {{200, 300, 0.118, 0}, {210, 280, 0.418, 0}, {280, 340, 0.850, 0}, {240, 280, 0.966, 0.033}, {240, 270, 0.997, 0.525},
                     {255, 278, 1, 0.985},  {270, 285, 1, 1},     {285, 293, 1, 1}};
        for (const auto& c : cases) {
            CAPTURE(double(c.shared) / double(2 * c.total - c.shared));
            int candidates = 0, dropped = 0;
            for (uint64_t n = 0; n < 400; n++) {
                const Pair p = pair_of(c.shared, c.total, n);
                NearDuplicates seen;
                seen.add(minhash(p.a));
                const MinHash other = minhash(p.b);
                candidates += seen.contains(other, 0);
                dropped += seen.contains(other, 0.8);
            }
            const auto near = [](int found, double p) { return std::abs(found - 400 * p) <= 4 * std::sqrt(400 * p * (1 - p)) + 4; };
            CHECK_MESSAGE(near(candidates, c.candidates), candidates);
            CHECK_MESSAGE(near(dropped, c.dropped), dropped);
        }
    }

    TEST_CASE("many documents: each found again, none mistaken") {
        NearDuplicates seen;
        for (uint64_t n = 0; n < 3000; n++) {
            const MinHash document = minhash(words(40, n));
            CHECK_FALSE(seen.contains(document, 0.8));
            seen.add(document);
        }
        for (uint64_t n = 0; n < 3000; n++) CHECK(seen.contains(minhash(words(40, n)), 0.8));
        for (uint64_t n = 3000; n < 3500; n++) CHECK_FALSE(seen.contains(minhash(words(40, n)), 0.8));
    }

    TEST_CASE("a flood of half-alike documents takes linear time") {
        // 20,000 documents with J = 0.68: most share bands with all others.
        const std::string common = words(200, 0);
        std::vector<MinHash> documents;
        for (uint64_t n = 1; n <= 20000; n++) documents.push_back(minhash(common + words(44, n)));
        NearDuplicates seen;
        const auto start = std::chrono::steady_clock::now();
        for (const MinHash& document : documents) {
            CHECK_FALSE(seen.contains(document, 0.9));
            seen.add(document);
        }
        CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 10);
    }
}
