// The types that cuBLASLt shares with CUDA's other libraries: the part that Clover uses, with the real values.
#pragma once

typedef enum cudaDataType_t {
    CUDA_R_32F = 0,
    CUDA_R_64F = 1,
    CUDA_R_16F = 2,
    CUDA_R_32I = 10,
    CUDA_R_16BF = 14,
} cudaDataType;
