// Logs of runs.
#include "../../report/run_data.h"

#include "fuzz.h"

using namespace clover;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    fuzz::take_or_refuse(size, [&] {
        RunData run;
        read_log(fuzz::view(data, size), "fuzz", run);
    });
    return 0;
}
