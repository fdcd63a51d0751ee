// An array of integers in memory, or in a file of NumPy's .npy format that is mapped into memory, so that arrays larger than memory can be built
// and read, and survive the process. The format (numpy.lib.format, version 1.0):
//   "\x93NUMPY" 1 0 · u16 length of what follows · {'descr': '<i4', 'fortran_order': False, 'shape': (5, 2), } spaces '\n'   (together a multiple of 64)
//   the values, little endian, row by row
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "indexed_dataset.h"
#include "new_file.h"

namespace clover {

enum class IntegerType : uint8_t { i32, u32, i64 };

class IntegerArray {
public:
    IntegerArray() = default;
    ~IntegerArray();
    IntegerArray(IntegerArray&& other) noexcept { swap(other); }
    IntegerArray& operator=(IntegerArray&& other) noexcept { return swap(other), *this; }

    static IntegerArray in_memory(IntegerType type, std::vector<int64_t> shape);
    /// A new file under a temporary name; commit() gives it its name. Its space is reserved first: a full disk throws Error here, not later.
    static IntegerArray create(const std::string& path, IntegerType type, std::vector<int64_t> shape);
    /// A file, read-only. Throws InputError where it is not just such an array, whole.
    static IntegerArray open(const std::string& path, IntegerType type, const std::vector<int64_t>& shape);
    void commit();

    int64_t count() const { return count_; }
    int64_t operator[](int64_t i) const {
        switch (type_) {
            case IntegerType::i32: return static_cast<const int32_t*>(values_)[i];
            case IntegerType::u32: return static_cast<const uint32_t*>(values_)[i];
            default: return static_cast<const int64_t*>(values_)[i];
        }
    }
    /// Calls f with a pointer to the values, of their own type.
    template <class F>
    void with_values(F f) {
        if (type_ == IntegerType::i32) f(static_cast<int32_t*>(values_));
        else if (type_ == IntegerType::u32) f(static_cast<uint32_t*>(values_));
        else f(static_cast<int64_t*>(values_));
    }

private:
    IntegerType type_ = IntegerType::i64;
    int64_t count_ = 0;
    void* values_ = nullptr;
    std::vector<std::byte> memory_;
    void* map_ = nullptr;
    size_t map_bytes_ = 0;
    std::unique_ptr<NewFile> file_;     // while under construction
    std::unique_ptr<MappedFile> read_;  // a file that was there
    void swap(IntegerArray& other) noexcept;
};

/// Bytes of one value.
constexpr int64_t size_of(IntegerType type) { return type == IntegerType::i64 ? 8 : 4; }

}  // namespace clover
