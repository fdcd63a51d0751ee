// Text files: the input's first byte says which of .jsonl, .txt, .jsonl.gz and .txt.gz the rest is.
#include "../../data/documents.h"

#include "../../data/utf8.h"
#include "fuzz.h"

using namespace clover;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 1) return 0;
    const char* endings[] = {"a.jsonl", "a.txt", "a.jsonl.gz", "a.txt.gz"};
    const std::string path = fuzz::file(endings[data[0] % 4], fuzz::view(data + 1, size - 1));
    // A packed file is as long as what it unpacks to; a thousandfold is the most that deflate does.
    fuzz::take_or_refuse(data[0] % 4 < 2 ? size : 1032 * size, [&] {
        DocumentReader reader({path});
        RawDocument raw;
        std::string scratch;
        while (reader.next(raw)) {
            const std::string_view text = document_text(raw, {}, reader.place(raw), scratch);
            if (raw.json && !is_utf8(text)) std::abort();
        }
    });
    return 0;
}
