// What ptxas said of the CUDA kernels when nvcc compiled them: `make test` names the file in the environment variable CUDA_KERNELS. Without
// nvcc there is none.
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "support.h"

TEST_SUITE("cuda kernels") {
    // The plain attention (attention_plain.cuh) is there to be read and to be compared with, and for shapes that the fast one leaves to it.
    TEST_CASE("no hot kernel spills registers to memory, on any architecture") {
        const char* path = std::getenv("CUDA_KERNELS");
        std::ifstream file(path ? path : "");
        if (!file) {
            MESSAGE("not checked: the kernels were not compiled by nvcc");
            return;
        }
        std::set<std::string> architectures, kernels;
        for (std::string line; std::getline(file, line);) {
            std::istringstream columns(line);
            std::string kernel, architecture, registers, stack, spilled;
            for (std::string* column : {&kernel, &architecture, &registers, &stack, &spilled}) std::getline(columns, *column, '\t');
            INFO(kernel, " on ", architecture);
            CHECK(std::stoi(registers) > 0);
            if (kernel.find("plain_") == std::string::npos) CHECK(std::stoi(spilled) == 0);
            architectures.insert(architecture), kernels.insert(kernel);
        }
        CHECK(architectures.size() >= 1);
        CHECK(kernels.size() > 20);
    }
}
