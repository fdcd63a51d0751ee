// A folder of its own for one test case, gone with it.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

namespace clover::test {

struct TemporaryFolder {
    std::filesystem::path path;
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "clover-test-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
        path = name;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    std::string operator/(std::string_view name) const { return (path / name).string(); }
    /// Writes a file and returns its path.
    std::string file(std::string_view name, std::string_view contents) const {
        std::ofstream(*this / name, std::ios::binary) << contents;
        return *this / name;
    }
    std::string contents(std::string_view name) const {
        std::ifstream in(*this / name, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(in), {});
    }
    size_t file_count() const {
        size_t n = 0;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) n += entry.is_regular_file();
        return n;
    }
};

}  // namespace clover::test
