// Megatron's .idx and .bin: the input's first two bytes say how many bytes of it are the .bin.
#include "../../data/indexed_dataset.h"

#include <algorithm>

#include "fuzz.h"

using namespace clover;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 2) return 0;
    const size_t bin = std::min<size_t>(data[0] + 256u * data[1], size - 2);
    const std::string path = fuzz::file("set.bin", fuzz::view(data + 2, bin));
    fuzz::file("set.idx", fuzz::view(data + 2 + bin, size - 2 - bin));
    fuzz::take_or_refuse(size, [&] {
        const IndexedDataset set(path.substr(0, path.size() - 4));
        std::vector<int32_t> tokens;
        for (int64_t i = 0; i < set.sequence_count(); i++) {
            tokens.resize(size_t(set.length(i)));
            set.read(i, 0, set.length(i), tokens.data());
        }
        set.largest_token();
    });
    return 0;
}
