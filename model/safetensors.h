// safetensors, the format of Hugging Face: u64 little-endian header length N · N bytes of JSON
// {"name": {"dtype": "F32", "shape": […], "data_offsets": [begin, end]}, …, "__metadata__": {"key": "text"}} · the data.
// Offsets count from the end of the header; tensors lie without holes. (github.com/huggingface/safetensors, README.)
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "../data/indexed_dataset.h"
#include "../data/new_file.h"

namespace clover {

struct SafetensorsEntry {
    std::string name;
    std::string dtype;  // "F32", "BF16", "F16", "I64", "I32", "U8", …
    std::vector<int64_t> shape;
    uint64_t begin = 0, end = 0;  // bytes, from the start of the data
};

/// A safetensors file mapped for reading. The constructor checks everything: header length against the file (and 100 MB), JSON,
/// known dtypes, shape × size = end − begin without overflow, no overlap, no hole, no bytes left over, no name twice.
/// Throws InputError naming the file and the tensor. Hostile input cannot crash it or take memory beyond the header's.
class SafetensorsFile {
public:
    explicit SafetensorsFile(const std::string& path);
    const std::vector<SafetensorsEntry>& entries() const { return entries_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    /// Null if there is no tensor of that name.
    const SafetensorsEntry* find(const std::string& name) const;
    /// Like find, but throws InputError naming file and tensor.
    const SafetensorsEntry& at(const std::string& name) const;
    const unsigned char* data(const SafetensorsEntry& e) const { return file_.data() + data_start_ + e.begin; }
    /// Calls take(bytes, count) for one part of the tensor after the other; of the file no more than a part stays in memory.
    void for_parts(const SafetensorsEntry& e, const std::function<void(const unsigned char*, size_t)>& take) const;
    const std::string& path() const { return path_; }

private:
    std::string path_;
    MappedFile file_;
    uint64_t data_start_ = 0;
    std::vector<SafetensorsEntry> entries_;
    std::map<std::string, size_t> by_name_;
    std::map<std::string, std::string> metadata_;
};

/// Writes a safetensors file in one pass: first the list of tensors (the header), then their bytes in that order. The file has its
/// name only from finish() on; destroyed before, the writer leaves nothing.
class SafetensorsWriter {
public:
    /// begin/end of the entries are filled in here. Throws Error with path and reason.
    SafetensorsWriter(const std::string& path, std::vector<SafetensorsEntry> entries, const std::map<std::string, std::string>& metadata);
    /// The next bytes of the data.
    void write(const void* data, size_t bytes);
    /// Checks that all data came, syncs, gives the file its name. Returns the CRC-32 (zlib's) of the whole file.
    uint32_t finish();

private:
    std::string path_;
    NewFile file_;
    uint64_t expected_ = 0, written_ = 0;
    uint32_t crc_ = 0;
    void write_through(const void* data, size_t bytes);
};

}  // namespace clover
