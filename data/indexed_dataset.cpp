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
#include <utility>

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
    const bool modes = 13 * n + 8 * d == room && n > 0;
    require(12 * n + 8 * d == room || modes, path, ": ", file.size(), " bytes, expected ", header_bytes + 12 * n + 8 * d, " for ", n,
            " sequences and a document index of ", d, " entries", make_again);
    const unsigned char* mode = p + header_bytes + 12 * n + 8 * d;
    for (size_t i = 0; modes && i < n; i++)
        require(mode[i] == 0, path, ": byte ", mode + i - p, ": sequence ", i, " has mode ", int(mode[i]), "; multimodal data is not supported, only text (mode 0)");
    header.sequences = n;
    header.document_entries = d;
    return header;
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

IndexedDataset::IndexedDataset(const std::string& prefix) : prefix_(prefix), bin_(prefix + ".bin"), idx_(prefix + ".idx") {
    const std::string path = prefix + ".idx";
    const Header header = read_header(idx_, path);
    code_ = header.code;
    item_size_ = header.item_size;
    sequences_ = int64_t(header.sequences);
    document_entries_ = int64_t(header.document_entries);
    token_count_ = check_sequences(path);
    check_documents(path);
    require(uint64_t(token_count_) * uint64_t(item_size_) == bin_.size(), prefix, ".bin: ", bin_.size(), " bytes, but ", path, " describes ",
            token_count_, " tokens of ", item_size_, " bytes, ", token_count_ * item_size_, " in all; the two do not belong together",
            make_again);
    idx_.release(0, idx_.size());
}

/// Offsets are the prefix sums of the lengths in bytes, within .bin (so that the sum cannot overflow). Returns the number of tokens.
int64_t IndexedDataset::check_sequences(const std::string& path) const {
    int64_t bytes = 0;
    for (int64_t i = 0; i < sequences_; i++) {
        const int64_t n = length(i);
        require(n >= 0, path, ": byte ", 34 + 4 * i, ": sequence ", i, " has length ", n, ", expected 0 or more", make_again);
        require(offset(i) == bytes, path, ": byte ", 34 + 4 * sequences_ + 8 * i, ": sequence ", i, " starts at byte ", offset(i), " of .bin, expected ", bytes,
                make_again);
        bytes += n * item_size_;
        require(size_t(bytes) <= bin_.size(), path, ": byte ", 34 + 4 * i, ": sequence ", i, " ends at byte ", bytes, " of .bin, which has only ", bin_.size(),
                "; the two do not belong together", make_again);
    }
    return bytes / item_size_;
}

void IndexedDataset::check_documents(const std::string& path) const {
    const int64_t begin = 34 + 12 * sequences_, last = document_entries_ - 1;
    require(first_sequence(0) == 0, path, ": byte ", begin, ": the document index starts with ", first_sequence(0), ", expected 0", make_again);
    for (int64_t i = 1; i <= last; i++)
        require(first_sequence(i) >= first_sequence(i - 1), path, ": byte ", begin + 8 * i, ": the document index falls from ", first_sequence(i - 1), " to ",
                first_sequence(i), ", expected it to ascend", make_again);
    require(first_sequence(last) == sequences_, path, ": byte ", begin + 8 * last, ": the document index ends with ", first_sequence(last),
            ", expected the number of sequences, ", sequences_, make_again);
}

void IndexedDataset::read(int64_t sequence, int64_t first, int64_t n, int32_t* out) const {
    CLOVER_CHECK(sequence >= 0 && sequence < sequence_count(), "sequence ", sequence, " of ", sequence_count());
    CLOVER_CHECK(first >= 0 && n >= 0 && first <= length(sequence) - n, "tokens [", first, ", ", first, " + ", n, ") of ", length(sequence));
    const unsigned char* from = bin_.data() + offset(sequence) + first * item_size_;
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

namespace {

/// Removes left-overs before a new file is begun.
const std::string& cleared(const std::string& path) {
    remove_leftovers(path);
    return path;
}

constexpr size_t values_at_a_time = size_t{1} << 16;

/// Writes values made one at a time, in blocks.
template <class T>
class BlockWriter {
public:
    explicit BlockWriter(NewFile& file) : file_(file) { block_.reserve(values_at_a_time); }
    void add(T value) {
        block_.push_back(value);
        if (block_.size() == values_at_a_time) flush();
    }
    void flush() {
        file_.write(block_.data(), block_.size() * sizeof(T));
        block_.clear();
    }

private:
    NewFile& file_;
    std::vector<T> block_;
};

void write_header(NewFile& file, int code, int64_t sequences, int64_t documents) {
    unsigned char header[header_bytes];
    const uint64_t version = 1, n = uint64_t(sequences), d = uint64_t(documents) + 1;
    std::memcpy(header, magic, 9);
    std::memcpy(header + 9, &version, 8);
    header[17] = uint8_t(code);
    std::memcpy(header + 18, &n, 8);
    std::memcpy(header + 26, &d, 8);
    file.write_at(0, header, sizeof header);
}

}  // namespace

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, int64_t vocab)
    : prefix_(prefix), vocab_(vocab), code_(vocab < 65500 ? 8 : 4), bin_(cleared(prefix + ".bin")), idx_(cleared(prefix + ".idx")) {
    CLOVER_CHECK(vocab >= 1 && vocab <= std::numeric_limits<int32_t>::max(), "vocab ", vocab);
    buffer_.reserve(flush_bytes + 8);
    const unsigned char header[header_bytes] = {};  // filled in when the counts are known
    idx_.write(header, sizeof header);
}

void IndexedDatasetWriter::add_document(std::span<const int32_t> tokens) {
    require(tokens.size() <= size_t(std::numeric_limits<int32_t>::max()), prefix_, ": document ", document_count(), " has ", tokens.size(),
            " tokens, at most ", std::numeric_limits<int32_t>::max(), " fit; cut it into several");
    with_type(code_, [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        for (int32_t token : tokens) {
            CLOVER_CHECK(token >= 0 && token < vocab_, "token ", token, ", vocabulary ", vocab_);
            largest_ = std::max(largest_, token);
            const T value = T(token);
            const unsigned char* p = reinterpret_cast<const unsigned char*>(&value);
            buffer_.insert(buffer_.end(), p, p + sizeof value);
            if (buffer_.size() >= flush_bytes) flush();
        }
    });
    lengths_.push_back(int32_t(tokens.size()));
    if (lengths_.size() == values_at_a_time) write_lengths();
    documents_++;
    token_count_ += int64_t(tokens.size());
}

void IndexedDatasetWriter::flush() {
    bin_.write(buffer_.data(), buffer_.size());
    buffer_.clear();
}

void IndexedDatasetWriter::write_lengths() {
    idx_.write(lengths_.data(), lengths_.size() * sizeof(int32_t));
    lengths_.clear();
}

/// The lengths are in the file already; what follows from them comes behind, and the header before.
void IndexedDatasetWriter::write_index() {
    write_lengths();
    const int64_t n = documents_, item = size_of_code(code_);
    BlockWriter<int64_t> values(idx_);
    std::vector<int32_t> block(values_at_a_time);
    int64_t offset = 0;
    for (int64_t first = 0; first < n; first += int64_t(block.size())) {
        const size_t count = size_t(std::min<int64_t>(int64_t(block.size()), n - first));
        idx_.read_at(header_bytes + 4 * size_t(first), block.data(), 4 * count);
        for (size_t i = 0; i < count; i++) values.add(std::exchange(offset, offset + block[i] * item));
    }
    for (int64_t i = 0; i <= n; i++) values.add(i);
    values.flush();
    write_header(idx_, code_, n, n);
}

namespace {

/// Whether there was such a file.
bool remove_file(const std::string& path) {
    const bool removed = ::unlink(path.c_str()) == 0;
    if (!removed && errno != ENOENT) throw Error(text("cannot replace ", path, ": ", std::strerror(errno)));
    return removed;
}

/// .bin takes its name, then .idx; a pair that stood there before loses its .idx first. Its record (token_record.h) goes before that: at no moment does an
/// old record stand beside a new token file.
void commit_pair(const std::string& prefix, NewFile& bin_file, NewFile& idx_file) {
    bin_file.sync();
    idx_file.sync();
    const std::string bin = prefix + ".bin", idx = prefix + ".idx";
    const bool record_removed = remove_file(prefix + ".json");
    if (remove_file(idx) || record_removed) sync_folder_of(idx);
    bin_file.commit();
    try {
        idx_file.commit();
    } catch (...) {
        ::unlink(bin.c_str());
        throw;
    }
    sync_folder_of(idx);
}

}  // namespace

void IndexedDatasetWriter::finish() {
    flush();
    write_index();
    commit_pair(prefix_, bin_, idx_);
}

void merge_token_files(const std::vector<std::string>& prefixes, const std::string& out) {
    std::vector<IndexedDataset> sets;
    sets.reserve(prefixes.size());
    int64_t sequences = 0, documents = 0;
    for (const std::string& prefix : prefixes) {
        const IndexedDataset& set = sets.emplace_back(prefix);
        require(set.dtype_code() == sets[0].dtype_code(), prefix, ".idx: dtype code ", set.dtype_code(), ", but ", prefixes[0], " has ", sets[0].dtype_code(),
                "; only token files of one dtype can be merged");
        sequences += set.sequence_count();
        documents += set.document_count();
    }
    require(!sets.empty(), "no token file to merge");
    NewFile bin(cleared(out + ".bin")), idx(cleared(out + ".idx"));
    for (const IndexedDataset& set : sets) bin.write(set.tokens(), size_t(set.token_count() * set.item_size()));
    const unsigned char header[header_bytes] = {};
    idx.write(header, sizeof header);
    BlockWriter<int32_t> lengths(idx);
    for (const IndexedDataset& set : sets)
        for (int64_t i = 0; i < set.sequence_count(); i++) lengths.add(int32_t(set.length(i)));
    lengths.flush();
    BlockWriter<int64_t> values(idx);
    int64_t offset = 0, before = 0;
    for (const IndexedDataset& set : sets)
        for (int64_t i = 0; i < set.sequence_count(); i++) values.add(std::exchange(offset, offset + set.length(i) * set.item_size()));
    values.add(0);
    for (const IndexedDataset& set : sets) {
        for (int64_t d = 1; d <= set.document_count(); d++) values.add(before + set.first_sequence(d));
        before += set.sequence_count();
    }
    values.flush();
    write_header(idx, sets[0].dtype_code(), sequences, documents);
    commit_pair(out, bin, idx);
}

}  // namespace clover
