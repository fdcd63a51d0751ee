// The README's config reference is the program's own.
#include <fstream>
#include <iterator>

#include "../model/config.h"
#include "support.h"

TEST_SUITE("readme") {
    TEST_CASE("README.md holds the config reference as `clover train --help` prints it") {
        std::ifstream in("README.md");
        const std::string readme(std::istreambuf_iterator<char>(in), {});
        CHECK(readme.find(clover::config_reference()) != std::string::npos);
    }
}
