// The PTX instructions that Clover's kernels use, each under a name (PTX ISA 9, sections 9.7.9 and 9.7.14): inline assembly for nvcc,
// calls of the emulation for the SIMT harness (tests/simt/), whose cuda_runtime.h defines CLOVER_SIMT.
//
// Fragments of mma.m16n8k16 (lane = 4 g + t; a register holds two bf16, the lower-numbered element in its low half):
//   A (16, 16) 4 registers   row g + 8 (r & 1),  columns 2 t + 8 (r >> 1) and the next
//   B (16, 8)  2 registers   rows k = 2 t + 8 r and the next,  column n = g
//   C (16, 8)  4 floats      row g + 8 (i >> 1), column 2 t + (i & 1)
// Two neighbouring C tiles, packed to bf16, are one A operand: {pack(c0[0], c0[1]), pack(c0[2], c0[3]), pack(c1[0], c1[1]), pack(c1[2], c1[3])}.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace clover {

/// The block's dynamic shared memory as T. Its start is aligned to 1024 bytes.
template <class T>
__device__ inline T* shared_memory() {
#ifdef CLOVER_SIMT
    return static_cast<T*>(simt::shared_memory());
#else
    extern __shared__ __align__(1024) unsigned char clover_shared_bytes[];
    return reinterpret_cast<T*>(clover_shared_bytes);
#endif
}

namespace ptx {

/// The address that instructions on shared memory take.
__device__ inline uint32_t shared_address(const void* p) {
#ifdef CLOVER_SIMT
    return simt::shared_address(p);
#else
    return uint32_t(__cvta_generic_to_shared(p));
#endif
}

/// One access of `bytes` = 4, 8 or 16 to memory of any kind; p is aligned to `bytes`.
template <int bytes>
__device__ inline void load(void* to, const void* p) {
    static_assert(bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16);
#ifdef CLOVER_SIMT
    simt::load(to, p, bytes);
#else
    if constexpr (bytes == 16) *static_cast<uint4*>(to) = *static_cast<const uint4*>(p);
    if constexpr (bytes == 8) *static_cast<uint2*>(to) = *static_cast<const uint2*>(p);
    if constexpr (bytes == 4) *static_cast<uint32_t*>(to) = *static_cast<const uint32_t*>(p);
    if constexpr (bytes == 2) *static_cast<uint16_t*>(to) = *static_cast<const uint16_t*>(p);
#endif
}
template <int bytes>
__device__ inline void store(void* p, const void* from) {
    static_assert(bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16);
#ifdef CLOVER_SIMT
    simt::store(p, from, bytes);
#else
    if constexpr (bytes == 16) *static_cast<uint4*>(p) = *static_cast<const uint4*>(from);
    if constexpr (bytes == 8) *static_cast<uint2*>(p) = *static_cast<const uint2*>(from);
    if constexpr (bytes == 4) *static_cast<uint32_t*>(p) = *static_cast<const uint32_t*>(from);
    if constexpr (bytes == 2) *static_cast<uint16_t*>(p) = *static_cast<const uint16_t*>(from);
#endif
}

/// Two floats rounded to bf16, `low` in bits 15:0 (the lower address).
__device__ inline uint32_t pack_bf16(float low, float high) {
#ifdef CLOVER_SIMT
    return simt::pack_bf16(low, high);
#else
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
#endif
}

/// 2^x within 2 ulp; subnormal results are 0.
__device__ inline float exp2_approximate(float x) {
#ifdef CLOVER_SIMT
    return simt::exp2_approximate(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/// c += a b for a (16, 16), b (16, 8), c (16, 8). By the whole warp.
__device__ inline void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifdef CLOVER_SIMT
    simt::mma_m16n8k16(c, a, b);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/// Four 8x8 matrices of 16-bit elements from shared memory; lane 8 m + r gives the address of row r of matrix m (16 bytes, aligned).
/// Lane l receives of matrix m, in register m, elements (l / 4, 2 (l mod 4)) and the next one of that row. By the whole warp.
__device__ inline void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
#ifdef CLOVER_SIMT
    simt::ldmatrix_x4(r, row, false);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
#endif
}
/// The same rows; lane l receives elements (2 (l mod 4), l / 4) and the next one of that column.
__device__ inline void ldmatrix_x4_transposed(uint32_t (&r)[4], const void* row) {
#ifdef CLOVER_SIMT
    simt::ldmatrix_x4(r, row, true);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
#endif
}
/// Transposes an 8x8 matrix of 16-bit elements held as in ldmatrix, one register per lane. By the whole warp.
__device__ inline uint32_t movmatrix_transposed(uint32_t a) {
#ifdef CLOVER_SIMT
    return simt::movmatrix_transposed(a);
#else
    uint32_t d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
    return d;
#endif
}

/// Starts copying 16 bytes from global to shared memory, of which the first `valid` (0 … 16) are read and the others become zero. Both
/// addresses are aligned to 16, and `global` is a valid address even if nothing is read. The data has arrived, for this thread alone,
/// after cp_async_wait; for others after a barrier that follows it.
__device__ inline void cp_async_16(void* shared, const void* global, int valid = 16) {
#ifdef CLOVER_SIMT
    simt::cp_async(shared, global, 16, valid);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(valid)
                 : "memory");
#endif
}
/// Closes this thread's group of copies; a group may be empty.
__device__ inline void cp_async_commit() {
#ifdef CLOVER_SIMT
    simt::cp_async_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until at most `pending` of this thread's latest groups are under way.
template <int pending>
__device__ inline void cp_async_wait() {
#ifdef CLOVER_SIMT
    simt::cp_async_wait(pending);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}

/// blockIdx.x (0), y (1) or z (2), read anew at each call: the compiler keeps no register for it, as it would for blockIdx in a loop.
template <int axis>
__device__ inline unsigned block_index() {
#ifdef CLOVER_SIMT
    return axis == 0 ? blockIdx.x : axis == 1 ? blockIdx.y : blockIdx.z;
#else
    unsigned index;
    if constexpr (axis == 0) asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    if constexpr (axis == 1) asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(index));
    if constexpr (axis == 2) asm volatile("mov.u32 %0, %%ctaid.z;" : "=r"(index));
    return index;
#endif
}

/// Stops the kernel; the next call of the runtime reports it.
__device__ inline void trap() {
#ifdef CLOVER_SIMT
    simt::trap();
#else
    asm volatile("trap;");
#endif
}

}  // namespace ptx
}  // namespace clover
