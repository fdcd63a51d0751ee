// The folder OUT/checkpoints: one sub-folder per saved step, step_00000100/, each whole or not there.
// A checkpoint is written under the name .tmp_step_00000100, every file synced, then a manifest.json with the size and CRC-32 of
// each file, then the folder is renamed and the parent synced; older ones are removed after that. Killed at any instant, the
// newest folder with a manifest that fits is a complete step.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace clover {

class CheckpointWriter {
public:
    /// Makes the temporary folder (removing left-overs of an earlier kill). Throws Error with path and reason.
    CheckpointWriter(const std::string& checkpoints, int64_t step);
    /// Destroyed uncommitted, it removes the temporary folder.
    ~CheckpointWriter();
    CheckpointWriter(const CheckpointWriter&) = delete;
    /// Where to write a file of this name.
    std::string path(const std::string& file) const;
    /// Tells of a file that was written and synced there.
    void add(const std::string& file, uint32_t crc32);
    /// Writes a small file and adds it.
    void add_text(const std::string& file, const std::string& contents);
    /// Makes it permanent, then removes all but the newest `keep` checkpoints (0: keep all). Returns the folder's path.
    std::string commit(int64_t keep);

private:
    struct File {
        std::string name;
        uint64_t size;
        uint32_t crc32;
    };
    std::string checkpoints_, temporary_, final_;
    std::vector<File> files_;
    bool committed_ = false;
};

/// Checks manifest, sizes and CRC-32 of every file of one checkpoint folder. Throws InputError naming the file that is missing,
/// cut short or changed.
void verify_checkpoint(const std::string& folder);

/// The newest checkpoint that verifies; broken newer ones are named in `warnings`. Throws InputError if there is none.
std::string newest_checkpoint(const std::string& checkpoints, std::vector<std::string>& warnings);

/// `path` itself if it is one checkpoint, else the newest in it or, if it is a run's folder, in its checkpoints/.
std::string resolve_checkpoint(const std::string& path, std::vector<std::string>& warnings);

/// All step folders, oldest first, verified or not.
std::vector<std::string> list_checkpoints(const std::string& checkpoints);

}  // namespace clover
