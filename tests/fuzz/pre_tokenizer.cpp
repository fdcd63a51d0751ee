// Regular expressions of a tokenizer.json, which anybody may write: the input up to the first zero byte is one, the rest is text to cut. The pieces of Isolated put
// together are the text.
#include "../../data/pre_tokenizer.h"

#include "../../data/utf8.h"
#include "fuzz.h"

using namespace clover;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view input = fuzz::view(data, size);
    const size_t end = std::min(input.find('\0'), size);
    std::string pattern_scratch, text_scratch;
    const std::string_view pattern = valid_utf8(input.substr(0, end), pattern_scratch), text = valid_utf8(input.substr(std::min(end + 1, size)), text_scratch);
    fuzz::take_or_refuse(size, [&] {
        const PreTokenizer split({{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}}, "fuzz");
        std::string together;
        split.split(text, [&](std::string_view piece) {
            if (piece.empty()) std::abort();
            together += piece;
        });
        if (together != text) std::abort();
    });
    return 0;
}
