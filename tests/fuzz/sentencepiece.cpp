// SentencePiece models.
#include "../../data/sentencepiece.h"

#include "tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    clover::fuzz::load_and_use(clover::fuzz::view(data, size), "tokenizer.model", clover::load_sentencepiece);
    return 0;
}
