// Safetensors files, as checkpoints hold them.
#include "../../model/safetensors.h"

#include "fuzz.h"

using namespace clover;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string path = fuzz::file("a.safetensors", fuzz::view(data, size));
    fuzz::take_or_refuse(size, [&] {
        const SafetensorsFile file(path);
        for (const SafetensorsEntry& entry : file.entries()) file.for_parts(entry, [](const unsigned char* part, size_t bytes) { return bytes > 0 ? part[bytes - 1] : 0; });
    });
    return 0;
}
