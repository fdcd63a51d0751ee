// A context for suites that call a table of operations directly: the CPU operations ask nothing of the device but its memory.
#pragma once
#include "support.h"

namespace clover::test {

inline const Device& bare_device() {
    static const Device device{};
    return device;
}

}  // namespace clover::test
