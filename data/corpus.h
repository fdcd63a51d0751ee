// `clover corpus`: turns manuals and source code that are on the machine into per-language token files with held-out
// validation documents, and prints what it made: language, documents, bytes, tokens, share.
//
// The list of languages and where their files lie is a TOML file, configs/corpus-debian.toml:
//   [[language]]
//   name = "de"
//   files = ["/usr/share/doc/installation-guide-amd64/de/install.de.txt.gz", …]   (shell patterns; ** crosses folders)
//   kind = "manual"        manual: cut into documents at its headings; code: one document per file
//   limit = 8000000        at most so many bytes of the language (optional)
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer.h"

namespace clover {

struct CorpusRow {
    std::string language;
    int64_t train_documents = 0, valid_documents = 0, train_bytes = 0, valid_bytes = 0, train_tokens = 0, valid_tokens = 0;
};

/// Writes OUT/LANGUAGE.train.{bin,idx,json} and OUT/LANGUAGE.valid.{bin,idx,json} for each language. Every 20th document (by a
/// hash of its text, so that it does not depend on the order of files) is held out. A document that occurs twice is kept once.
/// A pattern that matches nothing is a warning on stderr; a language without any text is left out with a warning; no language
/// at all throws InputError that says which packages to install.
std::vector<CorpusRow> prepare_corpus(const std::string& list, const std::string& out, const Tokenizer& tokenizer);

std::string corpus_table(const std::vector<CorpusRow>& rows);

}  // namespace clover
