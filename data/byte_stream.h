// The bytes of a file from start to end: plain, gzip (by the name's .gz), or standard input ("-"). Holds a chunk, whatever the file's size.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct gzFile_s;

namespace clover {

class ByteStream {
public:
    /// Throws InputError for a file that cannot be opened, is no regular file, or is named .gz and is none.
    explicit ByteStream(const std::string& path);
    ~ByteStream();
    ByteStream(const ByteStream&) = delete;
    /// Up to n bytes; 0 at the end. Throws InputError for a gzip file that is damaged or cut short.
    size_t read(char* out, size_t n);
    /// Bytes of the file as it lies on the disk that have been used.
    int64_t offset() const;
    const std::string& path() const { return path_; }

private:
    struct Close {
        void operator()(gzFile_s* file) const;
    };
    std::string path_;
    int fd_ = -1;
    int64_t offset_ = 0;
    std::unique_ptr<gzFile_s, Close> gz_;
    size_t read_gz(char* out, size_t n);
};

}  // namespace clover
