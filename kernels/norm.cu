#include "norm.h"

namespace clover {

const NormOps norm_cuda = {};

}  // namespace clover
