// Config files.
#include "../../model/config.h"

#include "fuzz.h"

using namespace clover;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    fuzz::take_or_refuse(size, [&] {
        const Config config = parse_config(std::string(fuzz::view(data, size)), "fuzz", {});
        const std::string printed = to_toml(config);
        if (to_toml(parse_config(printed, "printed", {})) != printed) std::abort();
    });
    return 0;
}
