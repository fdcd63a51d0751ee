// Attention over a cache of keys and values; see attention_decode.cpp.
#pragma once
#include "attention.h"

namespace clover::attention {

size_t decode_workspace_bytes(const AttentionDecode&);
void decode(Context&, const AttentionDecode&);

}  // namespace clover::attention
