// Text of other people's making (names, values of configs) inside of HTML, SVG, script, CSV and Markdown.
#pragma once
#include <string>
#include <string_view>

namespace clover {

/// For the content of an element and for an attribute in double quotes, in HTML and SVG. Control characters, which XML forbids, become spaces; bytes that are no
/// UTF-8 become U+FFFD.
std::string escape_xml(std::string_view s);
/// A string literal of JSON that can stand inside of <script>: no "</", no "<!--".
std::string script_string(std::string_view s);
/// A field of RFC 4180: in quotes where it holds a comma, a quote or a line break.
std::string csv_field(std::string_view s);
/// For a line or a table cell of Markdown.
std::string escape_markdown(std::string_view s);

}  // namespace clover
