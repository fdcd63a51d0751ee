#include <doctest/doctest.h>

#include "../data/tokenizer.h"
#include "../kernels/error.h"

using namespace clover;

TEST_SUITE("tokenizer") {
    TEST_CASE("bytes: ids are the bytes of UTF-8, 256 ends a document") {
        const auto tokenizer = load_tokenizer("bytes");
        CHECK(tokenizer->vocab_size() == 257);
        CHECK(tokenizer->end_of_document() == 256);
        CHECK(tokenizer->fingerprint() == "bytes");
        std::vector<int32_t> ids = {7};
        tokenizer->encode("A\xc3\xa9\n", ids);  // é is C3 A9
        CHECK(ids == std::vector<int32_t>{7, 65, 195, 169, 10});
        CHECK(tokenizer->token_bytes(256).empty());
        CHECK_THROWS_AS(tokenizer->token_bytes(257), Error);
        CHECK_THROWS_AS(tokenizer->token_bytes(-1), Error);
    }

    TEST_CASE("bytes: every byte comes back, valid UTF-8 or not, zero too") {
        const auto tokenizer = load_tokenizer("bytes");
        std::string all;
        for (int i = 0; i < 256; i++) all += char(i);
        std::vector<int32_t> ids;
        tokenizer->encode(all, ids);
        REQUIRE(ids.size() == 256);
        for (int i = 0; i < 256; i++) CHECK(ids[size_t(i)] == i);
        ids.push_back(256);
        CHECK(tokenizer->decode(ids) == all);
        ids.clear();
        tokenizer->encode("", ids);
        CHECK(ids.empty());
    }

    TEST_CASE("bytes: a decoder holds back half a character until the rest comes or the text ends") {
        const auto tokenizer = load_tokenizer("bytes");
        const auto decoder = tokenizer->decoder();
        std::string text;
        decoder->push(0xe4, text);  // U+4E2D is E4 B8 AD
        decoder->push(0xb8, text);
        CHECK(text.empty());
        decoder->push(0xad, text);
        CHECK(text == "\xe4\xb8\xad");
        decoder->push(0xff, text);  // begins no character: nothing to wait for
        CHECK(text == "\xe4\xb8\xad\xff");
        decoder->push(0xf0, text);
        decoder->push(256, text);
        decoder->finish(text);
        CHECK(text == "\xe4\xb8\xad\xff\xf0");
        CHECK(tokenizer->decode({65, 256}, true) == "A<eod>");
    }

    TEST_CASE("an unknown tokenizer is named, and what is supported") {
        CHECK_THROWS_WITH_AS(load_tokenizer("gpt2"), doctest::Contains("\"gpt2\" is not known; expected \"bytes\" or the path"), InputError);
    }
}
