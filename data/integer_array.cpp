#include "integer_array.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "../kernels/error.h"
#include "new_file.h"

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

/// Closes the file when it goes.
struct File {
    int fd;
    ~File() {
        if (fd >= 0) ::close(fd);
    }
};

}  // namespace

IntegerArray::~IntegerArray() {
    if (map_) ::munmap(map_, map_bytes_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void IntegerArray::swap(IntegerArray& other) noexcept {
    std::swap(type_, other.type_);
    std::swap(count_, other.count_);
    std::swap(values_, other.values_);
    memory_.swap(other.memory_);
    std::swap(map_, other.map_);
    std::swap(map_bytes_, other.map_bytes_);
    path_.swap(other.path_);
    temporary_.swap(other.temporary_);
}

IntegerArray IntegerArray::in_memory(IntegerType type, std::vector<int64_t> shape) {
    IntegerArray array;
    array.type_ = type;
    array.count_ = product(shape);
    array.memory_.resize(size_t(array.count_ * size_of(type)));
    array.values_ = array.memory_.data();
    return array;
}

void IntegerArray::map(const std::string& path, int fd, size_t bytes, size_t header, bool writable) {
    void* p = ::mmap(nullptr, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) throw Error(text("cannot map ", path, ": ", std::strerror(errno)));
    map_ = p;
    map_bytes_ = bytes;
    values_ = static_cast<char*>(p) + header;
}

IntegerArray IntegerArray::create(const std::string& path, IntegerType type, std::vector<int64_t> shape) {
    IntegerArray array;
    array.type_ = type;
    array.count_ = product(shape);
    array.path_ = path;
    const std::string header = header_of(type, shape);
    const size_t bytes = header.size() + size_t(array.count_ * size_of(type));
    std::string temporary = text(path, ".tmp-", ::getpid());
    const File file{::open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    if (file.fd < 0) throw Error(text("cannot create ", path, ": ", std::strerror(errno)));
    array.temporary_ = temporary;
    // A page of a mapping that finds no room on the disk would end the process.
    if (const int reason = ::posix_fallocate(file.fd, 0, off_t(bytes))) throw Error(text("cannot write ", path, ": ", std::strerror(reason)));
    array.map(path, file.fd, bytes, header.size(), true);
    std::memcpy(array.map_, header.data(), header.size());
    return array;
}

void IntegerArray::commit() {
    if (temporary_.empty()) return;
    if (::msync(map_, map_bytes_, MS_SYNC) != 0) throw Error(text("cannot write ", path_, ": ", std::strerror(errno)));
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) throw Error(text("cannot rename the finished file to ", path_, ": ", std::strerror(errno)));
    temporary_.clear();
    sync_folder_of(path_);
}

IntegerArray IntegerArray::open(const std::string& path, IntegerType type, const std::vector<int64_t>& shape) {
    const File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    require(file.fd >= 0, "cannot open ", path, ": ", std::strerror(errno));
    IntegerArray array;
    array.type_ = type;
    array.count_ = product(shape);
    const std::string header = header_of(type, shape);
    const size_t bytes = header.size() + size_t(array.count_ * size_of(type));
    struct stat info;
    require(::fstat(file.fd, &info) == 0 && S_ISREG(info.st_mode) && size_t(info.st_size) == bytes, path, ": not a file of ", bytes, " bytes");
    array.map(path, file.fd, bytes, header.size(), false);
    require(std::memcmp(array.map_, header.data(), header.size()) == 0, path, ": its first ", header.size(), " bytes are not the header expected");
    return array;
}

}  // namespace clover
