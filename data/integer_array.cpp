#include "integer_array.h"

#include <sys/mman.h>

#include <bit>
#include <cstring>
#include <utility>

#include "../kernels/error.h"

namespace clover {
namespace {

static_assert(std::endian::native == std::endian::little);

int64_t product(const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (int64_t n : shape) CLOVER_CHECK(n >= 0 && !__builtin_mul_overflow(count, n, &count), "a dimension of ", n);
    return count;
}

std::string header_of(IntegerType type, const std::vector<int64_t>& shape) {
    const char* names[] = {"<i4", "<u4", "<i8"};
    std::string dictionary = text("{'descr': '", names[size_t(type)], "', 'fortran_order': False, 'shape': (");
    for (size_t i = 0; i < shape.size(); i++) dictionary += text(i ? ", " : "", shape[i]);
    dictionary += shape.size() == 1 ? ",), }" : "), }";
    dictionary.append(63 - (10 + dictionary.size()) % 64, ' ') += '\n';
    std::string header("\x93NUMPY\x01\x00", 8);
    header += {char(dictionary.size() & 0xff), char(dictionary.size() >> 8)};
    return header + dictionary;
}

}  // namespace

IntegerArray::~IntegerArray() {
    if (map_) ::munmap(map_, map_bytes_);
}

void IntegerArray::swap(IntegerArray& other) noexcept {
    std::swap(type_, other.type_);
    std::swap(count_, other.count_);
    std::swap(values_, other.values_);
    memory_.swap(other.memory_);
    std::swap(map_, other.map_);
    std::swap(map_bytes_, other.map_bytes_);
    file_.swap(other.file_);
    read_.swap(other.read_);
}

IntegerArray IntegerArray::in_memory(IntegerType type, std::vector<int64_t> shape) {
    IntegerArray array;
    array.type_ = type;
    array.count_ = product(shape);
    array.memory_.resize(size_t(array.count_ * size_of(type)));
    array.values_ = array.memory_.data();
    return array;
}

IntegerArray IntegerArray::create(const std::string& path, IntegerType type, std::vector<int64_t> shape) {
    IntegerArray array;
    array.type_ = type;
    array.count_ = product(shape);
    const std::string header = header_of(type, shape);
    remove_leftovers(path);
    array.file_ = std::make_unique<NewFile>(path);
    array.map_bytes_ = header.size() + size_t(array.count_ * size_of(type));
    array.map_ = array.file_->map(array.map_bytes_);
    array.values_ = static_cast<char*>(array.map_) + header.size();
    std::memcpy(array.map_, header.data(), header.size());
    return array;
}

void IntegerArray::commit() {
    CLOVER_CHECK(file_ != nullptr);
    file_->commit();
    file_.reset();
}

IntegerArray IntegerArray::open(const std::string& path, IntegerType type, const std::vector<int64_t>& shape) {
    IntegerArray array;
    array.type_ = type;
    array.count_ = product(shape);
    const std::string header = header_of(type, shape);
    const size_t bytes = header.size() + size_t(array.count_ * size_of(type));
    array.read_ = std::make_unique<MappedFile>(path);
    require(array.read_->size() == bytes, path, ": ", array.read_->size(), " bytes, expected ", bytes);
    require(std::memcmp(array.read_->data(), header.data(), header.size()) == 0, path, ": its first ", header.size(), " bytes are not the header expected");
    array.values_ = const_cast<unsigned char*>(array.read_->data()) + header.size();
    return array;
}

}  // namespace clover
