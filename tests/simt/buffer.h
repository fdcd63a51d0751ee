// What the harness's own tests share: memory of the device, and the message of a fault.
#pragma once
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "simt.h"

namespace simt::test {

/// A call of the runtime succeeds. A Fault that it throws passes through (doctest's own REQUIRE(call()) would end the test with it).
inline void expect(cudaError_t status) { REQUIRE(status == cudaSuccess); }

/// Memory of the current device, written or not.
template <class T>
struct Buffer {
    T* p = nullptr;
    size_t count;
    explicit Buffer(size_t n) : count(n) { expect(cudaMalloc(&p, n * sizeof(T))); }
    explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) { write(values); }
    ~Buffer() { cudaFree(p); }
    Buffer(const Buffer&) = delete;
    void write(const std::vector<T>& values) {
        expect(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> values() const {
        std::vector<T> v(count);
        expect(cudaMemcpy(v.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
};

/// The message of the fault that run() ends with; empty if there is none.
inline std::string fault_of(const std::function<void()>& run) {
    try {
        run();
    } catch (const Fault& fault) {
        return fault.what();
    }
    return "";
}
inline void check_contains(const std::string& text, const std::string& part) {
    const bool found = !text.empty() && text.find(part) != std::string::npos;
    CHECK_MESSAGE(found, "\"", text, "\" lacks \"", part, "\"");
}

}  // namespace simt::test
