// Context: what the kernels of one rank share: the device's table of operations, scratch memory, matrix product plans.
// A rank is a thread; nothing here is global, so several ranks live in one process.
#pragma once
#include <memory>

#include "tensor.h"

namespace clover {

struct Device;

/// Scratch memory that an operation borrows for the length of one call. Sized once, before the first step.
class Workspace {
public:
    void* base = nullptr;
    size_t size = 0;

    /// n elements, 256-byte aligned, not initialised. Throws when the planned size does not suffice.
    template <class T>
    T* take(int64_t n) {
        const size_t bytes = padded(size_t(n) * sizeof(T));
        CLOVER_CHECK(used_ + bytes <= size, "The workspace holds ", size, " bytes, in use ", used_, ", wanted ", bytes);
        T* p = reinterpret_cast<T*>(static_cast<char*>(base) + used_);
        used_ += bytes;
        return p;
    }
    /// Bytes that take(n) uses up for n elements of `element` bytes; workspace_bytes functions add these.
    static size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

private:
    friend class WorkspaceScope;
    size_t used_ = 0;
};

/// Returns what was taken from the workspace during its life.
class WorkspaceScope {
public:
    explicit WorkspaceScope(Workspace& w) : workspace_(w), mark_(w.used_) {}
    ~WorkspaceScope() { workspace_.used_ = mark_; }
    WorkspaceScope(const WorkspaceScope&) = delete;
    WorkspaceScope& operator=(const WorkspaceScope&) = delete;

private:
    Workspace& workspace_;
    size_t mark_;
};

struct Context {
    explicit Context(const Device& d) : device(d) {}

    const Device& device;
    Workspace workspace;
    /// Matrix product plans, made once per shape; owned by the device's gemm implementation.
    std::shared_ptr<void> gemm_plans;
    /// What else the device keeps for a rank (CUDA: its stream); made on first use, owned by the device.
    std::shared_ptr<void> device_state;
};

}  // namespace clover
