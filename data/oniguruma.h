// Regular expressions as a tokenizer.json spells them, for Oniguruma with Ruby's syntax, translated to PCRE2. The two differ in what a bracket inside a
// bracket means (Oniguruma: a nested class, whose characters join the outer one), in \s \w \h \v ^ $ and in their versions of Unicode. What the translator
// does not know is refused with the byte where it stands. (Oniguruma 6.9, doc/RE; pcre2pattern(3).)
#pragma once
#include <string>
#include <string_view>

namespace clover {

/// For PCRE2_UTF without PCRE2_MULTILINE or PCRE2_DOTALL, newline LF. Throws InputError that opens with `origin`.
std::string oniguruma_to_pcre2(std::string_view pattern, const std::string& origin);

}  // namespace clover
