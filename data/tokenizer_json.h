// The tokenizer.json of Hugging Face `tokenizers`, for byte-level BPE: BLOOM's and GPT-2's pipelines and what lies between.
//   text → added tokens cut out → normalizer → pre_tokenizer → BPE within each piece → ids          (post_processor: begin and end tokens)
#pragma once
#include "tokenizer.h"

namespace clover {

/// `origin` opens messages (the path). Throws InputError naming the member of the file that is wrong or not supported; nothing is skipped silently.
std::unique_ptr<Tokenizer> load_tokenizer_json(TokenizerFile file, const std::string& origin, const std::string& end_of_document = "");

}  // namespace clover
