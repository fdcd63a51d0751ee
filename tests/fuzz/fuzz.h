// What the fuzz targets share (`make fuzz`; libFuzzer with AddressSanitizer and UBSan). A target hands its input to one reader of files. The reader may take it or refuse
// it with InputError; anything else, a crash, another exception, more than ten seconds or more memory than 64 MB + 4 × the input, is a finding.
#pragma once
#include <sanitizer/allocator_interface.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "../../kernels/error.h"

namespace clover::fuzz {

/// Counts the bytes on the heap while it lives, of all threads, and aborts beyond the limit.
class HeapLimit {
public:
    explicit HeapLimit(size_t input) {
        static const bool hooked = __sanitizer_install_malloc_and_free_hooks(&HeapLimit::allocated, &HeapLimit::freed) > 0;
        if (!hooked) std::abort();
        live() = 0;
        most() = int64_t{64} * 1'000'000 + 4 * int64_t(input);
    }
    ~HeapLimit() { most() = 0; }
    HeapLimit(const HeapLimit&) = delete;

private:
    static std::atomic<int64_t>& live() {
        static std::atomic<int64_t> bytes = 0;
        return bytes;
    }
    static std::atomic<int64_t>& most() {
        static std::atomic<int64_t> bytes = 0;
        return bytes;
    }
    static void allocated(const volatile void*, size_t bytes) {
        if (most() == 0) return;
        if ((live() += int64_t(bytes)) > most()) {
            most() = 0;
            std::fprintf(stderr, "more than 64 MB + 4 x input on the heap\n");
            std::abort();
        }
    }
    static void freed(const volatile void* p) {
        if (most() != 0) live() -= int64_t(__sanitizer_get_allocated_size(p));
    }
};

template <class F>
void take_or_refuse(size_t input, F f) {
    const HeapLimit limit(input);
    try {
        f();
    } catch (const InputError& error) {
        if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();  // a message is one line
    }
}

/// A file in memory-backed storage, written anew for each input.
inline std::string file(const std::string& name, std::string_view contents) {
    const std::string path = "/dev/shm/clover-fuzz-" + std::to_string(::getpid()) + "-" + name;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
    return path;
}

inline std::string_view view(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

}  // namespace clover::fuzz
