// `clover corpus`: turns manuals and source code that are on the machine into per-language text files with held-out
// validation documents, and prints what it made: language, documents, bytes, share.
//
// The list of languages and where their files lie is a TOML file, configs/corpus-debian.toml:
//   packages = ["debian-reference-de", …]   what to install where nothing is found (optional)
//   [[language]]
//   name = "de"            names the files; letters, digits, - and _
//   files = ["/usr/share/doc/installation-guide-amd64/de/install.de.txt.gz", …]   (shell patterns; ** crosses folders)
//   kind = "manual"        manual: cut into documents at its headings; code: one document per file
//   limit = 8000000        at most so many bytes of the language (optional)
//   encoding = "KOI8-R"    what the files are written in, any name iconv knows (optional; UTF-8)
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace clover {

struct CorpusRow {
    std::string language;
    int64_t train_documents = 0, valid_documents = 0, train_bytes = 0, valid_bytes = 0;
};

/// Writes OUT/LANGUAGE.train.jsonl and OUT/LANGUAGE.valid.jsonl for each language, one {"text": …} a line, and OUT/LANGUAGE.train.txt, the same text
/// with nothing around it, for programs that read lines (spm_train). Each appears whole or not at all. Files are taken in the order
/// of their paths, so that the same files give the same bytes; a document that would exceed `limit` is passed over, as is one
/// that came before, in any language. Of a language's documents one in 20 is held out, at least one where there are two: those
/// whose texts have the smallest hashes, so that it does not depend on the order of files.
/// Warnings on stderr: files that are not text in the encoding, which are left out, and languages without any document, which
/// get no row. No language at all throws InputError that says what to install. Holds one language in memory.
std::vector<CorpusRow> prepare_corpus(const std::string& list, const std::string& out);

/// Rows with aligned columns and a total; shares are of the bytes.
std::string corpus_table(const std::vector<CorpusRow>& rows);

}  // namespace clover
