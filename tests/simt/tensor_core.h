// The arithmetic of the tensor cores' bf16 product, apart from how a warp holds the matrices (instructions.cpp).
#pragma once
#include <cstdint>

#include "simt.h"

namespace simt {

/// C += A B of one mma.m16n8k16; a and b hold bf16 bits.
struct TensorCoreTile {
    uint16_t a[16][16];  // (m, k)
    uint16_t b[16][8];   // (k, n)
    float c[16][8];      // (m, n)
};
void multiply(TensorCoreTile& tile, MmaModel model);

}  // namespace simt
