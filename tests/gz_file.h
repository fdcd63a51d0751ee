// A gzip file for one test case.
#pragma once
#include <zlib.h>

#include <algorithm>

#include "temporary_folder.h"

namespace clover::test {

/// Packs `contents` into a file of the folder and returns its path.
inline std::string gz_file(const TemporaryFolder& folder, std::string_view name, std::string_view contents) {
    const gzFile out = ::gzopen((folder / name).c_str(), "wb");
    for (size_t i = 0; i < contents.size();) i += size_t(::gzwrite(out, &contents[i], unsigned(std::min(contents.size() - i, size_t{1} << 20))));
    ::gzclose(out);
    return folder / name;
}

}  // namespace clover::test
