// manifest.json of a checkpoint: {"step": 100, "files": [{"name": "model.safetensors", "size": 1234, "crc32": "0a1b2c3d"}, ...]}.
//
// Names in OUT/checkpoints, and what a kill at any instant leaves:
//   step_00000100       a checkpoint; it got this name whole and synced
//   .tmp_step_00000100  one being written, or one that lost its name to be removed; nobody reads it, the next writer removes it
//   .old_step_00000100  a checkpoint of this step that is being replaced: it stands in for step_00000100 until that has its name
#include "checkpoint_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "../data/new_file.h"
#include "../kernels/error.h"

namespace fs = std::filesystem;

namespace clover {
namespace {

constexpr std::string_view step_prefix = "step_", temporary_prefix = ".tmp_", old_prefix = ".old_";
constexpr const char* manifest_name = "manifest.json";
// A manifest has some hundred bytes per file and rank.
constexpr uint64_t longest_manifest = 16 << 20;

std::string step_name(int64_t step) {
    char name[32];
    std::snprintf(name, sizeof name, "step_%08lld", static_cast<long long>(step));
    return name;
}

/// The step of step_00000100; -1 for any other name.
int64_t step_of(std::string_view name) {
    if (!name.starts_with(step_prefix)) return -1;
    name.remove_prefix(step_prefix.size());
    const bool digits = std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || name.size() < 8 || name.size() > 18) return -1;
    return std::stoll(std::string(name));
}

std::string hex(uint32_t crc) {
    char digits[16];
    std::snprintf(digits, sizeof digits, "%08x", crc);
    return digits;
}

/// A name without any way out of the folder.
bool is_plain(const std::string& name) {
    return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

[[noreturn]] void fail(const char* doing, const std::string& path, int reason) {
    throw Error(text("cannot ", doing, " ", path, ": ", std::strerror(reason)));
}

void rename_folder(const std::string& from, const std::string& to) {
    if (std::rename(from.c_str(), to.c_str()) != 0) fail("rename the checkpoint to", to, errno);
}

void remove_folder(const std::string& path) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) fail("remove", path, error.value());
}

fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

bool is_there(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

/// With those above it, each synced into its parent, or a crash could lose the folder with all checkpoints in it.
void make_folders(const fs::path& path) {
    std::vector<fs::path> missing;
    for (fs::path p = path; !p.empty() && !is_there(p); p = without_slash(p.parent_path())) missing.push_back(p);
    for (; !missing.empty(); missing.pop_back()) {
        fs::create_directory(missing.back());
        sync_folder_of(missing.back());
    }
}

/// Takes the name away first, so that a kill on the way does not leave half a checkpoint under it.
void remove_checkpoint(const fs::path& folder) {
    const std::string nameless = folder.parent_path() / (std::string(temporary_prefix) + folder.filename().string());
    remove_folder(nameless);
    rename_folder(folder, nameless);
    remove_folder(nameless);
}

/// step → folder, the stand-ins included. A missing folder holds no checkpoints; one that cannot be read throws InputError.
std::map<int64_t, std::string> steps_in(const std::string& checkpoints) {
    std::map<int64_t, std::string> steps, stand_ins;
    std::error_code error;
    if (!fs::exists(checkpoints, error) && !error) return steps;
    fs::directory_iterator entry(checkpoints, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
        const std::string name = entry->path().filename();
        if (const int64_t step = step_of(name); step >= 0) steps[step] = entry->path();
        else if (name.starts_with(old_prefix)) stand_ins[step_of(std::string_view(name).substr(old_prefix.size()))] = entry->path();
    }
    require(!error, "cannot read the folder ", checkpoints, ": ", error.message());
    stand_ins.erase(-1);
    steps.merge(stand_ins);
    return steps;
}

/// Gives a stand-in without successor its name back and removes all else that a kill left.
void clean_up(const std::string& checkpoints) {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints)) names.push_back(entry.path().filename());
    for (const std::string& name : names) {
        const std::string path = fs::path(checkpoints) / name;
        if (name.starts_with(std::string(temporary_prefix) + "step_")) remove_folder(path);
        if (!name.starts_with(old_prefix) || step_of(name.substr(old_prefix.size())) < 0) continue;
        const std::string successor = fs::path(checkpoints) / name.substr(old_prefix.size());
        if (is_there(successor)) remove_folder(path);
        else rename_folder(path, successor);
    }
}

}  // namespace

CheckpointWriter::CheckpointWriter(const std::string& checkpoints, int64_t step) : checkpoints_(without_slash(checkpoints)) {
    CLOVER_CHECK(step >= 0, "step ", step);
    try {
        make_folders(checkpoints_);
        clean_up(checkpoints_);
    } catch (const fs::filesystem_error& error) {
        fail("make the folder", checkpoints, error.code().value());
    }
    final_ = fs::path(checkpoints_) / step_name(step);
    temporary_ = fs::path(checkpoints_) / (std::string(temporary_prefix) + step_name(step));
    if (::mkdir(temporary_.c_str(), 0777) != 0) fail("make the folder", temporary_, errno);
}

CheckpointWriter::~CheckpointWriter() {
    std::error_code ignored;
    if (!committed_) fs::remove_all(temporary_, ignored);
}

std::string CheckpointWriter::path(const std::string& file) const {
    CLOVER_CHECK(is_plain(file) && file != manifest_name, "a checkpoint's file cannot be called '", file, "'");
    return fs::path(temporary_) / file;
}

void CheckpointWriter::add(const std::string& file, uint32_t crc32) {
    struct stat info;
    const std::string where = path(file);
    if (::stat(where.c_str(), &info) != 0) fail("find the checkpoint's file", where, errno);
    files_.push_back({file, uint64_t(info.st_size), crc32});
}

void CheckpointWriter::add_text(const std::string& file, const std::string& contents) {
    write_file_whole(path(file), contents);
    add(file, uint32_t(crc32_z(0, reinterpret_cast<const unsigned char*>(contents.data()), contents.size())));
}

std::string CheckpointWriter::commit(int64_t keep) {
    nlohmann::ordered_json manifest = {{"step", step_of(fs::path(final_).filename().string())}, {"files", nlohmann::ordered_json::array()}};
    for (const File& f : files_) manifest["files"].push_back({{"name", f.name}, {"size", f.size}, {"crc32", hex(f.crc32)}});
    // This also syncs the folder, and with it the names of all its files.
    write_file_whole(fs::path(temporary_) / manifest_name, manifest.dump(1) + "\n");

    const std::string old = fs::path(checkpoints_) / (std::string(old_prefix) + fs::path(final_).filename().string());
    const bool replaces = is_there(final_);
    if (replaces) rename_folder(final_, old);
    rename_folder(temporary_, final_);
    committed_ = true;
    sync_folder_of(final_);

    // Only now is anything older removed. Folders of later steps, left from before a resume at an earlier one, are not older.
    if (replaces) remove_folder(old);
    std::map<int64_t, std::string> steps = steps_in(checkpoints_);
    steps.erase(steps.upper_bound(step_of(fs::path(final_).filename().string())), steps.end());
    for (; keep > 0 && int64_t(steps.size()) > keep; steps.erase(steps.begin())) remove_checkpoint(steps.begin()->second);
    return final_;
}

namespace {

/// A file of a checkpoint, opened after making sure that it is a file (opening a pipe would wait for ever).
std::unique_ptr<FILE, int (*)(FILE*)> open_file(const std::string& path, uint64_t& size) {
    struct stat info;
    const bool there = ::stat(path.c_str(), &info) == 0;
    require(there, path, ": ", std::strerror(errno), "; the checkpoint is not whole");
    require(S_ISREG(info.st_mode), path, ": not a regular file; the checkpoint is not whole");
    size = uint64_t(info.st_size);
    std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
    require(file != nullptr, "cannot open ", path, ": ", std::strerror(errno));
    return file;
}

void verify_file(const std::string& path, uint64_t size, const std::string& crc_expected) {
    uint64_t found = 0;
    const auto file = open_file(path, found);
    require(found == size, path, ": ", found, " bytes, but its manifest.json says ", size, "; the file is damaged");
    std::vector<unsigned char> block(1 << 20);
    uLong crc = 0;
    for (size_t n; (n = std::fread(block.data(), 1, block.size(), file.get())) > 0;) crc = crc32(crc, block.data(), uInt(n));
    require(!std::ferror(file.get()), "cannot read ", path, ": ", std::strerror(errno));
    require(hex(uint32_t(crc)) == crc_expected, path, ": CRC-32 ", hex(uint32_t(crc)), ", but its manifest.json says ", crc_expected,
            "; the file is damaged");
}

std::string read_manifest(const std::string& path) {
    uint64_t size = 0;
    const auto file = open_file(path, size);
    require(size <= longest_manifest, path, ": ", size, " bytes; no manifest is that long");
    std::string contents(size, '\0');
    require(std::fread(contents.data(), 1, size, file.get()) == size, "cannot read ", path, ": ", std::strerror(errno));
    return contents;
}

struct Listed {
    std::string name, crc32;
    uint64_t size;
};

/// Without nlohmann's silent conversions from fractions and negative numbers.
uint64_t unsigned_at(const nlohmann::json& object, const char* key) {
    const nlohmann::json& value = object.at(key);
    require(value.is_number_unsigned(), "its ", key, " is not an integer of at least 0");
    return value.get<uint64_t>();
}

/// The files a manifest lists. nlohmann's own type errors are the checks of its shape.
std::vector<Listed> parse_manifest(const std::string& path, const std::string& folder_name) {
    std::vector<Listed> files;
    const std::string contents = read_manifest(path);
    try {
        const auto shallow = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
            if (depth > 4) throw InputError("it nests too deeply");
            return true;
        };
        const auto manifest = nlohmann::json::parse(contents, shallow);
        const uint64_t step = unsigned_at(manifest, "step");
        // A folder that was renamed by hand is not the step it says.
        require(folder_name.ends_with(step_name(int64_t(step))), "it is of step ", step);
        for (const auto& f : manifest.at("files")) {
            files.push_back({f.at("name").get<std::string>(), f.at("crc32").get<std::string>(), unsigned_at(f, "size")});
            require(is_plain(files.back().name), "it lists a file outside the folder");
        }
    } catch (const nlohmann::json::exception&) {
        throw InputError(text(path, ": not the manifest of a checkpoint; the file is damaged"));
    } catch (const InputError& error) {
        throw InputError(text(path, ": not the manifest of this checkpoint: ", error.what()));
    }
    return files;
}

}  // namespace

void verify_checkpoint(const std::string& folder) {
    const fs::path path = without_slash(folder);
    std::error_code ignored;
    require(fs::is_directory(path, ignored), folder, ": no such folder");
    for (const Listed& f : parse_manifest(path / manifest_name, path.filename())) verify_file(path / f.name, f.size, f.crc32);
}

std::string newest_checkpoint(const std::string& checkpoints, std::vector<std::string>& warnings) {
    const std::map<int64_t, std::string> steps = steps_in(checkpoints);
    require(!steps.empty(), "no checkpoint in ", checkpoints, "; expected folders step_00000100, ... as clover train writes them");
    std::string broken;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        try {
            verify_checkpoint(step->second);
            return step->second;
        } catch (const InputError& error) {
            warnings.push_back(text("skipping the checkpoint of step ", step->first, ": ", error.what()));
            if (broken.empty()) broken = error.what();
        }
    }
    throw InputError(text("no whole checkpoint in ", checkpoints, ", all ", steps.size(), " are damaged; the newest: ", broken));
}

std::vector<std::string> list_checkpoints(const std::string& checkpoints) {
    std::vector<std::string> folders;
    for (const auto& [step, folder] : steps_in(checkpoints)) folders.push_back(folder);
    return folders;
}

std::string resolve_checkpoint(const std::string& path, std::vector<std::string>& warnings) {
    if (fs::exists(fs::path(path) / "manifest.json")) return path;
    const std::string inner = (fs::path(path) / "checkpoints").string();
    return newest_checkpoint(fs::exists(inner) ? inner : path, warnings);
}

}  // namespace clover
