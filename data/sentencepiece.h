// SentencePiece models (.model: a protocol-buffer ModelProto), BPE and unigram, with byte fallback (Kudo & Richardson 2018; google/sentencepiece).
#pragma once
#include "tokenizer.h"

namespace clover {

/// `origin` opens messages (the path). Throws InputError with the byte offset or the piece that is wrong.
std::unique_ptr<Tokenizer> load_sentencepiece(TokenizerFile file, const std::string& origin, const std::string& end_of_document = "");

}  // namespace clover
