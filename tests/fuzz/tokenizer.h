// What the fuzz targets of tokenizers share: a file that loads then encodes itself, and decodes what came of it.
#pragma once
#include <memory>

#include "../../data/tokenizer.h"
#include "fuzz.h"

namespace clover::fuzz {

using LoadTokenizer = std::unique_ptr<Tokenizer> (*)(TokenizerFile, const std::string&, const std::string&);

inline void load_and_use(std::string_view input, const char* name, LoadTokenizer load) {
    take_or_refuse(input.size(), [&] {
        const auto tokenizer = load({name, std::string(input)}, "fuzz", "");
        std::vector<int32_t> ids;
        tokenizer->encode(input.substr(0, 4096), ids);
        for (int32_t id : ids)
            if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
        tokenizer->decode(ids, true);
        tokenizer->description();
    });
}

}  // namespace clover::fuzz
