// Hostile text inside of other languages.
#include "../report/escape.h"

#include <doctest/doctest.h>

using namespace clover;

TEST_SUITE("escape") {
    TEST_CASE("XML and HTML") {
        CHECK(escape_xml("<a href=\"x\">'&'</a>") == "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
        CHECK(escape_xml("ü \x01\n\x7f.") == "ü    .");
        CHECK(escape_xml("\xff") == "\xef\xbf\xbd");
    }
    TEST_CASE("JSON inside of a script") {
        CHECK(script_string("</script><!--\"\\&") == "\"\\u003c/script\\u003e\\u003c!--\\\"\\\\\\u0026\"");
        CHECK(script_string("\xff\n") == "\"\xef\xbf\xbd\\n\"");
    }
    TEST_CASE("CSV and Markdown") {
        CHECK(csv_field("plain name") == "plain name");
        CHECK(csv_field("a\nb") == "\"a\nb\"");
        CHECK(csv_field("a\"b") == "\"a\"\"b\"");
        CHECK(escape_markdown("a|b <c>\nd") == "a\\|b &lt;c> d");
    }
}
