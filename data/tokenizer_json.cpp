#include "tokenizer_json.h"

#include "../kernels/error.h"

namespace clover {

std::unique_ptr<Tokenizer> load_tokenizer_json(TokenizerFile, const std::string& origin, const std::string&) {
    throw InputError(text(origin, ": this build reads no such file"));
}

}  // namespace clover
