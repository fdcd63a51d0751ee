// Tensor: a non-owning, row-major, contiguous view of memory: pointer, dtype, shape.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "bf16.h"
#include "error.h"

namespace clover {

enum class Dtype : uint8_t { f32, bf16, f16, i32 };

constexpr size_t bytes_of(Dtype d) { return d == Dtype::bf16 || d == Dtype::f16 ? 2 : 4; }
constexpr const char* name_of(Dtype d) {
    switch (d) {
        case Dtype::f32: return "f32";
        case Dtype::bf16: return "bf16";
        case Dtype::f16: return "f16";
        case Dtype::i32: break;
    }
    return "i32";
}

template <class T>
inline constexpr Dtype dtype_of = Dtype::f32;
template <>
inline constexpr Dtype dtype_of<bf16> = Dtype::bf16;
template <>
inline constexpr Dtype dtype_of<f16> = Dtype::f16;
template <>
inline constexpr Dtype dtype_of<int32_t> = Dtype::i32;

struct Tensor {
    void* data = nullptr;
    Dtype dtype = Dtype::f32;
    int rank = 0;
    std::array<int64_t, 4> shape{};

    Tensor() = default;
    Tensor(void* data_, Dtype dtype_, std::initializer_list<int64_t> shape_) : data(data_), dtype(dtype_) {
        CLOVER_CHECK(shape_.size() <= shape.size());
        for (int64_t s : shape_) {
            CLOVER_CHECK(s >= 0);
            shape[rank++] = s;
        }
    }

    /// An absent optional argument is a default-made Tensor. A shape without memory (rank > 0, data null) serves planning.
    bool present() const { return rank > 0; }

    int64_t count() const {
        int64_t n = 1;
        for (int i = 0; i < rank; i++) n *= shape[i];
        return n;
    }
    size_t bytes() const { return size_t(count()) * bytes_of(dtype); }
    /// The view as a matrix: all dimensions but the last, and the last.
    int64_t columns() const { return rank == 0 ? 0 : shape[rank - 1]; }
    int64_t rows() const { return columns() == 0 ? 0 : count() / columns(); }

    template <class T>
    T* as() const {
        CLOVER_CHECK(dtype == dtype_of<T>, "The tensor holds ", name_of(dtype), ", asked for ", name_of(dtype_of<T>));
        return static_cast<T*>(data);
    }
    /// Rows [first, first + n) of the matrix view, as (n, columns).
    Tensor row_range(int64_t first, int64_t n) const {
        CLOVER_CHECK(first >= 0 && n >= 0 && first + n <= rows(), "rows ", first, "+", n, " of ", rows());
        char* p = data ? static_cast<char*>(data) + size_t(first * columns()) * bytes_of(dtype) : nullptr;
        return Tensor(p, dtype, {n, columns()});
    }
    /// The same memory under another shape of equal count.
    Tensor reshaped(std::initializer_list<int64_t> to) const {
        Tensor t(data, dtype, to);
        CLOVER_CHECK(t.count() == count(), t.describe(), " from ", describe());
        return t;
    }
    std::string describe() const {
        std::string s = std::string(name_of(dtype)) + " (";
        for (int i = 0; i < rank; i++) s += (i ? ", " : "") + std::to_string(shape[i]);
        return s + ")";
    }
    bool has_shape(std::initializer_list<int64_t> want) const {
        if (size_t(rank) != want.size()) return false;
        int i = 0;
        for (int64_t w : want)
            if (shape[i++] != w) return false;
        return true;
    }
};

/// Calls f(float{}), f(bf16{}) or f(f16{}) by dtype: the one place where a run-time dtype becomes a type.
template <class F>
decltype(auto) by_dtype(Dtype d, F&& f) {
    CLOVER_CHECK(d != Dtype::i32, "dtype ", name_of(d));
    return d == Dtype::f32 ? f(float{}) : d == Dtype::bf16 ? f(bf16{}) : f(f16{});
}

}  // namespace clover
