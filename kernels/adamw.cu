#include "adamw.h"

namespace clover {

const AdamwOps adamw_cuda = {};

}  // namespace clover
