// CPU attention as on a machine without AMX; the tests run both.
#pragma once
#include "attention.h"

namespace clover {

extern const AttentionOps attention_cpu_portable;

}  // namespace clover
