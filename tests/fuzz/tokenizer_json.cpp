// tokenizer.json; what loads then encodes the file itself, and decodes what came of it.
#include "../../data/tokenizer_json.h"

#include "fuzz.h"

using namespace clover;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view input = fuzz::view(data, size);
    fuzz::take_or_refuse(size, [&] {
        const auto tokenizer = load_tokenizer_json({"tokenizer.json", std::string(input)}, "fuzz");
        std::vector<int32_t> ids;
        tokenizer->encode(input.substr(0, 4096), ids);
        for (int32_t id : ids)
            if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
        tokenizer->decode(ids, true);
        tokenizer->description();
    });
    return 0;
}
