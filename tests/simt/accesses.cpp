// Every access of a kernel: the functions that -fsanitize=thread calls, and simt::load and store.
#include <cstring>

#include "memory.h"

using namespace simt;

namespace simt {

void check_access(const void*, size_t, bool) {}
void load(void* to, const void* p, int bytes) { std::memcpy(to, p, size_t(bytes)); }
void store(void* p, const void* from, int bytes) { std::memcpy(p, from, size_t(bytes)); }

uint64_t atomic(AtomicOperation, void*, int, bool, uint64_t, uint64_t) { fault("no atomics yet"); }
void begin_counting(const LaunchRequest&) {}
void end_counting() {}
void count_mma() {}
void count_matrix_rows(const void* const[8]) {}
std::vector<LaunchCounters>& counters() {
    static std::vector<LaunchCounters> c;
    return c;
}
void print_counters(std::FILE*) {}
void async_issue(void* shared, const void* source, int bytes, int valid) {
    std::memcpy(shared, source, size_t(valid));
    std::memset(static_cast<char*>(shared) + valid, 0, size_t(bytes - valid));
}
void async_commit() {}
void async_wait(int) {}

}  // namespace simt

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
#define SIMT_HOOKS(n)                        \
    void __tsan_read##n(void*) {}            \
    void __tsan_write##n(void*) {}           \
    void __tsan_unaligned_read##n(void*) {}  \
    void __tsan_unaligned_write##n(void*) {}
SIMT_HOOKS(1) SIMT_HOOKS(2) SIMT_HOOKS(4) SIMT_HOOKS(8) SIMT_HOOKS(16)
#undef SIMT_HOOKS
void __tsan_read_range(void*, size_t) {}
void __tsan_write_range(void*, size_t) {}

void* simt_memcpy(void* to, const void* from, size_t n) { return std::memcpy(to, from, n); }
void* simt_memmove(void* to, const void* from, size_t n) { return std::memmove(to, from, n); }
void* simt_memset(void* p, int value, size_t n) { return std::memset(p, value, n); }

// std::atomic and the counts of shared_ptr: host code.
#define SIMT_ATOMICS(bits, T)                                                                                                       \
    T __tsan_atomic##bits##_load(const volatile T* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }                         \
    void __tsan_atomic##bits##_store(volatile T* p, T x, int) { __atomic_store_n(p, x, __ATOMIC_SEQ_CST); }                         \
    T __tsan_atomic##bits##_exchange(volatile T* p, T x, int) { return __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST); }               \
    T __tsan_atomic##bits##_fetch_add(volatile T* p, T x, int) { return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST); }               \
    T __tsan_atomic##bits##_fetch_sub(volatile T* p, T x, int) { return __atomic_fetch_sub(p, x, __ATOMIC_SEQ_CST); }               \
    T __tsan_atomic##bits##_fetch_and(volatile T* p, T x, int) { return __atomic_fetch_and(p, x, __ATOMIC_SEQ_CST); }               \
    T __tsan_atomic##bits##_fetch_or(volatile T* p, T x, int) { return __atomic_fetch_or(p, x, __ATOMIC_SEQ_CST); }                 \
    T __tsan_atomic##bits##_fetch_xor(volatile T* p, T x, int) { return __atomic_fetch_xor(p, x, __ATOMIC_SEQ_CST); }               \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T x, int, int) {                                  \
        return __atomic_compare_exchange_n(p, expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                              \
    }                                                                                                                               \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T x, int, int) {                                    \
        return __atomic_compare_exchange_n(p, expected, x, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                               \
    }
SIMT_ATOMICS(8, uint8_t) SIMT_ATOMICS(16, uint16_t) SIMT_ATOMICS(32, uint32_t) SIMT_ATOMICS(64, uint64_t)
#undef SIMT_ATOMICS
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
