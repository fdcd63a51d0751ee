// The header is read event by event, not into a tree: memory stays in proportion to it, nothing recurses, a name or key that comes
// twice is seen, and an event that does not fit ends the reading.
#include "safetensors.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "../kernels/error.h"

namespace clover {
namespace {

// The reference implementation's limit.
constexpr uint64_t longest_header = 100'000'000;
// PyTorch's and NumPy's limit; keeps a hostile shape from being a long list.
constexpr size_t most_dimensions = 64;
constexpr const char* metadata_name = "__metadata__";

/// Bytes of one element, 0 for a dtype we do not know.
uint64_t dtype_size(std::string_view dtype) {
    struct Size {
        std::string_view dtype;
        uint64_t bytes;
    };
    static constexpr Size sizes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"U16", 2}, {"I16", 2},
                                     {"F16", 2},  {"BF16", 2}, {"U32", 4}, {"I32", 4},    {"F32", 4},     {"U64", 8},     {"I64", 8}, {"F64", 8},
                                     {"C64", 8}};
    for (const Size& s : sizes)
        if (s.dtype == dtype) return s.bytes;
    return 0;
}

/// shape × size, false if it does not fit 63 bits. (A dimension of 0 does not excuse a product of the others that overflows.)
bool tensor_bytes(const SafetensorsEntry& e, uint64_t& bytes) {
    uint64_t product = dtype_size(e.dtype);
    bool empty = false;
    for (const int64_t n : e.shape) {
        empty = empty || n == 0;
        if (n != 0 && __builtin_mul_overflow(product, uint64_t(n), &product)) return false;
    }
    bytes = empty ? 0 : product;
    return product <= uint64_t(INT64_MAX);
}

/// A name out of the file, short and without control characters, for messages.
std::string shown(const std::string& name) {
    std::string s = name.substr(0, 80);
    std::replace_if(s.begin(), s.end(), [](char c) { return uint8_t(c) < 0x20; }, ' ');
    return '"' + s + (name.size() > 80 ? "...\"" : "\"");
}

/// Receives nlohmann's events. `depth_` is the number of open braces and brackets:
/// 1 in the header, 2 in a tensor or in the metadata, 3 in a tensor's shape or data_offsets.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
public:
    HeaderReader(const std::string& path, std::vector<SafetensorsEntry>& entries, std::map<std::string, std::string>& metadata)
        : path_(path), entries_(entries), metadata_(metadata) {}

    bool null() override { return unexpected("null"); }
    bool boolean(bool) override { return unexpected("a boolean"); }
    bool number_float(double, const std::string& s) override { return unexpected(s.substr(0, 40)); }
    bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }
    bool number_integer(int64_t n) override { return unexpected(std::to_string(n)); }  // a negative one

    bool number_unsigned(uint64_t n) override {
        if (depth_ != 3) return unexpected(std::to_string(n));
        SafetensorsEntry& e = entries_.back();
        if (field_ == "shape") {
            require(n <= uint64_t(INT64_MAX), here(), ": a dimension of ", n);
            require(e.shape.size() < most_dimensions, here(), ": more than ", most_dimensions, " dimensions");
            e.shape.push_back(int64_t(n));
        } else {
            require(offsets_ < 2, here(), ": data_offsets must be two numbers");
            (offsets_++ == 0 ? e.begin : e.end) = n;
        }
        return true;
    }

    bool string(std::string& s) override {
        if (depth_ != 2) return unexpected(shown(s));
        if (in_metadata_) {
            require(metadata_.emplace(field_, s).second, path_, ": ", metadata_name, " has ", shown(field_), " twice");
            return true;
        }
        if (field_ != "dtype") return unexpected(shown(s));
        require(dtype_size(s) != 0, here(), ": unknown dtype ", shown(s), "; expected F32, BF16, F16, I64, ...");
        entries_.back().dtype = s;
        return true;
    }

    bool start_object(size_t) override {
        if (depth_ >= 2) return unexpected("an object");
        if (++depth_ == 1) return true;
        in_metadata_ = field_ == metadata_name;
        if (in_metadata_) {
            require(!metadata_seen_, path_, ": ", metadata_name, " is there twice");
            metadata_seen_ = true;
        } else {
            require(names_.insert(field_).second, path_, ": tensor ", shown(field_), " is there twice");
            entries_.emplace_back().name = field_;
            seen_.clear();
            offsets_ = 0;
        }
        return true;
    }

    bool key(std::string& k) override {
        field_ = k;
        if (depth_ == 2 && !in_metadata_) {
            require(k == "dtype" || k == "shape" || k == "data_offsets", here(), ": unknown field ", shown(k),
                    "; a tensor has dtype, shape and data_offsets");
            require(seen_.insert(k).second, here(), ": ", k, " is there twice");
        }
        return true;
    }

    bool end_object() override {
        if (--depth_ == 1 && !in_metadata_)
            require(seen_.size() == 3 && offsets_ == 2, here(), ": must have dtype, shape and two data_offsets");
        return true;
    }

    bool start_array(size_t) override {
        if (depth_ != 2 || in_metadata_ || field_ == "dtype") return unexpected("a list");
        depth_++;
        return true;
    }

    bool end_array() override {
        depth_--;
        return true;
    }

    bool parse_error(size_t position, const std::string& token, const nlohmann::json::exception&) override {
        throw InputError(text(path_, ": the header is not JSON at byte ", 8 + position, ", near ", shown(token)));
    }

private:
    const std::string& path_;
    std::vector<SafetensorsEntry>& entries_;
    std::map<std::string, std::string>& metadata_;
    int depth_ = 0;
    bool in_metadata_ = false, metadata_seen_ = false;
    std::string field_;             // the last key
    std::set<std::string> names_;   // of tensors
    std::set<std::string> seen_;    // fields of the present tensor
    int offsets_ = 0;               // numbers seen of its data_offsets

    /// The file and, inside one, the tensor.
    std::string here() const {
        return depth_ >= 1 && !in_metadata_ && !entries_.empty() ? text(path_, ": tensor ", shown(entries_.back().name)) : path_;
    }

    bool unexpected(const std::string& what) const {
        require(depth_ >= 2, path_, ": the header must be {\"name\": {...}, ...}, but has ", what, " at ", shown(field_));
        require(!in_metadata_, path_, ": ", metadata_name, " must map strings to strings, but has ", what, " at ", shown(field_));
        throw InputError(text(here(), ": ", field_, " must be ", field_ == "dtype" ? "a string" : "a list of integers of at least 0",
                              ", not ", what));
    }
};

/// Each tensor fills what its shape needs, and together, in the order of the file, they fill the data.
void check_layout(const std::string& path, const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
    uint64_t filled = 0;
    for (const SafetensorsEntry& e : entries) {
        const std::string where = text(path, ": tensor ", shown(e.name));
        uint64_t bytes = 0;
        require(tensor_bytes(e, bytes), where, ": its shape has more elements than a file can hold");
        require(e.begin <= e.end && e.end <= data_bytes, where, ": data_offsets [", e.begin, ", ", e.end, "] do not lie in the ", data_bytes,
                " bytes of data; the file is cut short or its header wrong");
        require(e.end - e.begin == bytes, where, ": data_offsets hold ", e.end - e.begin, " bytes, but dtype and shape need ", bytes);
        require(e.begin == filled, where, ": begins at byte ", e.begin, " of the data, but the tensor before it ends at ", filled,
                e.begin < filled ? " (overlap)" : " (hole)");
        filled = e.end;
    }
    require(filled == data_bytes, path, ": ", data_bytes - filled, " bytes after the last tensor");
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
    require(file_.size() >= 8, path, ": ", file_.size(), " bytes; a safetensors file begins with the 8-byte length of its header");
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | file_.data()[i];
    require(length <= longest_header && length <= file_.size() - 8, path, ": the header's length is given as ", length, " bytes, but ",
            length > longest_header ? "at most 100000000 are allowed" : "the file is too short for it",
            "; not a safetensors file, or cut short");
    const char* header = reinterpret_cast<const char*>(file_.data() + 8);
    require(length >= 2 && header[0] == '{', path, ": the header must begin with '{'; not a safetensors file");
    HeaderReader reader(path, entries_, metadata_);
    nlohmann::json::sax_parse(header, header + length, &reader);
    data_start_ = 8 + length;
    std::stable_sort(entries_.begin(), entries_.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    check_layout(path, entries_, file_.size() - data_start_);
    for (size_t i = 0; i < entries_.size(); i++) by_name_[entries_[i].name] = i;
}

void SafetensorsFile::for_parts(const SafetensorsEntry& e, const std::function<void(const unsigned char*, size_t)>& take) const {
    constexpr size_t part = 1 << 20;
    for (uint64_t first = e.begin; first < e.end; first += part) {
        const size_t count = size_t(std::min<uint64_t>(part, e.end - first));
        take(file_.data() + data_start_ + first, count);
        file_.release(data_start_ + first, count);
    }
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &entries_[found->second];
}

const SafetensorsEntry& SafetensorsFile::at(const std::string& name) const {
    const SafetensorsEntry* e = find(name);
    require(e != nullptr, path_, ": no tensor ", shown(name), " among its ", entries_.size());
    return *e;
}

namespace {

/// Fills in begin and end; returns the bytes of the data.
uint64_t lay_out(const std::string& path, std::vector<SafetensorsEntry>& entries) {
    uint64_t end = 0;
    std::set<std::string_view> names;
    for (SafetensorsEntry& e : entries) {
        uint64_t bytes = 0;
        CLOVER_CHECK(dtype_size(e.dtype) != 0, path, ": tensor ", shown(e.name), " has dtype ", shown(e.dtype));
        CLOVER_CHECK(e.shape.size() <= most_dimensions, path, ": tensor ", shown(e.name));
        for (const int64_t n : e.shape) CLOVER_CHECK(n >= 0, path, ": tensor ", shown(e.name));
        CLOVER_CHECK(tensor_bytes(e, bytes), path, ": tensor ", shown(e.name), " is too large");
        CLOVER_CHECK(e.name != metadata_name && names.insert(e.name).second, path, ": a second tensor ", shown(e.name));
        e.begin = end;
        CLOVER_CHECK(!__builtin_add_overflow(end, bytes, &end), path, " is too large");
        e.end = end;
    }
    return end;
}

/// The header's JSON, padded with spaces so that the data begin at a multiple of 8.
std::string header_text(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                        const std::map<std::string, std::string>& metadata) {
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header[metadata_name] = metadata;
    // push_back, not [name]: an ordered_json looks names up one by one, and lay_out has seen that they differ.
    auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
    for (const SafetensorsEntry& e : entries)
        members.push_back({e.name, {{"dtype", e.dtype}, {"shape", e.shape}, {"data_offsets", {e.begin, e.end}}}});
    std::string json;
    try {
        json = header.dump();
    } catch (const nlohmann::json::exception&) {
        throw Error(text("cannot write ", path, ": the name of a tensor or a metadata entry is not UTF-8"));
    }
    json.append((8 - json.size() % 8) % 8, ' ');
    CLOVER_CHECK(json.size() <= longest_header, path, ": a header of ", json.size(), " bytes");
    return json;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsEntry> entries,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), file_(path) {
    expected_ = lay_out(path, entries);
    const std::string header = header_text(path, entries, metadata);
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = static_cast<unsigned char>(uint64_t(header.size()) >> 8 * i);
    write_through(length, sizeof length);
    write_through(header.data(), header.size());
}

void SafetensorsWriter::write(const void* data, size_t bytes) {
    CLOVER_CHECK(bytes <= expected_ - written_, path_, ": ", written_, " bytes written and ", bytes, " more, of ", expected_);
    written_ += bytes;
    write_through(data, bytes);
}

/// Block by block, so that the checksum finds in the cache what is written next, and within the 32 bits of zlib's length.
void SafetensorsWriter::write_through(const void* data, size_t bytes) {
    constexpr size_t block = 1 << 20;
    const auto* p = static_cast<const unsigned char*>(data);
    for (size_t n; bytes > 0; p += n, bytes -= n) {
        n = std::min(bytes, block);
        crc_ = uint32_t(crc32(crc_, p, uInt(n)));
        file_.write(p, n);
    }
}

uint32_t SafetensorsWriter::finish() {
    CLOVER_CHECK(written_ == expected_, path_, ": ", written_, " bytes written of ", expected_);
    file_.commit();
    return crc_;
}

}  // namespace clover
