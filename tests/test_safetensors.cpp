// safetensors: the same bytes as the reference implementation writes, and refusal of everything that is not such a file.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <zlib.h>

#include <cstring>

#include "../kernels/error.h"
#include "../model/safetensors.h"
#include "temporary_folder.h"

using namespace clover;
using test::TemporaryFolder;

namespace {

/// A file's bytes: length of the header, header, data.
std::string file_of(const std::string& header, const std::string& data = "") {
    std::string bytes;
    for (int i = 0; i < 8; i++) bytes += char(uint64_t(header.size()) >> 8 * i);
    return bytes + header + data;
}

/// The message with which these bytes are refused; names the file, has one line.
std::string refusal(const std::string& bytes) {
    const TemporaryFolder folder;
    const std::string path = folder.file("hostile.safetensors", bytes);
    try {
        const SafetensorsFile file(path);
    } catch (const InputError& e) {
        const std::string message = e.what();
        CHECK(message.find('\n') == std::string::npos);
        CHECK(message.find(path) != std::string::npos);
        CHECK(message.size() < 600);
        return message;
    }
    FAIL("accepted");
    return "";
}

void check_refused(const std::string& bytes, const std::string& part) {
    const std::string message = refusal(bytes);
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
}

// Python's safetensors 0.8.0:
//   save_file({"b.bf16": tensor([[1.5, -2, 0.0078125]], bfloat16), "a.f32": arange(6, float32).reshape(2, 3) / 4, "scalar": tensor(7),
//              "empty": zeros(0, 4), "flags": tensor([1, 2, 255], uint8)}, path, metadata={"format": "pt"})
const std::string reference_header =
    "{\"__metadata__\":{\"format\":\"pt\"},\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
    "\"a.f32\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},\"empty\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[32,32]},"
    "\"b.bf16\":{\"dtype\":\"BF16\",\"shape\":[1,3],\"data_offsets\":[32,38]},\"flags\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[38,41]}}     ";
const std::string reference_data("\x07\0\0\0\0\0\0\0" "\0\0\0\0\0\0\x80>\0\0\0?\0\0@?\0\0\x80?\0\0\xa0?" "\xc0?\0\xc0\0<" "\x01\x02\xff", 41);

const std::vector<SafetensorsEntry> reference_entries = {
    {"scalar", "I64", {}}, {"a.f32", "F32", {2, 3}}, {"empty", "F32", {0, 4}}, {"b.bf16", "BF16", {1, 3}}, {"flags", "U8", {3}}};

/// A header of one tensor.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"t\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}

TEST_SUITE_BEGIN("safetensors");

TEST_CASE("reads a file of the reference implementation") {
    const TemporaryFolder folder;
    const SafetensorsFile file(folder.file("reference.safetensors", file_of(reference_header, reference_data)));
    CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
    REQUIRE(file.entries().size() == 5);
    for (size_t i = 0; i < 5; i++) {
        CHECK(file.entries()[i].name == reference_entries[i].name);
        CHECK(file.entries()[i].dtype == reference_entries[i].dtype);
        CHECK(file.entries()[i].shape == reference_entries[i].shape);
    }
    float values[6];
    std::memcpy(values, file.data(file.at("a.f32")), sizeof values);
    for (int i = 0; i < 6; i++) CHECK(values[i] == float(i) / 4);
    const SafetensorsEntry& flags = file.at("flags");
    CHECK(flags.end - flags.begin == 3);
    CHECK(file.data(flags)[2] == 255);
    CHECK(file.find("nothing") == nullptr);
    CHECK_THROWS_WITH_AS(file.at("nothing"), doctest::Contains("no tensor \"nothing\""), InputError);
}

TEST_CASE("writes the bytes of the reference implementation and returns their CRC-32") {
    const TemporaryFolder folder;
    SafetensorsWriter writer(folder / "ours.safetensors", reference_entries, {{"format", "pt"}});
    writer.write(reference_data.data(), 10);
    writer.write(reference_data.data() + 10, 0);
    writer.write(reference_data.data() + 10, 31);
    CHECK(folder.contents("ours.safetensors").empty());
    const uint32_t crc = writer.finish();
    const std::string bytes = folder.contents("ours.safetensors");
    CHECK(bytes == file_of(reference_header, reference_data));
    CHECK(crc == crc32(0, reinterpret_cast<const unsigned char*>(bytes.data()), uInt(bytes.size())));
    CHECK(folder.file_count() == 1);
}

TEST_CASE("no tensors, and names with quotes and newlines") {
    const TemporaryFolder folder;
    SafetensorsWriter(folder / "empty", {}, {}).finish();
    CHECK(SafetensorsFile(folder / "empty").entries().empty());
    CHECK(SafetensorsFile(folder.file("minimal", file_of("{}"))).entries().empty());
    const std::string odd = "a\"b\\c\nd é";
    SafetensorsWriter writer(folder / "odd", {{odd, "U8", {1}}}, {{odd, odd}});
    writer.write("x", 1);
    writer.finish();
    const SafetensorsFile file(folder / "odd");
    CHECK(*file.data(file.at(odd)) == 'x');
    CHECK(file.metadata().at(odd) == odd);
}

TEST_CASE("a write of several blocks") {
    const TemporaryFolder folder;
    std::string data((3 << 20) + 5, '\0');
    for (size_t i = 0; i < data.size(); i++) data[i] = char(i * 2654435761u >> 13);
    SafetensorsWriter writer(folder / "large", {{"t", "U8", {int64_t(data.size())}}}, {});
    writer.write(data.data(), data.size());
    writer.finish();
    const SafetensorsFile file(folder / "large");
    CHECK(std::memcmp(file.data(file.at("t")), data.data(), data.size()) == 0);
}

TEST_CASE("a tensor with every dtype, in a file whose tensors are listed out of order") {
    const TemporaryFolder folder;
    uint64_t end = 0;
    std::string header;
    const std::map<std::string, int> sizes = {{"BOOL", 1}, {"U8", 1}, {"I8", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U16", 2}, {"I16", 2}, {"F16", 2},
                                              {"BF16", 2}, {"U32", 4}, {"I32", 4}, {"F32", 4}, {"U64", 8}, {"I64", 8}, {"F64", 8}};
    for (const auto& [dtype, size] : sizes) {
        const uint64_t begin = end;
        end += 3 * uint64_t(size);
        header = text("\"", dtype, "\":{\"shape\":[3],\"data_offsets\":[", begin, ",", end, "],\"dtype\":\"", dtype, "\"}",
                      header.empty() ? "" : ",", header);
    }
    const SafetensorsFile file(folder.file("dtypes", file_of("{" + header + "}", std::string(end, '\0'))));
    CHECK(file.entries().size() == sizes.size());
    CHECK(file.entries().front().begin == 0);
    CHECK(file.entries().back().end == end);
}

TEST_CASE("the length of the header") {
    check_refused("", "0 bytes; a safetensors file begins with");
    check_refused("1234567", "7 bytes");
    check_refused(std::string(8, '\0'), "must begin with '{'");
    check_refused(std::string(8, '\xff') + "{}", "length is given as 18446744073709551615 bytes, but at most 100000000");
    std::string past_the_end = file_of("{}");
    past_the_end[0] = 3;
    check_refused(past_the_end, "the file is too short for it");
    check_refused(file_of("{"), "must begin with");
    check_refused(file_of(" {}"), "must begin with");
    check_refused(file_of("[]"), "must begin with");
}

TEST_CASE("JSON that is none, or nests deeply") {
    check_refused(file_of("{]"), "not JSON at byte 10");
    check_refused(file_of("{\"t\":"), "not JSON");
    check_refused(file_of("{}x"), "not JSON");
    check_refused(file_of("{\"\xff\":{}}"), "not JSON");
    check_refused(file_of("{\"a\nb\":{}}"), "not JSON");
    std::string deep = "{\"t\":";
    for (int i = 0; i < 1'000'000; i++) deep += "{\"t\":";
    check_refused(file_of(deep), "tensor \"t\": unknown field \"t\"");
    check_refused(file_of("{\"t\":" + std::string(1'000'000, '[')), "but has a list at \"t\"");
    check_refused(file_of(one("F32", std::string(1'000'000, '['), "[0,4]")), "tensor \"t\": shape must be a list of integers of at least 0, not a list");
    check_refused(file_of("{\"" + std::string(1'000'000, 'n') + "\":{}}"), "must have dtype, shape");
}

TEST_CASE("fields that are missing, unknown, twice or of the wrong kind") {
    check_refused(file_of("{\"t\":{}}"), "tensor \"t\": must have dtype, shape and two data_offsets");
    check_refused(file_of("{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}"), "must have dtype, shape");
    check_refused(file_of("{\"t\":3}"), "but has 3 at \"t\"");
    check_refused(file_of("{\"t\":null}"), "but has null at \"t\"");
    check_refused(file_of(one("F31", "[1]", "[0,4]"), "1234"), "tensor \"t\": unknown dtype \"F31\"");
    check_refused(file_of("{\"t\":{\"dtype\":4}}"), "tensor \"t\": dtype must be a string");
    check_refused(file_of("{\"t\":{\"dtype\":[\"F32\"]}}"), "tensor \"t\": dtype must be a string");
    check_refused(file_of("{\"t\":{\"kind\":4}}"), "tensor \"t\": unknown field \"kind\"");
    check_refused(file_of("{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}"), "tensor \"t\": dtype is there twice");
    check_refused(file_of(one("F32", "3", "[0,4]")), "shape must be a list");
    check_refused(file_of(one("F32", "\"3\"", "[0,4]")), "shape must be a list");
    check_refused(file_of(one("F32", "[1.5]", "[0,4]")), "not 1.5");
    check_refused(file_of(one("F32", "[true]", "[0,4]")), "not a boolean");
    check_refused(file_of(one("F32", "[1]", "[0]")), "two data_offsets");
    check_refused(file_of(one("F32", "[1]", "[0,4,8]")), "two numbers");
    const std::string t = "\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}";
    check_refused(file_of("{" + t + "," + t + "}", "x"), "tensor \"t\" is there twice");
    check_refused(file_of("{\"__metadata__\":{\"a\":1}}"), "__metadata__ must map strings to strings, but has 1 at \"a\"");
    check_refused(file_of("{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}"), "__metadata__ has \"a\" twice");
    check_refused(file_of("{\"__metadata__\":{},\"__metadata__\":{}}"), "__metadata__ is there twice");
    check_refused(file_of("{\"__metadata__\":\"x\"}"), "but has \"x\" at");
}

TEST_CASE("shapes that are negative or overflow") {
    check_refused(file_of(one("F32", "[-1]", "[0,4]"), "1234"), "tensor \"t\": shape must be a list of integers of at least 0, not -1");
    check_refused(file_of(one("F32", "[9223372036854775808]", "[0,4]"), "1234"), "tensor \"t\": a dimension of 9223372036854775808");
    check_refused(file_of(one("F32", "[99999999999999999999999]", "[0,4]"), "1234"), "tensor \"t\": shape must be");
    check_refused(file_of(one("F32", "[4611686018427387904,4]", "[0,0]")), "more elements than a file can hold");
    check_refused(file_of(one("U8", "[4294967296,4294967296]", "[0,0]")), "more elements than a file can hold");
    check_refused(file_of(one("F32", "[1e2]", "[0,400]"), std::string(400, 'x')), "tensor \"t\": shape must be");
    std::string many = "[1";
    for (int i = 0; i < 100; i++) many += ",1";
    check_refused(file_of(one("U8", many + "]", "[0,1]"), "x"), "more than 64 dimensions");
}

TEST_CASE("offsets that overlap, leave holes, or do not fit shape or file") {
    const auto two = [](const std::string& a, const std::string& b) {
        return "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + a + "},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + b + "}}";
    };
    check_refused(file_of(two("[0,4]", "[2,6]"), "12345678"), "tensor \"b\": begins at byte 2 of the data, but the tensor before it ends at 4 (overlap)");
    check_refused(file_of(two("[0,4]", "[0,4]"), "1234"), "tensor \"b\": begins at byte 0");
    check_refused(file_of(two("[0,4]", "[5,9]"), "123456789"), "tensor \"b\": begins at byte 5 of the data, but the tensor before it ends at 4 (hole)");
    check_refused(file_of(two("[1,5]", "[5,9]"), "123456789"), "tensor \"a\": begins at byte 1");
    check_refused(file_of(two("[4,0]", "[4,8]"), "12345678"), "tensor \"a\": data_offsets [4, 0] do not lie in");
    check_refused(file_of(two("[0,4]", "[4,18446744073709551615]"), "12345678"), "do not lie in the 8 bytes");
    check_refused(file_of(one("F32", "[1]", "[0,8]"), "12345678"), "tensor \"t\": data_offsets hold 8 bytes, but dtype and shape need 4");
    check_refused(file_of(one("F32", "[]", "[0,0]")), "hold 0 bytes, but dtype and shape need 4");
    check_refused(file_of(one("F32", "[1]", "[0,4]"), "12345"), "1 bytes after the last tensor");
    check_refused(file_of("{}", "x"), "1 bytes after the last tensor");
}

TEST_CASE("cut anywhere, a file is refused; with any byte of the header changed it is refused or read, never worse") {
    const TemporaryFolder folder;
    const std::string whole = file_of(reference_header, reference_data);
    for (size_t n = 0; n < whole.size(); n++) refusal(whole.substr(0, n));
    check_refused(whole.substr(0, whole.size() - 1), "tensor \"flags\": data_offsets [38, 41] do not lie in the 40 bytes of data");
    for (size_t i = 0; i < 8 + reference_header.size(); i++)
        for (const char c : {'\0', '"', '9', '{', '\xff'}) {
            std::string changed = whole;
            changed[i] = c;
            try {
                // A new file each time: ext4 syncs one that is cut and written again.
                std::filesystem::remove(folder / "changed");
                const SafetensorsFile file(folder.file("changed", changed));
                for (const SafetensorsEntry& e : file.entries()) CHECK(e.end <= reference_data.size());
            } catch (const InputError&) {
            }
        }
    CHECK_THROWS_WITH_AS(SafetensorsFile(folder / "absent"), doctest::Contains("absent: No such file"), InputError);
}

TEST_CASE("the writer holds its caller to the header") {
    const TemporaryFolder folder;
    {
        SafetensorsWriter writer(folder / "f", {{"t", "U8", {2}}}, {});
        writer.write("x", 1);
        CHECK_THROWS_AS(writer.write("yz", 2), Error);
        CHECK_THROWS_AS(writer.finish(), Error);
    }
    CHECK(folder.file_count() == 0);
    const auto refuses = [&](std::vector<SafetensorsEntry> entries) { CHECK_THROWS_AS(SafetensorsWriter(folder / "f", entries, {}), Error); };
    refuses({{"t", "F31", {1}}});
    refuses({{"t", "F32", {-1}}});
    refuses({{"t", "F32", {INT64_MAX, 2}}});
    refuses({{"t", "F32", {1}}, {"t", "F32", {1}}});
    refuses({{"__metadata__", "F32", {1}}});
    refuses({{"\xff", "F32", {1}}});
    CHECK(folder.file_count() == 0);
    CHECK_THROWS_WITH_AS(SafetensorsWriter(folder / "no/f", {}, {}), doctest::Contains("no/f: No such file or directory"), Error);
}

TEST_CASE("a full disk: Error with path and reason, and nothing left") {
    const TemporaryFolder folder;
    struct rlimit before;
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    const struct rlimit low = {100'000, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &low);
    const std::string data(150'000, 'x');
    std::string message;
    try {
        SafetensorsWriter writer(folder / "f", {{"t", "U8", {150'000}}}, {});
        writer.write(data.data(), data.size());
    } catch (const InputError&) {
    } catch (const Error& e) {
        message = e.what();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    CHECK(message == "cannot write " + (folder / "f") + ": File too large");
    CHECK(folder.file_count() == 0);
}

TEST_SUITE_END();

}  // namespace
