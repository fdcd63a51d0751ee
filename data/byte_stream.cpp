#include "byte_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "../kernels/error.h"

namespace clover {

void ByteStream::Close::operator()(gzFile_s* file) const { ::gzclose(file); }

ByteStream::ByteStream(const std::string& path) : path_(path) {
    if (path == "-") {
        path_ = "standard input";
        fd_ = ::dup(STDIN_FILENO);
        return;
    }
    // O_NONBLOCK: opening a named pipe must fail below, not wait for a writer.
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    require(fd_ >= 0, "cannot open ", path, ": ", std::strerror(errno));
    struct stat info;
    const bool regular = ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode);
    if (regular && path.ends_with(".gz") && info.st_size > 0) {
        gz_.reset(::gzdopen(std::exchange(fd_, -1), "rb"));
        if (gz_) ::gzbuffer(gz_.get(), unsigned{1} << 17);
    }
    const bool packed = gz_ != nullptr && ::gzdirect(gz_.get()) == 0;
    if (regular && packed == path.ends_with(".gz")) return;
    if (fd_ >= 0) ::close(fd_);
    throw InputError(regular ? text(path, ": byte 0: not a gzip file although its name ends in .gz; rename it") : text("cannot open ", path, ": not a regular file"));
}

ByteStream::~ByteStream() {
    if (fd_ >= 0) ::close(fd_);
}

size_t ByteStream::read(char* out, size_t n) {
    if (gz_ != nullptr) return read_gz(out, n);
    ssize_t count;
    do count = ::read(fd_, out, n);
    while (count < 0 && errno == EINTR);
    require(count >= 0, "cannot read ", path_, ": ", std::strerror(errno));
    offset_ += count;
    return size_t(count);
}

size_t ByteStream::read_gz(char* out, size_t n) {
    n = std::min(n, size_t{1} << 20);
    const int count = ::gzread(gz_.get(), out, unsigned(n));
    if (count < int(n)) {  // the end, or what zlib makes of a file cut short or damaged
        int code = Z_OK;
        std::string reason = ::gzerror(gz_.get(), &code);
        if (const size_t colon = reason.find(": "); colon != std::string::npos) reason.erase(0, colon + 2);  // zlib puts a name before its reason
        require(code == Z_OK || code == Z_STREAM_END, path_, ": damaged gzip file near byte ", ::gzoffset(gz_.get()), ": ", reason,
                "; fetch or pack it again");
    }
    return size_t(std::max(count, 0));
}

int64_t ByteStream::offset() const { return gz_ != nullptr ? ::gzoffset(gz_.get()) : offset_; }

}  // namespace clover
