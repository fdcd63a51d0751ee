// An arena: one block of device memory for many tensors, sized before the first step. place() registers tensors, commit()
// allocates the block and gives them their memory; nothing is allocated after that.
#pragma once
#include <string>
#include <vector>

#include "../kernels/device.h"

namespace clover {

class Arena {
public:
    /// `zeroed`: the block starts as zeros. Scratch and activations are written before they are read and do without.
    Arena(const Device& device, std::string name, bool zeroed = true) : device_(device), name_(std::move(name)), zeroed_(zeroed) {}
    ~Arena() { device_.memory.release(base_, bytes_); }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    /// `tensor` gets its memory at commit(); it must stay where it is until then.
    void place(Tensor& tensor, Dtype dtype, std::initializer_list<int64_t> shape) {
        CLOVER_CHECK(!base_);
        tensor = Tensor(nullptr, dtype, shape);
        waiting_.push_back({&tensor, bytes_});
        bytes_ += (tensor.bytes() + 255) / 256 * 256;
    }
    void commit() {
        CLOVER_CHECK(!base_);
        base_ = device_.memory.allocate(bytes_, zeroed_);
        for (const Waiting& w : waiting_) w.tensor->data = static_cast<char*>(base_) + w.offset;
        waiting_.clear();
    }
    const std::string& name() const { return name_; }
    size_t bytes() const { return bytes_; }

private:
    struct Waiting {
        Tensor* tensor;
        size_t offset;
    };
    const Device& device_;
    std::string name_;
    bool zeroed_;
    std::vector<Waiting> waiting_;
    void* base_ = nullptr;
    size_t bytes_ = 0;
};

/// Commits the arenas of a model, all or none. Throws InputError saying what is needed and what there is.
inline void commit_together(const Device& device, std::initializer_list<Arena*> arenas) {
    size_t needed = 0;
    std::string parts;
    for (const Arena* arena : arenas) {
        needed += arena->bytes();
        if (arena->bytes() > 0) parts += text(parts.empty() ? "" : ", ", arena->name(), " ", arena->bytes() >> 20, " MiB");
    }
    require(needed <= device.memory.available(), "not enough memory: the model needs ", needed >> 20, " MiB (", parts, "), ",
            device.memory.available() >> 20, " MiB are available; lower train.micro_batch or model.context, or take a smaller model");
    for (Arena* arena : arenas) arena->commit();
}

}  // namespace clover
