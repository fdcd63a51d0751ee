#include "tokenizer_styles.h"

#include "../kernels/error.h"

namespace clover {

const std::vector<TokenizerStyle>& tokenizer_styles() {
    static const std::vector<TokenizerStyle> styles = {
        {"bloom", {"<unk>", "<s>", "</s>", "<pad>"},
         R"({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": " ?[^(\\s|[.,!?…。，、।۔،])]+"}, "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})",
         R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": false})",
         R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": false})"},
        {"gpt2", {"<|endoftext|>"},
         R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})",
         R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true})",
         R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})"},
    };
    return styles;
}

const TokenizerStyle& find_tokenizer_style(std::string_view name) {
    std::string names;
    for (const TokenizerStyle& style : tokenizer_styles()) {
        if (style.name == name) return style;
        names += (names.empty() ? "" : ", ") + std::string(style.name);
    }
    throw InputError(text("there is no tokenizer style \"", name, "\"; expected one of ", names));
}

}  // namespace clover
