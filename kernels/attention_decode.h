// Attention over a cache of keys and values; see attention_decode.cpp.
#pragma once
#include "attention.h"

namespace clover::attention {

/// `portable`: without AMX.
template <bool portable>
size_t decode_workspace_bytes(const AttentionDecode&);
template <bool portable>
void decode(Context&, const AttentionDecode&);

}  // namespace clover::attention
