#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>

#include "../data/indexed_dataset.h"
#include "../kernels/error.h"
#include "temporary_folder.h"

using namespace clover;
using test::TemporaryFolder;
using doctest::Contains;

namespace {

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
    std::string s;
    for (T v : values) s.append(reinterpret_cast<const char*>(&v), sizeof v);
    return s;
}

/// The .idx of documents of 3, 1 and 0 + 2 tokens (the last of two sequences) of u16, byte by byte from the format's table.
std::string good_idx() {
    return std::string("MMIDIDX\0\0", 9) + bytes_of<uint64_t>({1}) + '\x08' + bytes_of<uint64_t>({4, 4}) + bytes_of<int32_t>({3, 1, 0, 2}) +
           bytes_of<int64_t>({0, 6, 8, 8}) + bytes_of<int64_t>({0, 1, 2, 4});
}
std::string good_bin() { return bytes_of<uint16_t>({10, 20, 30, 65535, 1, 2}); }

/// Opens the good pair with .idx changed at `byte`.
template <class T>
void open_changed(const TemporaryFolder& folder, size_t byte, T value) {
    std::string idx = good_idx();
    std::memcpy(&idx[byte], &value, sizeof value);
    folder.file("bad.idx", idx);
    folder.file("bad.bin", good_bin());
    IndexedDataset(folder / "bad");
}

std::vector<int32_t> sequence(const IndexedDataset& data, int64_t i) {
    std::vector<int32_t> tokens(size_t(data.length(i)));
    data.read(i, 0, data.length(i), tokens.data());
    return tokens;
}

/// While it lives, no file can grow beyond `bytes`.
struct FileSizeLimit {
    rlimit before;
    void (*handler)(int);
    explicit FileSizeLimit(rlim_t bytes) {
        handler = ::signal(SIGXFSZ, SIG_IGN);
        ::getrlimit(RLIMIT_FSIZE, &before);
        rlimit limit = before;
        limit.rlim_cur = bytes;
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileSizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before);
        ::signal(SIGXFSZ, handler);
    }
};

}  // namespace

TEST_SUITE("indexed dataset") {
    TEST_CASE("reads Megatron's layout byte by byte") {
        TemporaryFolder folder;
        folder.file("a.idx", good_idx());
        folder.file("a.bin", good_bin());
        const IndexedDataset data(folder / "a");
        CHECK(data.sequence_count() == 4);
        CHECK(data.document_count() == 3);
        CHECK(data.token_count() == 6);
        CHECK(data.dtype_code() == 8);
        for (int64_t d = 0; d < 4; d++) CHECK(data.first_sequence(d) == std::vector<int64_t>{0, 1, 2, 4}[size_t(d)]);
        CHECK(sequence(data, 0) == std::vector<int32_t>{10, 20, 30});
        CHECK(sequence(data, 1) == std::vector<int32_t>{65535});
        CHECK(sequence(data, 2).empty());
        int32_t token = 0;
        data.read(3, 1, 1, &token);
        CHECK(token == 2);
        CHECK(data.largest_token() == 65535);
        CHECK_THROWS_AS(data.read(0, 2, 2, &token), Error);
        CHECK_THROWS_AS(data.read(0, -1, 1, &token), Error);
        CHECK_THROWS_AS(data.read(4, 0, 0, &token), Error);
    }

    TEST_CASE("reads every integer dtype") {
        const std::vector<std::pair<int, std::string>> cases = {
            {1, bytes_of<uint8_t>({5, 200})}, {2, bytes_of<int8_t>({5, 100})},          {3, bytes_of<int16_t>({5, 30000})},
            {8, bytes_of<uint16_t>({5, 65000})}, {4, bytes_of<int32_t>({5, 1000000000})}, {5, bytes_of<int64_t>({5, 2000000000})}};
        const std::vector<int32_t> largest = {200, 100, 30000, 65000, 1000000000, 2000000000};
        TemporaryFolder folder;
        for (size_t i = 0; i < cases.size(); i++) {
            CAPTURE(cases[i].first);
            folder.file("a.idx", std::string("MMIDIDX\0\0", 9) + bytes_of<uint64_t>({1}) + char(cases[i].first) + bytes_of<uint64_t>({1, 2}) +
                                     bytes_of<int32_t>({2}) + bytes_of<int64_t>({0, 0, 1}));
            folder.file("a.bin", cases[i].second);
            const IndexedDataset data(folder / "a");
            CHECK(sequence(data, 0) == std::vector<int32_t>{5, largest[i]});
            CHECK(data.largest_token() == largest[i]);
        }
        folder.file("a.bin", bytes_of<int64_t>({-7, 1}));
        CHECK_THROWS_WITH_AS(IndexedDataset(folder / "a").largest_token(), Contains("a.bin: token id -7, expected 0 or more"), InputError);
    }

    TEST_CASE("a damaged .idx is named with its byte") {
        TemporaryFolder folder;
        const auto check = [&](size_t byte, auto value, const char* message) {
            CAPTURE(byte);
            CHECK_THROWS_WITH_AS(open_changed(folder, byte, value), Contains(message), InputError);
        };
        check(0, uint8_t('X'), "bad.idx: byte 0: does not start with MMIDIDX");
        check(8, uint8_t(1), "bad.idx: byte 0: does not start with MMIDIDX");
        check(9, uint64_t(2), "bad.idx: byte 9: version 2, expected 1");
        check(17, uint8_t(7), "bad.idx: byte 17: dtype code 7 is no integer type");
        check(17, uint8_t(0), "dtype code 0");
        check(17, uint8_t(4), "byte 58: sequence 1 starts at byte 6 of .bin, expected 12");
        check(18, uint64_t(5), "bad.idx: 114 bytes, expected 126");
        check(26, uint64_t(3), "bad.idx: 114 bytes, expected 106");
        check(26, uint64_t(0), "byte 26: a document index of 0 entries");
        // 12 · (4 + 2⁶²) and 8 · (4 + 2⁶¹) are the right sizes modulo 2⁶⁴.
        for (uint64_t n : {uint64_t{7}, 4 + (uint64_t{1} << 62), ~uint64_t{0}}) check(18, n, "byte 18: ");
        for (uint64_t d : {uint64_t{11}, 4 + (uint64_t{1} << 61), ~uint64_t{0}}) check(26, d, "byte 26: a document index of ");
        check(34, int32_t(-3), "byte 34: sequence 0 has length -3");
        check(34, int32_t(2), "byte 58: sequence 1 starts at byte 6 of .bin, expected 4");
        check(46, int32_t(3), "byte 46: sequence 3 ends at byte 14 of .bin, which has only 12");
        check(46, int32_t(1), "bad.bin: 12 bytes, but ");
        check(50, int64_t(2), "byte 50: sequence 0 starts at byte 2 of .bin, expected 0");
        check(82, int64_t(1), "byte 82: the document index starts with 1, expected 0");
        check(98, int64_t(0), "byte 98: the document index falls from 1 to 0");
        check(106, int64_t(3), "byte 106: the document index ends with 3, expected the number of sequences, 4");
        check(106, int64_t(5), "byte 106: the document index ends with 5");
    }

    TEST_CASE("cut or grown files, foreign formats, missing files") {
        TemporaryFolder folder;
        folder.file("a.bin", good_bin());
        const std::string idx = good_idx();
        for (size_t size = 0; size < idx.size(); size++) {
            folder.file("a.idx", idx.substr(0, size));
            CHECK_THROWS_AS(IndexedDataset(folder / "a"), InputError);
        }
        folder.file("a.idx", idx + "x");
        CHECK_THROWS_WITH_AS(IndexedDataset(folder / "a"), Contains("115 bytes, expected 114"), InputError);
        folder.file("a.idx", std::string("TNTIDX\0\0", 8) + std::string(40, '\0'));
        CHECK_THROWS_WITH_AS(IndexedDataset(folder / "a"), Contains("\"lazy\" or \"cached\" format"), InputError);
        folder.file("a.idx", idx);
        folder.file("a.bin", good_bin() + "x");
        CHECK_THROWS_WITH_AS(IndexedDataset(folder / "a"), Contains("a.bin: 13 bytes"), InputError);
        CHECK_THROWS_WITH_AS(IndexedDataset(folder / "none"), Contains("none.bin: No such file or directory"), InputError);
        CHECK_THROWS_WITH_AS(MappedFile(folder.path.string()), Contains("not a regular file"), InputError);
        REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
        CHECK_THROWS_WITH_AS(MappedFile(folder / "pipe"), Contains("not a regular file"), InputError);
        CHECK(MappedFile(folder.file("empty", "")).size() == 0);
    }

    TEST_CASE("writes Megatron's layout byte by byte") {
        TemporaryFolder folder;
        IndexedDatasetWriter writer(folder / "w", 65499);
        writer.add_document({1, 2, 500});
        writer.add_document({});
        writer.add_document({65498});
        CHECK(writer.document_count() == 3);
        CHECK(writer.token_count() == 4);
        writer.finish();
        CHECK(folder.contents("w.bin") == bytes_of<uint16_t>({1, 2, 500, 65498}));
        CHECK(folder.contents("w.idx") == std::string("MMIDIDX\0\0", 9) + bytes_of<uint64_t>({1}) + '\x08' + bytes_of<uint64_t>({3, 4}) +
                                              bytes_of<int32_t>({3, 0, 1}) + bytes_of<int64_t>({0, 6, 6}) + bytes_of<int64_t>({0, 1, 2, 3}));
        CHECK(folder.file_count() == 2);
        CHECK_THROWS_AS(writer.add_document({65499}), Error);
        CHECK_THROWS_AS(writer.add_document({-1}), Error);
    }

    TEST_CASE("Megatron-core's own files (golden/make_indexed_dataset.py): read, written and merged to the same bytes") {
        const std::string golden = (std::filesystem::path(__FILE__).parent_path() / "golden/megatron-").string();
        const auto bytes = [](const std::string& path) {
            std::ifstream in(path, std::ios::binary);
            return std::string(std::istreambuf_iterator<char>(in), {});
        };
        TemporaryFolder folder;
        IndexedDatasetWriter writer(folder / "a", 65499);
        writer.add_document({104, 105, 256});
        writer.add_document({0, 255, 65498, 256});
        writer.add_document({256});
        writer.finish();
        CHECK(folder.contents("a.bin") == bytes(golden + "a.bin"));
        CHECK(folder.contents("a.idx") == bytes(golden + "a.idx"));
        merge_token_files({golden + "a", golden + "b"}, folder / "merged");
        CHECK(folder.contents("merged.bin") == bytes(golden + "merged.bin"));
        CHECK(folder.contents("merged.idx") == bytes(golden + "merged.idx"));
        const IndexedDataset b(golden + "b");
        CHECK(b.document_count() == 3);
        CHECK(b.sequence_count() == 5);
        CHECK(b.first_sequence(1) == 2);
        CHECK(b.first_sequence(2) == 2);
        CHECK(sequence(b, 0) == std::vector<int32_t>{1, 2});
        CHECK(sequence(b, 2) == std::vector<int32_t>{4, 5, 6});
        CHECK(sequence(b, 3).empty());
    }

    TEST_CASE("modes of multimodal files: all text is read, others are refused by name") {
        TemporaryFolder folder;
        folder.file("a.bin", good_bin());
        folder.file("a.idx", good_idx() + std::string(4, '\0'));
        CHECK(IndexedDataset(folder / "a").sequence_count() == 4);
        folder.file("a.idx", good_idx() + std::string("\0\0\1\0", 4));
        CHECK_THROWS_WITH_AS(IndexedDataset(folder / "a"), Contains("a.idx: byte 116: sequence 2 has mode 1; multimodal data is not supported"), InputError);
    }

    TEST_CASE("a vocabulary of 65500 takes i32; what was written comes back, across the writer's buffer") {
        TemporaryFolder folder;
        std::vector<int32_t> large;
        for (int i = 0; i < 300000; i++) large.push_back(i * 7 % 65500);
        {
            IndexedDatasetWriter writer(folder / "w", 65500);
            writer.add_document(large);
            writer.add_document({65499});
            writer.finish();
        }
        const IndexedDataset data(folder / "w");
        CHECK(data.dtype_code() == 4);
        CHECK(data.document_count() == 2);
        CHECK(sequence(data, 0) == large);
        CHECK(sequence(data, 1) == std::vector<int32_t>{65499});
    }

    TEST_CASE("nothing at all can be written and read") {
        TemporaryFolder folder;
        IndexedDatasetWriter(folder / "w", 257).finish();
        const IndexedDataset data(folder / "w");
        CHECK(data.document_count() == 0);
        CHECK(data.token_count() == 0);
        CHECK(data.largest_token() == -1);
    }

    TEST_CASE("an unfinished writer leaves what stood there before") {
        TemporaryFolder folder;
        {
            IndexedDatasetWriter first(folder / "w", 257);
            first.add_document({1, 2});
            first.finish();
        }
        {
            IndexedDatasetWriter second(folder / "w", 257), third(folder / "w", 257);
            second.add_document({3});
            CHECK(folder.file_count() == 6);
        }
        CHECK(folder.file_count() == 2);
        CHECK(sequence(IndexedDataset(folder / "w"), 0) == std::vector<int32_t>{1, 2});
        IndexedDatasetWriter fourth(folder / "w", 257);
        fourth.add_document({4});
        fourth.finish();
        CHECK(sequence(IndexedDataset(folder / "w"), 0) == std::vector<int32_t>{4});
    }

    TEST_CASE("a full disk is an Error with path and reason and leaves nothing behind") {
        TemporaryFolder folder;
        std::string message;
        {
            FileSizeLimit limit(4096);
            try {
                IndexedDatasetWriter writer(folder / "w", 257);
                writer.add_document(std::vector<int32_t>(5000, 1));
                writer.finish();
            } catch (const InputError&) {
            } catch (const Error& e) {
                message = e.what();
            }
        }
        CHECK(message == "cannot write " + folder / "w.bin" + ": File too large");
        CHECK(folder.file_count() == 0);
        CHECK_THROWS_WITH_AS(IndexedDatasetWriter(folder / "no/w", 257), Contains("no/w.bin: No such file or directory"), Error);
    }

    TEST_CASE("where .idx cannot take its name, no .bin stays") {
        TemporaryFolder folder;
        std::filesystem::create_directories(folder / "w.idx/x");
        {
            IndexedDatasetWriter writer(folder / "w", 257);
            writer.add_document({1});
            CHECK_THROWS_WITH_AS(writer.finish(), Contains("w.idx: Is a directory"), Error);
        }
        CHECK(folder.file_count() == 0);
    }
}
