#include "embedding.h"

namespace clover {

const EmbeddingOps embedding_cuda = {};

}  // namespace clover
