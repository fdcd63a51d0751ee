#include <doctest/doctest.h>

#include "../data/protobuf.h"
#include "../kernels/error.h"

using namespace clover;
using namespace std::string_literals;
using doctest::Contains;

namespace {

const std::string origin = "some.model";

void read_all(std::string_view message) {
    for (ProtobufReader reader(message, 0, origin); reader.next();) {}
}

}  // namespace

TEST_SUITE("protobuf") {
    TEST_CASE("the examples of the encoding's documentation") {
        // protobuf.dev/programming-guides/encoding: field 1 = 150; field 2 = "testing"; field 3 = a message with field 1 = 150.
        const std::string message = "\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01"s;
        ProtobufReader reader(message, 100, origin);
        REQUIRE(reader.next());
        CHECK(reader.field() == 1);
        CHECK(reader.varint() == 150);
        CHECK_THROWS_WITH_AS(reader.bytes(), Contains("some.model: byte 100: field 1 has wire type 0, expected 2"), InputError);
        REQUIRE(reader.next());
        CHECK(reader.field() == 2);
        CHECK(reader.bytes() == "testing");
        CHECK(reader.offset() == 105);
        REQUIRE(reader.next());
        ProtobufReader inner(reader.bytes(), reader.offset(), origin);
        REQUIRE(inner.next());
        CHECK(inner.varint() == 150);
        CHECK(inner.offset() == 115);
        CHECK(!inner.next());
        CHECK(!reader.next());
    }

    TEST_CASE("numbers of 4, 8 and 10 bytes, large field numbers") {
        // -1 as int32 takes ten bytes; 1.5f is 3f c0 00 00; field 536870911 is the largest.
        const std::string message = "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x15\x00\x00\xc0\x3f\x19"s + "12345678" + "\xf8\xff\xff\xff\x0f\x01"s;
        ProtobufReader reader(message, 0, origin);
        REQUIRE(reader.next());
        CHECK(int64_t(reader.varint()) == -1);
        REQUIRE(reader.next());
        CHECK(reader.float32() == 1.5f);
        REQUIRE(reader.next());
        CHECK(reader.field() == 3);
        REQUIRE(reader.next());
        CHECK(reader.field() == 536870911);
        CHECK(reader.boolean());
        CHECK(!reader.next());
    }

    TEST_CASE("damaged messages are refused with the byte") {
        CHECK_THROWS_WITH_AS(read_all("\x08\x96"s), Contains("byte 1: a number is cut short"), InputError);
        CHECK_THROWS_WITH_AS(read_all("\x08"s + std::string(10, '\x80') + "\x01"s), Contains("byte 1: a number of more than 10 bytes"), InputError);
        CHECK_THROWS_WITH_AS(read_all("\x08\x01\x12\x05test"s), Contains("byte 2: field 2 has 5 bytes, but its message only 4 more"), InputError);
        CHECK_THROWS_WITH_AS(read_all("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s), Contains("has 18446744073709551615 bytes"), InputError);
        CHECK_THROWS_WITH_AS(read_all("\x15\x01\x02"s), Contains("field 2 has 4 bytes, but its message only 2 more"), InputError);
        CHECK_THROWS_WITH_AS(read_all("\x00\x01"s), Contains("a field with the number 0"), InputError);
        CHECK_THROWS_WITH_AS(read_all("\x0b\x0c"s), Contains("field 1 has wire type 3"), InputError);
    }
}
