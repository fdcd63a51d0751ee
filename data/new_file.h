// A file that appears whole or not at all: written as PATH.tmp-PID-N, synced, renamed. Destroyed before commit(), it removes what
// it wrote. Every failure throws Error with the path and the system's reason.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace clover {

class NewFile {
public:
    explicit NewFile(const std::string& path);
    ~NewFile();
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;
    void write(const void* data, size_t bytes);
    /// Over what was written before, or beyond it; the next write() goes on where the last one ended.
    void write_at(size_t offset, const void* data, size_t bytes);
    /// Of what was written.
    void read_at(size_t offset, void* data, size_t bytes) const;
    /// The whole file as memory, `bytes` long, instead of write(). Its space is reserved first: a full disk fails here, not at a later page. The caller unmaps it;
    /// what is written there is on the disk after sync().
    void* map(size_t bytes);
    /// The bytes are on the disk; no more can be written.
    void sync();
    /// sync() if that has not been done, then the file takes its name.
    void commit();

private:
    std::string path_, temporary_;
    int fd_ = -1;
    bool renamed_ = false;
};

/// Removes what writers of `path` left that were killed: temporary files that no process holds and nobody has touched for a minute.
void remove_leftovers(const std::string& path);

/// Renames and removals in the folder of `path` are on the disk.
void sync_folder_of(const std::string& path);

void write_file_whole(const std::string& path, std::string_view contents);

}  // namespace clover
