// tokenizer.json.
#include "../../data/tokenizer_json.h"

#include "tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    clover::fuzz::load_and_use(clover::fuzz::view(data, size), "tokenizer.json", clover::load_tokenizer_json);
    return 0;
}
