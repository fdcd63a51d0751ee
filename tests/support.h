// What the suites share: owned tensors, random values, the normalised error against f64.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "../kernels/device.h"
#include "../kernels/random.h"

namespace clover::test {

/// A tensor with its memory.
struct Owned {
    std::vector<char> memory;
    Tensor t;
    Owned(Dtype dtype, std::initializer_list<int64_t> shape) {
        t = Tensor(nullptr, dtype, shape);
        memory.assign(t.bytes() + 64, 0);
        char* p = memory.data();
        t.data = p + (64 - reinterpret_cast<uintptr_t>(p) % 64) % 64;
    }
    Owned(const Owned&) = delete;
    Owned(Owned&&) = default;
    operator Tensor() const { return t; }
    double at(int64_t i) const {
        switch (t.dtype) {
            case Dtype::f32: return t.as<float>()[i];
            case Dtype::bf16: return to_float(t.as<bf16>()[i]);
            default: return t.as<int32_t>()[i];
        }
    }
    void set(int64_t i, double x) {
        switch (t.dtype) {
            case Dtype::f32: t.as<float>()[i] = float(x); break;
            case Dtype::bf16: t.as<bf16>()[i] = to_bf16(float(x)); break;
            default: t.as<int32_t>()[i] = int32_t(x);
        }
    }
    std::vector<double> values() const {
        std::vector<double> v(size_t(t.count()));
        for (int64_t i = 0; i < t.count(); i++) v[size_t(i)] = at(i);
        return v;
    }
};

/// Normal values, the same for the same `tag`; the tensor's own dtype rounds them.
inline Owned random_tensor(Dtype dtype, std::initializer_list<int64_t> shape, uint32_t tag, double scale = 1, double mean = 0) {
    Owned o(dtype, shape);
    for (int64_t i = 0; i < o.t.count(); i++)
        o.set(i, mean + scale * normal(random_bits(1, Stream::initialisation, tag, 0, uint64_t(i))));
    return o;
}

/// √(Σ (a − b)² / Σ b²): the normalised error of a against the reference b.
inline double normalised_error(const std::vector<double>& a, const std::vector<double>& b) {
    CHECK(a.size() == b.size());
    double difference = 0, reference = 0;
    for (size_t i = 0; i < a.size() && i < b.size(); i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        reference += b[i] * b[i];
    }
    if (!std::isfinite(difference)) return INFINITY;
    return reference == 0 ? std::sqrt(difference) : std::sqrt(difference / reference);
}

inline bool same_bits(Tensor a, Tensor b) { return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, a.bytes()) == 0; }

/// A CPU context with `bytes` of workspace, not written yet: most suites need a small part of it.
struct TestContext {
    std::unique_ptr<char[]> memory;
    Context ctx;
    explicit TestContext(const Device& device, size_t bytes = 64 << 20) : memory(new char[bytes + 64]), ctx(device) {
        char* p = memory.get();
        ctx.workspace.base = p + (64 - reinterpret_cast<uintptr_t>(p) % 64) % 64;
        ctx.workspace.size = bytes;
    }
    operator Context&() { return ctx; }
};

}  // namespace clover::test
