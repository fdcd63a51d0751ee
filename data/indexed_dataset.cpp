#include "indexed_dataset.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <type_traits>

#include "../kernels/error.h"

namespace clover {
namespace {

// Both files are little endian and are read and written as they lie in memory.
static_assert(std::endian::native == std::endian::little);

constexpr char magic[10] = "MMIDIDX\0";  // 9 bytes: the text and two zeros, the second from the literal's end
constexpr size_t header_bytes = 34;
constexpr size_t flush_bytes = size_t{1} << 20;

/// The arrays of .idx are not aligned, so values are copied out.
template <class T>
T value_at(const unsigned char* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

template <class T>
std::vector<T> array_at(const unsigned char* p, size_t count) {
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), p, count * sizeof(T));
    return values;
}

int64_t size_of_code(int code) {
    switch (code) {
        case 1: case 2: return 1;
        case 3: case 8: return 2;
        case 4: return 4;
        case 5: return 8;
        default: return 0;
    }
}

/// Calls f with a null pointer of the C++ type of a dtype code that size_of_code knows.
template <class F>
auto with_type(int code, F f) {
    switch (code) {
        case 1: return f(static_cast<uint8_t*>(nullptr));
        case 2: return f(static_cast<int8_t*>(nullptr));
        case 3: return f(static_cast<int16_t*>(nullptr));
        case 4: return f(static_cast<int32_t*>(nullptr));
        case 5: return f(static_cast<int64_t*>(nullptr));
        default: return f(static_cast<uint16_t*>(nullptr));
    }
}

struct Header {
    int code = 0;
    int64_t item_size = 0;
    size_t sequences = 0, document_entries = 0;
    size_t lengths_at() const { return header_bytes; }
    size_t offsets_at() const { return header_bytes + 4 * sequences; }
    size_t documents_at() const { return header_bytes + 12 * sequences; }
};

/// `make_again` closes every message: a damaged token file can only be written anew.
constexpr const char* make_again = "; write the token file again";

Header read_header(const MappedFile& file, const std::string& path) {
    require(file.size() >= header_bytes, path, ": ", file.size(), " bytes, but the header of an .idx file takes ", header_bytes,
            make_again);
    const unsigned char* p = file.data();
    require(std::memcmp(p, "TNTIDX\0\0", 8) != 0, path, ": byte 0: Megatron's old \"lazy\" or \"cached\" format; write it again as \"mmap\"");
    require(std::memcmp(p, magic, 9) == 0, path, ": byte 0: does not start with MMIDIDX, so it is no Megatron .idx file", make_again);
    const uint64_t version = value_at<uint64_t>(p + 9);
    require(version == 1, path, ": byte 9: version ", version, ", expected 1", make_again);
    Header header;
    header.code = p[17];
    header.item_size = size_of_code(header.code);
    require(header.item_size != 0, path, ": byte 17: dtype code ", header.code,
            " is no integer type, expected 1 (u8), 2 (i8), 3 (i16), 4 (i32), 5 (i64) or 8 (u16)", make_again);
    // Each count is held against the file's size before it enters a product, so nothing overflows.
    const uint64_t n = value_at<uint64_t>(p + 18), d = value_at<uint64_t>(p + 26), room = file.size() - header_bytes;
    require(n <= room / 12, path, ": byte 18: ", n, " sequences take 12 bytes each, but only ", room, " bytes follow the header", make_again);
    require(d >= 1, path, ": byte 26: a document index of 0 entries, expected documents + 1", make_again);
    require(d <= room / 8, path, ": byte 26: a document index of ", d, " entries takes 8 bytes each, but only ", room,
            " bytes follow the header", make_again);
    require(12 * n + 8 * d == room, path, ": ", file.size(), " bytes, expected ", header_bytes + 12 * n + 8 * d, " for ", n,
            " sequences and a document index of ", d, " entries", make_again);
    header.sequences = n;
    header.document_entries = d;
    return header;
}

/// Offsets are the prefix sums of the lengths in bytes, within .bin (so that the sum cannot overflow). Returns the number of tokens.
int64_t check_sequences(const std::vector<int32_t>& lengths, const std::vector<int64_t>& offsets, const Header& header, size_t bin_bytes,
                        const std::string& path) {
    int64_t bytes = 0;
    for (size_t i = 0; i < lengths.size(); i++) {
        require(lengths[i] >= 0, path, ": byte ", header.lengths_at() + 4 * i, ": sequence ", i, " has length ", lengths[i],
                ", expected 0 or more", make_again);
        require(offsets[i] == bytes, path, ": byte ", header.offsets_at() + 8 * i, ": sequence ", i, " starts at byte ", offsets[i],
                " of .bin, expected ", bytes, make_again);
        bytes += lengths[i] * header.item_size;
        require(size_t(bytes) <= bin_bytes, path, ": byte ", header.lengths_at() + 4 * i, ": sequence ", i, " ends at byte ", bytes,
                " of .bin, which has only ", bin_bytes, "; the two do not belong together", make_again);
    }
    return bytes / header.item_size;
}

void check_documents(const std::vector<int64_t>& documents, const Header& header, const std::string& path) {
    require(documents.front() == 0, path, ": byte ", header.documents_at(), ": the document index starts with ", documents.front(),
            ", expected 0", make_again);
    for (size_t i = 1; i < documents.size(); i++)
        require(documents[i] >= documents[i - 1], path, ": byte ", header.documents_at() + 8 * i, ": the document index falls from ",
                documents[i - 1], " to ", documents[i], ", expected it to ascend", make_again);
    require(documents.back() == int64_t(header.sequences), path, ": byte ", header.documents_at() + 8 * (documents.size() - 1),
            ": the document index ends with ", documents.back(), ", expected the number of sequences, ", header.sequences, make_again);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
    // O_NONBLOCK: opening a named pipe must fail below, not wait for a writer.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    require(fd >= 0, "cannot open ", path, ": ", std::strerror(errno));
    struct stat info;
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        ::close(fd);
        throw InputError(text("cannot open ", path, ": not a regular file"));
    }
    void* p = nullptr;  // mmap refuses length 0
    if (info.st_size > 0) p = ::mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
    const int reason = errno;
    ::close(fd);
    require(p != MAP_FAILED, "cannot map ", path, ": ", std::strerror(reason));
    data_ = static_cast<const unsigned char*>(p);
    size_ = size_t(info.st_size);
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<unsigned char*>(data_), size_);
}

void MappedFile::release(size_t first, size_t count) const {
    const size_t page = size_t(::sysconf(_SC_PAGESIZE)), begin = first / page * page;
    if (count > 0) ::madvise(const_cast<unsigned char*>(data_) + begin, first + count - begin, MADV_DONTNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : data_(other.data_), size_(other.size_) {
    other.data_ = nullptr;
    other.size_ = 0;
}

IndexedDataset::IndexedDataset(const std::string& prefix) : prefix_(prefix), bin_(prefix + ".bin") {
    const std::string path = prefix + ".idx";
    const MappedFile idx(path);
    const Header header = read_header(idx, path);
    code_ = header.code;
    item_size_ = header.item_size;
    lengths_ = array_at<int32_t>(idx.data() + header.lengths_at(), header.sequences);
    offsets_ = array_at<int64_t>(idx.data() + header.offsets_at(), header.sequences);
    documents_ = array_at<int64_t>(idx.data() + header.documents_at(), header.document_entries);
    token_count_ = check_sequences(lengths_, offsets_, header, bin_.size(), path);
    check_documents(documents_, header, path);
    require(uint64_t(token_count_) * uint64_t(item_size_) == bin_.size(), prefix, ".bin: ", bin_.size(), " bytes, but ", path, " describes ",
            token_count_, " tokens of ", item_size_, " bytes, ", token_count_ * item_size_, " in all; the two do not belong together",
            make_again);
}

void IndexedDataset::read(int64_t sequence, int64_t first, int64_t n, int32_t* out) const {
    CLOVER_CHECK(sequence >= 0 && sequence < sequence_count(), "sequence ", sequence, " of ", sequence_count());
    CLOVER_CHECK(first >= 0 && n >= 0 && first <= length(sequence) - n, "tokens [", first, ", ", first, " + ", n, ") of ", length(sequence));
    const unsigned char* from = bin_.data() + offsets_[size_t(sequence)] + first * item_size_;
    with_type(code_, [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        for (int64_t i = 0; i < n; i++) out[i] = int32_t(value_at<T>(from + size_t(i) * sizeof(T)));
    });
}

int64_t IndexedDataset::largest_token() const {
    return with_type(code_, [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        T largest = 0, smallest = 0;
        for (int64_t i = 0; i < token_count_; i++) {
            const T token = value_at<T>(bin_.data() + size_t(i) * sizeof(T));
            largest = std::max(largest, token);
            smallest = std::min(smallest, token);
        }
        require(smallest >= 0, prefix_, ".bin: token id ", int64_t(smallest), ", expected 0 or more", make_again);
        return token_count_ == 0 ? int64_t{-1} : int64_t(largest);
    });
}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, int64_t vocab)
    : prefix_(prefix), vocab_(vocab), code_(vocab < 65500 ? 8 : 4), bin_(prefix + ".bin"), idx_(prefix + ".idx") {
    CLOVER_CHECK(vocab >= 1 && vocab <= std::numeric_limits<int32_t>::max(), "vocab ", vocab);
    buffer_.reserve(flush_bytes);
}

void IndexedDatasetWriter::add_document(const std::vector<int32_t>& tokens) {
    require(tokens.size() <= size_t(std::numeric_limits<int32_t>::max()), prefix_, ": document ", document_count(), " has ", tokens.size(),
            " tokens, at most ", std::numeric_limits<int32_t>::max(), " fit; cut it into several");
    with_type(code_, [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        for (int32_t token : tokens) {
            CLOVER_CHECK(token >= 0 && token < vocab_, "token ", token, ", vocabulary ", vocab_);
            const T value = T(token);
            const unsigned char* p = reinterpret_cast<const unsigned char*>(&value);
            buffer_.insert(buffer_.end(), p, p + sizeof value);
            if (buffer_.size() >= flush_bytes) flush();
        }
    });
    lengths_.push_back(int32_t(tokens.size()));
    token_count_ += int64_t(tokens.size());
}

void IndexedDatasetWriter::flush() {
    bin_.write(buffer_.data(), buffer_.size());
    buffer_.clear();
}

void IndexedDatasetWriter::write_index() {
    const uint64_t version = 1, n = lengths_.size(), d = n + 1;
    const uint8_t code = uint8_t(code_);
    idx_.write(magic, 9);
    idx_.write(&version, 8);
    idx_.write(&code, 1);
    idx_.write(&n, 8);
    idx_.write(&d, 8);
    idx_.write(lengths_.data(), 4 * n);
    std::vector<int64_t> values(d);  // the offsets, then the document index
    for (size_t i = 0; i < n; i++) values[i + 1] = values[i] + lengths_[i] * size_of_code(code_);
    idx_.write(values.data(), 8 * n);
    for (size_t i = 0; i < d; i++) values[i] = int64_t(i);
    idx_.write(values.data(), 8 * d);
}

void IndexedDatasetWriter::finish() {
    flush();
    write_index();
    bin_.sync();
    idx_.sync();
    const std::string bin = prefix_ + ".bin", idx = prefix_ + ".idx";
    if (::unlink(idx.c_str()) == 0)
        sync_folder_of(idx);
    else if (errno != ENOENT)
        throw Error(text("cannot replace ", idx, ": ", std::strerror(errno)));
    bin_.commit();
    try {
        idx_.commit();
    } catch (...) {
        ::unlink(bin.c_str());
        throw;
    }
    sync_folder_of(idx);
}

}  // namespace clover
