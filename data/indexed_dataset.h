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
//       i8[n]    modes, in Megatron-core's multimodal files only: all 0 here
// (bigscience-workshop/Megatron-DeepSpeed megatron/data/indexed_dataset.py.)
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
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

/// Both files stay mapped: opening reads the index once to check it, and takes no memory that grows with it.
class IndexedDataset {
public:
    /// Opens PREFIX.bin and PREFIX.idx and checks that they are whole and fit each other. Throws InputError.
    explicit IndexedDataset(const std::string& prefix);

    int64_t sequence_count() const { return sequences_; }
    int64_t document_count() const { return document_entries_ - 1; }
    int64_t token_count() const { return token_count_; }
    /// Bytes of one token in .bin.
    int64_t item_size() const { return item_size_; }
    /// Tokens of one sequence.
    int64_t length(int64_t sequence) const { return at<int32_t>(34, sequence); }
    /// The first sequence of a document; document_count() gives the number of sequences.
    int64_t first_sequence(int64_t document) const { return at<int64_t>(34 + 12 * sequences_, document); }
    /// Tokens [first, first + n) of a sequence as i32.
    void read(int64_t sequence, int64_t first, int64_t n, int32_t* out) const;
    const std::string& prefix() const { return prefix_; }
    int dtype_code() const { return code_; }
    /// The largest token id in the file, -1 if it holds none; reads it all. Throws InputError for a negative id.
    int64_t largest_token() const;

    /// The tokens as they lie in the file, from the first on.
    const unsigned char* tokens() const { return bin_.data(); }

private:
    std::string prefix_;
    MappedFile bin_, idx_;
    int code_ = 0;
    int64_t item_size_ = 0, token_count_ = 0, sequences_ = 0, document_entries_ = 0;

    /// Entry i of the array that begins at a byte of .idx; the arrays are not aligned.
    template <class T>
    T at(int64_t begin, int64_t i) const {
        T value;
        std::memcpy(&value, idx_.data() + begin + i * int64_t(sizeof value), sizeof value);
        return value;
    }
    int64_t offset(int64_t sequence) const { return at<int64_t>(34 + 4 * sequences_, sequence); }
    int64_t check_sequences(const std::string& path) const;
    void check_documents(const std::string& path) const;
};

/// Writes PREFIX.bin and PREFIX.idx under temporary names; finish() syncs and renames them, .idx last, so that no half pair
/// ever looks valid: a pair that stood there before loses its .idx first. Destroyed unfinished, it removes what it wrote, and the next writer of PREFIX what
/// a killed one left. Memory does not grow with the number of documents. Throws Error with path and reason when the disk is full.
class IndexedDatasetWriter {
public:
    /// uint16 where vocab < 65500, else int32 (Megatron-DeepSpeed's rule). The folder of PREFIX must exist.
    IndexedDatasetWriter(const std::string& prefix, int64_t vocab);
    /// One document of one sequence; 0 <= token < vocab.
    void add_document(std::span<const int32_t> tokens);
    void add_document(std::initializer_list<int32_t> tokens) { add_document(std::span<const int32_t>(tokens.begin(), tokens.size())); }
    void finish();
    int64_t document_count() const { return documents_; }
    int64_t token_count() const { return token_count_; }
    /// The largest token so far, -1: none.
    int32_t largest_token() const { return largest_; }

private:
    std::string prefix_;
    int64_t vocab_;
    int code_ = 0;
    int64_t token_count_ = 0, documents_ = 0;
    int32_t largest_ = -1;
    std::vector<unsigned char> buffer_;
    std::vector<int32_t> lengths_;  // the last ones; those before are in .idx
    NewFile bin_, idx_;
    void flush();
    void write_lengths();
    void write_index();
};

/// Concatenates token files of one dtype into OUT, byte for byte what Megatron's merge makes. Whole or not at all. Throws InputError where dtypes differ.
void merge_token_files(const std::vector<std::string>& prefixes, const std::string& out);

}  // namespace clover
