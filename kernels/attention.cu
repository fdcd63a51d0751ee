#include "attention.h"

namespace clover {

const AttentionOps attention_cuda = {};

}  // namespace clover
