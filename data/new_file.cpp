#include "new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "../kernels/error.h"

namespace clover {
namespace {

[[noreturn]] void fail(const char* doing, const std::string& path) {
    const int reason = errno;
    throw Error(text("cannot ", doing, " ", path, ": ", std::strerror(reason)));
}

}  // namespace

NewFile::NewFile(const std::string& path) : path_(path) {
    // O_EXCL and a counter keep writers of the same path apart, be they processes or threads.
    for (int n = 0; fd_ < 0; n++) {
        temporary_ = text(path, ".tmp-", ::getpid(), "-", n);
        fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd_ < 0 && errno != EEXIST) fail("create", path);
    }
    ::flock(fd_, LOCK_EX | LOCK_NB);  // held while it is written: remove_leftovers() can tell
}

NewFile::~NewFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!renamed_) ::unlink(temporary_.c_str());
}

void NewFile::write(const void* data, size_t bytes) {
    const char* p = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t n = ::write(fd_, p, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("write", path_);
        p += n;
        bytes -= size_t(n);
    }
}

void NewFile::write_at(size_t offset, const void* data, size_t bytes) {
    for (const char* p = static_cast<const char*>(data); bytes > 0;) {
        const ssize_t n = ::pwrite(fd_, p, bytes, off_t(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("write", path_);
        p += n, offset += size_t(n), bytes -= size_t(n);
    }
}

void NewFile::read_at(size_t offset, void* data, size_t bytes) const {
    for (char* p = static_cast<char*>(data); bytes > 0;) {
        const ssize_t n = ::pread(fd_, p, bytes, off_t(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail("read back", path_);
        p += n, offset += size_t(n), bytes -= size_t(n);
    }
}

void* NewFile::map(size_t bytes) {
    if ((errno = ::posix_fallocate(fd_, 0, off_t(bytes))) != 0) fail("write", path_);
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (p == MAP_FAILED) fail("map", path_);
    return p;
}

void NewFile::sync() {
    if (fd_ < 0) return;
    if (::fsync(fd_) != 0) fail("write", path_);
    const int fd = fd_;
    fd_ = -1;
    if (::close(fd) != 0) fail("write", path_);
}

void NewFile::commit() {
    sync();
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename the finished file to", path_);
    renamed_ = true;
}

void remove_leftovers(const std::string& path) {
    namespace fs = std::filesystem;
    const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
    const std::string begin = fs::path(path).filename().string() + ".tmp-";
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
        if (!entry.path().filename().string().starts_with(begin)) continue;
        const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
        struct stat info;
        const bool old = fd >= 0 && ::fstat(fd, &info) == 0 && info.st_mtime < std::time(nullptr) - 60;
        if (old && ::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(entry.path().c_str());
        if (fd >= 0) ::close(fd);
    }
}

void sync_folder_of(const std::string& path) {
    const std::filesystem::path parent = std::filesystem::path(path).parent_path();
    const std::string folder = parent.empty() ? "." : parent.string();
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) fail("open the folder", folder);
    const int result = ::fsync(fd);
    ::close(fd);
    // Some network file systems cannot sync a folder and say EINVAL; there is nothing to be done about it.
    if (result != 0 && errno != EINVAL) fail("sync the folder", folder);
}

void write_file_whole(const std::string& path, std::string_view contents) {
    NewFile file(path);
    file.write(contents.data(), contents.size());
    file.commit();
    sync_folder_of(path);
}

}  // namespace clover
