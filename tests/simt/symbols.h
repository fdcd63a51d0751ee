// Names of kernels and source lines, from the debug information of the running program. Slow: for reports.
#pragma once
#include <cuda_runtime.h>

#include <string>

namespace simt {

/// "name" or "name<arguments>", without namespaces.
std::string kernel_name(const void* kernel);
/// "file:line" of the call that returns to `place`; where that was inlined, also its callers: "file:line (called at file:line)".
std::string source_line(const void* place);
/// Whether both are the same place of the source: the compiler may have made copies of it.
bool same_source(const void* a, const void* b);
/// "(x,y,z)"
std::string text_of(uint3 v);

}  // namespace simt
