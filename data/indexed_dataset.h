// Megatron's MMapIndexedDataset: PREFIX.bin holds the tokens, PREFIX.idx where each sequence and document lies.
// .idx, little endian, no padding:
//   0   9 bytes  "MMIDIDX\0\0"
//   9   u64      version = 1
//   17  u8       dtype code: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16
//   18  u64      n, the number of sequences
//   26  u64      d, the length of the document index = documents + 1
//   34  i32[n]   tokens of each sequence
//       i64[n]   byte offset of each sequence in .bin
//       i64[d]   first sequence of each document; the last entry is n
// (bigscience-workshop/Megatron-DeepSpeed megatron/data/indexed_dataset.py.)
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "new_file.h"

namespace clover {

/// A file mapped read-only. Throws InputError with the path and the system's reason.
class MappedFile {
public:
    explicit MappedFile(const std::string& path);
    ~MappedFile();
    MappedFile(MappedFile&&) noexcept;
    MappedFile& operator=(MappedFile&&) = delete;
    const unsigned char* data() const { return data_; }
    size_t size() const { return size_; }
    /// The process no longer holds the pages of bytes [first, first + count) in memory; reading them again reads the file again.
    void release(size_t first, size_t count) const;

private:
    const unsigned char* data_ = nullptr;
    size_t size_ = 0;
};

class IndexedDataset {
public:
    /// Opens PREFIX.bin and PREFIX.idx and checks that they are whole and fit each other. Throws InputError.
    explicit IndexedDataset(const std::string& prefix);

    int64_t sequence_count() const { return int64_t(lengths_.size()); }
    int64_t document_count() const { return int64_t(documents_.size()) - 1; }
    int64_t token_count() const { return token_count_; }
    /// Bytes of one token in .bin.
    int64_t item_size() const { return item_size_; }
    /// Tokens of one sequence.
    int64_t length(int64_t sequence) const { return lengths_[size_t(sequence)]; }
    const std::vector<int32_t>& lengths() const { return lengths_; }
    const std::vector<int64_t>& documents() const { return documents_; }
    /// Tokens [first, first + n) of a sequence as i32.
    void read(int64_t sequence, int64_t first, int64_t n, int32_t* out) const;
    const std::string& prefix() const { return prefix_; }
    int dtype_code() const { return code_; }
    /// The largest token id in the file, -1 if it holds none; reads it all. Throws InputError for a negative id.
    int64_t largest_token() const;

private:
    std::string prefix_;
    MappedFile bin_;
    int code_ = 0;
    int64_t item_size_ = 0, token_count_ = 0;
    std::vector<int32_t> lengths_;
    std::vector<int64_t> offsets_, documents_;
};

/// Writes PREFIX.bin and PREFIX.idx under temporary names; finish() syncs and renames them, .idx last, so that no half pair
/// ever looks valid: a pair that stood there before loses its .idx first. Destroyed unfinished, it removes what it wrote.
/// Throws Error with path and reason when the disk is full.
class IndexedDatasetWriter {
public:
    /// uint16 where vocab < 65500, else int32 (Megatron-DeepSpeed's rule). The folder of PREFIX must exist.
    IndexedDatasetWriter(const std::string& prefix, int64_t vocab);
    /// One document of one sequence; 0 <= token < vocab.
    void add_document(const std::vector<int32_t>& tokens);
    void finish();
    int64_t document_count() const { return int64_t(lengths_.size()); }
    int64_t token_count() const { return token_count_; }

private:
    std::string prefix_;
    int64_t vocab_;
    int code_ = 0;
    int64_t token_count_ = 0;
    std::vector<int32_t> lengths_;
    std::vector<unsigned char> buffer_;
    NewFile bin_, idx_;
    void flush();
    void write_index();
};

}  // namespace clover
