// What the suites share: the devices to run on, owned tensors, random values, the normalised error against f64.
//
// Suites run every operation on every device of test_devices(): the CPU, and CUDA in the harness (tests/simt/) or on a real GPU. Tensors of
// the suites lie in memory that the host and the kernels both reach.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "../kernels/device.h"
#include "../kernels/random.h"
#include "device_memory.h"

namespace clover::test {

/// The CUDA device. Null, with the reason printed once, where the build has CUDA but no GPU can be used.
inline const Device* usable_cuda() {
    static const Device* const device = [] {
        std::string why_not = "the build is without it";
        const Device* found = cuda_device && cuda::allocate ? cuda_device(why_not) : nullptr;
        if (!found) std::printf("The suites run on the CPU alone, not on CUDA: %s\n", why_not.c_str());
        return found;
    }();
    return device;
}
/// Also of a device whose table of attention is another (attention_reference.h).
inline bool is_cuda(const Device& device) { return std::string(device.name).starts_with("cuda"); }
/// For INFO.
inline std::string on(const Device& device) { return std::string("on ") + device.name; }
/// Kernels take about a thousand times as long in the harness as on a GPU: suites choose smaller sizes there.
inline bool in_harness(const Device& device) { return is_cuda(device) && cuda::in_harness(); }

using Devices = std::vector<std::reference_wrapper<const Device>>;
/// The CPU, and CUDA where it can be used.
inline Devices test_devices() {
    Devices devices{find_device("cpu")};
    if (const Device* device = usable_cuda()) devices.push_back(*device);
    return devices;
}

/// Memory of exactly `bytes`, zeroed.
struct TestMemory {
    explicit TestMemory(size_t bytes) {
        bytes = std::max<size_t>(bytes, 1);
        if (usable_cuda())
            p = cuda::allocate(bytes);
        else
            p = std::memset(::operator new(bytes, alignment), 0, bytes);
    }
    TestMemory(TestMemory&& m) noexcept : p(std::exchange(m.p, nullptr)) {}
    ~TestMemory() {
        if (!p) return;
        if (usable_cuda())
            cuda::release(p);
        else
            ::operator delete(p, alignment);
    }
    void* p;
    static constexpr std::align_val_t alignment{64};
};
/// Waits until kernels have done what they were asked for.
inline void synchronize() {
    if (usable_cuda()) cuda::synchronize();
}

/// A tensor with its memory. The host reads and writes it when no kernel does.
struct Owned {
    TestMemory memory;
    Tensor t;
    Owned(Dtype dtype, std::initializer_list<int64_t> shape) : memory(Tensor(nullptr, dtype, shape).bytes()), t(memory.p, dtype, shape) {}
    Owned(const Owned&) = delete;
    Owned(Owned&&) = default;
    operator Tensor() const { return t; }
    double at(int64_t i) const {
        synchronize();
        return element(i);
    }
    void set(int64_t i, double x) {
        synchronize();
        set_element(i, x);
    }
    /// Element i = f(i).
    template <class F>
    void fill(F&& f) {
        synchronize();
        for (int64_t i = 0; i < t.count(); i++) set_element(i, f(i));
    }
    std::vector<double> values() const {
        synchronize();
        if (usable_cuda() && t.bytes() > 0) CHECK(cuda::written(t.data, t.bytes()));
        std::vector<double> v(size_t(t.count()));
        for (int64_t i = 0; i < t.count(); i++) v[size_t(i)] = element(i);
        return v;
    }
    /// For what kernels of the device are to write: every byte becomes 0xff, NaN, and in the harness reading it before is a fault.
    void forget(const Device& device) {
        synchronize();
        std::memset(t.data, 0xff, t.bytes());
        if (is_cuda(device)) cuda::forget(t.data, t.bytes());
    }

private:
    double element(int64_t i) const {
        switch (t.dtype) {
            case Dtype::f32: return t.as<float>()[i];
            case Dtype::bf16: return to_float(t.as<bf16>()[i]);
            case Dtype::f16: return to_float(t.as<f16>()[i]);
            default: return t.as<int32_t>()[i];
        }
    }
    void set_element(int64_t i, double x) {
        switch (t.dtype) {
            case Dtype::f32: t.as<float>()[i] = float(x); break;
            case Dtype::bf16: t.as<bf16>()[i] = to_bf16(float(x)); break;
            case Dtype::f16: t.as<f16>()[i] = to_f16(float(x)); break;
            default: t.as<int32_t>()[i] = int32_t(x);
        }
    }
};

/// For results of the device.
// Not inlined: GCC 12 would warn of a read past the shape that does not happen.
[[gnu::noinline]] inline Owned unwritten(const Device& device, Dtype dtype, std::initializer_list<int64_t> shape) {
    Owned o(dtype, shape);
    o.forget(device);
    return o;
}

inline Owned copy_of(const Owned& from) {
    Owned o(from.t.dtype, {from.t.count()});
    synchronize();
    std::memcpy(o.t.data, from.t.data, from.t.bytes());
    o.t.rank = from.t.rank, o.t.shape = from.t.shape;
    return o;
}

/// Normal values, the same for the same `tag`; the tensor's own dtype rounds them.
inline Owned random_tensor(Dtype dtype, std::initializer_list<int64_t> shape, uint32_t tag, double scale = 1, double mean = 0) {
    Owned o(dtype, shape);
    o.fill([&](int64_t i) { return mean + scale * normal(random_bits(1, Stream::initialisation, tag, 0, uint64_t(i))); });
    return o;
}

/// What activations and weights are stored in.
constexpr Dtype float_dtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
/// Of each value, what one rounding to a 16-bit dtype changes at most.
constexpr double rounding_of(Dtype dtype) { return dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11; }

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

inline bool same_bits(Tensor a, Tensor b) {
    synchronize();
    return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

/// A context with a workspace of exactly `bytes` in the device's memory, not written yet.
struct TestContext {
    Context ctx;
    explicit TestContext(const Device& device, size_t bytes = 0) : ctx(device) {
        if (is_cuda(device)) ctx.device_state = shared_state();
        reserve(bytes);
    }
    ~TestContext() {
        if (is_cuda(ctx.device)) cuda::settle();
        ctx.device.memory.release(ctx.workspace.base, ctx.workspace.size);
        if (is_cuda(ctx.device)) shared_state() = ctx.device_state;
    }
    TestContext(const TestContext&) = delete;
    /// Makes the workspace of another size. Outside the harness, which knows what was written, it is filled with NaN.
    void reserve(size_t bytes) {
        ctx.device.memory.release(ctx.workspace.base, ctx.workspace.size);
        ctx.workspace.base = ctx.device.memory.allocate(bytes, false);
        ctx.workspace.size = bytes;
        if (bytes == 0 || in_harness(ctx.device)) return;
        const std::vector<char> nan(bytes, char(0xff));
        ctx.device.memory.from_host(ctx, ctx.workspace.base, nan.data(), bytes);
    }
    operator Context&() { return ctx; }

private:
    /// The stream and pinned memory of CUDA contexts, which take longer to make than most tests run. Never freed: at exit CUDA may be gone.
    static std::shared_ptr<void>& shared_state() {
        static auto* const state = new std::shared_ptr<void>;
        return *state;
    }
};

/// An f32 tensor in the device's memory, wherever that is.
inline std::vector<float> floats_of(const Device& device, Tensor t) {
    std::vector<float> values(size_t(t.count()));
    CLOVER_CHECK(t.dtype == Dtype::f32);
    TestContext ctx(device);
    synchronize();
    device.memory.to_host(ctx, values.data(), t.data, t.bytes());
    return values;
}
inline void write_floats(const Device& device, Tensor t, const std::vector<float>& values) {
    CLOVER_CHECK(t.dtype == Dtype::f32 && size_t(t.count()) == values.size());
    TestContext ctx(device);
    synchronize();
    device.memory.from_host(ctx, t.data, values.data(), t.bytes());
    synchronize();
}

/// What the work that f asks for is refused with, empty if it is done: the host's check, or in the harness the stop of a kernel.
inline std::string refusal(const std::function<void()>& f) {
    try {
        f();
        synchronize();
    } catch (const std::runtime_error& e) {
        return e.what();
    }
    return "";
}
/// Whether a check inside a kernel ends all work of the process on this device, so that it cannot be tested.
inline bool stops_kernels(const Device& device) { return is_cuda(device) && !cuda::in_harness(); }

/// The orders of blocks, warps and lanes that results must not depend on; on a GPU, which chooses its own, the number of runs.
inline std::vector<int> schedules(const Device& device) {
    std::vector<int> seeds(in_harness(device) ? 20 : 5);
    std::iota(seeds.begin(), seeds.end(), 0);
    return seeds;
}
/// Orders what is launched during its life by `seed`, in the harness.
struct LaunchOrder {
    bool harness;
    LaunchOrder(const Device& device, int seed) : harness(in_harness(device)) {
        if (harness) cuda::set_schedule(uint64_t(seed));
    }
    ~LaunchOrder() {
        if (harness) cuda::set_schedule(0);
    }
    LaunchOrder(const LaunchOrder&) = delete;
};

/// Calls f() under each model of how a tensor core adds, in the harness; elsewhere once.
template <class F>
void for_mma_models(const Device& device, F&& f) {
    if (!in_harness(device)) return f();
    for (int model : {1, 2, 0}) {
        CAPTURE(model);
        cuda::set_mma(model);
        f();
    }
}

}  // namespace clover::test
