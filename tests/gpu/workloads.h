// What speed and traffic are measured on: one representative call of every operation. A GPU takes them at full size (gpu_check.cpp), the
// harness small (count_traffic.cpp).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../../kernels/device.h"

namespace clover::gpu {

struct Sizes {
    int64_t rows, columns;            // of activations, N and C
    int64_t logit_rows, vocab;        // R and V
    int64_t parameters;               // of the optimizer
    int64_t batch, sequence, heads;   // of attention
    int64_t cached;                   // positions before a decoded token
    int64_t product;                  // M = N = K of square products
};
constexpr Sizes full_size{65536, 2048, 4096, 50304, int64_t{1} << 28, 4, 4096, 16, 4096, 8192};
constexpr Sizes small_size{128, 1024, 8, 4096, 1 << 16, 1, 256, 2, 128, 128};

/// Device memory that lives as long as this.
class Memory {
public:
    explicit Memory(Context& ctx) : ctx_(ctx) {}
    ~Memory();
    Memory(const Memory&) = delete;
    /// Normal values; integers below `limit`; zeros; not initialised.
    Tensor random(Dtype dtype, std::initializer_list<int64_t> shape, double scale = 1);
    Tensor ids(int64_t n, int64_t limit);
    Tensor zeros(Dtype dtype, std::initializer_list<int64_t> shape);
    Tensor unwritten(Dtype dtype, std::initializer_list<int64_t> shape);
    void copy_from(Tensor to, const void* host);
    Context& context() { return ctx_; }

private:
    Tensor take(Dtype dtype, std::initializer_list<int64_t> shape, bool zeroed);
    Context& ctx_;
    std::vector<std::pair<void*, size_t>> blocks_;
};

struct Workload {
    double bytes = 0;  // the least that must be read and written
    double flops = 0;  // as the field counts them; 0: bound by memory
    size_t workspace = 0;
    std::function<void(Context&)> run;
};
struct NamedWorkload {
    std::string name;
    std::function<Workload(Memory&, const Sizes&)> make;
};
/// Every operation, forward and backward.
const std::vector<NamedWorkload>& workloads();

/// Makes a workload, gives the context the workspace it needs, and calls f(workload).
void with_workload(Context& ctx, const NamedWorkload& named, const Sizes& sizes, const std::function<void(const Workload&)>& f);

}  // namespace clover::gpu
