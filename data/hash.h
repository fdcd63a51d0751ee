// A 64-bit hash of bytes, the same on every machine and in every run: to tell files apart and to order documents, not to keep secrets.
#pragma once
#include <cstdint>
#include <string_view>

namespace clover {

/// MurmurHash3's finalizer: every bit of x reaches every bit of the result.
constexpr uint64_t mix64(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
}

/// FNV-1a, then mix64: the last bytes reach FNV's upper bits too weakly.
inline uint64_t hash64(std::string_view bytes, uint64_t seed = 0xcbf29ce484222325) {
    for (unsigned char c : bytes) seed = (seed ^ c) * 0x100000001b3;
    return mix64(seed);
}

}  // namespace clover
