// Dense attention in double, the oracle of the attention suites: the formulas of kernels/attention.h written down once more with a
// (T, T) matrix. `rounds` is what P, G and the results are rounded to: bf16 and f16 make it the plain low-precision implementation
// whose error is the measure.
#pragma once
#include "../kernels/attention_portable.h"
#include "pointwise_device.h"

namespace clover {
/// CUDA without tensor cores (kernels/attention_cuda.h); a build without CUDA sources lacks it.
extern const AttentionOps attention_cuda_plain __attribute__((weak));
}  // namespace clover

namespace clover::test {

struct AttentionProblem {
    int64_t B, T, H, D;
    AttentionPosition kind;
    Owned qkv, dout, slopes, r, u, v;

    AttentionProblem(int64_t B_, int64_t T_, int64_t H_, int64_t D_, AttentionPosition kind_, Dtype dtype = Dtype::f32,
                     Dtype bias = Dtype::f32, double scale = 1)
        : B(B_), T(T_), H(H_), D(D_), kind(kind_),
          qkv(random_tensor(dtype, {B * T, H * 3 * D}, 1, scale)),
          dout(random_tensor(dtype, {B * T, H * D}, 2)),
          slopes(Dtype::f32, {H}),
          r(random_tensor(dtype, {T + 3, H * D}, 3)),
          u(random_tensor(bias, {H, D}, 4)),
          v(random_tensor(bias, {H, D}, 5)) {
        for (int64_t h = 0; h < H; h++) slopes.set(h, std::exp2(-double(h + 1)));
    }
    PositionTerm position() const {
        PositionTerm p;
        p.kind = kind;
        if (kind == AttentionPosition::alibi) p.slopes = slopes;
        if (kind == AttentionPosition::relative) p.r = r, p.content_bias = u, p.position_bias = v;
        return p;
    }
};

struct AttentionReference {
    std::vector<double> out, lse, dqkv, dr, du, dv;
};

/// One problem in doubles.
struct DenseAttention {
    int64_t B, T, H, D;
    AttentionPosition kind;
    Dtype rounds;
    std::vector<double> qkv, dout, slopes, r, u, v;

    explicit DenseAttention(const AttentionProblem& p, Dtype rounds_ = Dtype::f32)
        : B(p.B), T(p.T), H(p.H), D(p.D), kind(p.kind), rounds(rounds_), qkv(p.qkv.values()), dout(p.dout.values()), slopes(p.slopes.values()),
          r(p.r.values()), u(p.u.values()), v(p.v.values()) {}

    double rounded(double x) const { return stored(x, rounds); }
    /// Index of element c of q (part 0), k (1) or v (2).
    size_t at(int64_t b, int64_t t, int64_t h, int64_t part, int64_t c) const {
        return size_t((((b * T + t) * H + h) * 3 + part) * D + c);
    }
    size_t out_at(int64_t b, int64_t t, int64_t h, int64_t c) const { return size_t(((b * T + t) * H + h) * D + c); }
    size_t r_at(int64_t d, int64_t h, int64_t c) const { return size_t((d * H + h) * D + c); }

    double score(int64_t b, int64_t h, int64_t i, int64_t j) const {
        double s = 0;
        for (int64_t c = 0; c < D; c++) {
            const double q = qkv[at(b, i, h, 0, c)], k = qkv[at(b, j, h, 1, c)];
            s += q * k;
            if (kind == AttentionPosition::relative) s += u[size_t(h * D + c)] * k + (q + v[size_t(h * D + c)]) * r[r_at(i - j, h, c)];
        }
        s /= std::sqrt(double(D));
        return kind == AttentionPosition::alibi ? s + slopes[size_t(h)] * double(j - i) : s;
    }
    /// P of one query and its lse.
    std::vector<double> probabilities(int64_t b, int64_t h, int64_t i, double& lse) const {
        std::vector<double> p(static_cast<size_t>(i + 1));
        double m = -INFINITY, sum = 0;
        for (int64_t j = 0; j <= i; j++) m = std::max(m, p[size_t(j)] = score(b, h, i, j));
        for (double& x : p) sum += x = std::exp(x - m);
        for (double& x : p) x = x / sum;
        lse = m + std::log(sum);
        return p;
    }
    void forward_query(AttentionReference& f, int64_t b, int64_t h, int64_t i) const {
        const auto p = probabilities(b, h, i, f.lse[size_t((b * H + h) * T + i)]);
        for (int64_t c = 0; c < D; c++) {
            double o = 0;
            for (int64_t j = 0; j <= i; j++) o += rounded(p[size_t(j)]) * qkv[at(b, j, h, 2, c)];
            f.out[out_at(b, i, h, c)] = rounded(o);
        }
    }
    void backward_query(AttentionReference& f, int64_t b, int64_t h, int64_t i) const {
        double lse, dot = 0;
        const auto p = probabilities(b, h, i, lse);
        for (int64_t c = 0; c < D; c++) dot += dout[out_at(b, i, h, c)] * f.out[out_at(b, i, h, c)];
        for (int64_t j = 0; j <= i; j++) {
            double dp = 0;
            for (int64_t c = 0; c < D; c++) dp += dout[out_at(b, i, h, c)] * qkv[at(b, j, h, 2, c)];
            const double g = rounded(p[size_t(j)] * (dp - dot)) / std::sqrt(double(D));
            for (int64_t c = 0; c < D; c++) backward_element(f, b, h, i, j, c, rounded(p[size_t(j)]), g);
        }
    }
    void backward_element(AttentionReference& f, int64_t b, int64_t h, int64_t i, int64_t j, int64_t c, double p, double g) const {
        const double q = qkv[at(b, i, h, 0, c)], k = qkv[at(b, j, h, 1, c)];
        f.dqkv[at(b, j, h, 2, c)] += p * dout[out_at(b, i, h, c)];
        f.dqkv[at(b, i, h, 0, c)] += g * k;
        f.dqkv[at(b, j, h, 1, c)] += g * q;
        if (kind != AttentionPosition::relative) return;
        const size_t rd = r_at(i - j, h, c), bias = size_t(h * D + c);
        f.dqkv[at(b, i, h, 0, c)] += g * r[rd];
        f.dqkv[at(b, j, h, 1, c)] += g * u[bias];
        f.dr[rd] += g * (q + v[bias]);
        f.du[bias] += g * k;
        f.dv[bias] += g * r[rd];
    }
    template <class Query>
    void every_query(Query&& query) const {
        for (int64_t b = 0; b < B; b++)
            for (int64_t h = 0; h < H; h++)
                for (int64_t i = 0; i < T; i++) query(b, h, i);
    }
    AttentionReference forward() const {
        AttentionReference f;
        f.out.resize(size_t(B * T * H * D));
        f.lse.resize(size_t(B * H * T));
        every_query([&](int64_t b, int64_t h, int64_t i) { forward_query(f, b, h, i); });
        return f;
    }
    AttentionReference forward_and_backward() const {
        AttentionReference f = forward();
        f.dqkv.resize(qkv.size());
        f.dr.resize(size_t(T * H * D));
        f.du.resize(u.size());
        f.dv.resize(v.size());
        every_query([&](int64_t b, int64_t h, int64_t i) { backward_query(f, b, h, i); });
        for (double& x : f.dqkv) x = rounded(x);
        return f;
    }
};

/// Every implementation of attention as a device: the CPU with and without AMX, CUDA with and without tensor cores.
inline const std::vector<Device>& attention_devices() {
    static const std::vector<Device> all = [] {
        std::vector<Device> list{find_device("cpu"), find_device("cpu")};
        list[1].name = "cpu, portable", list[1].attention = attention_cpu_portable;
        if (const Device* cuda = usable_cuda()) {
            list.insert(list.end(), 2, *cuda);
            list.back().name = "cuda, plain", list.back().attention = attention_cuda_plain;
        }
        return list;
    }();
    return all;
}

/// What a device makes of a problem; du and dv start at `bias_start`.
struct AttentionResult {
    Owned out, lse, dqkv, dr, du, dv;

    AttentionResult(const Device& device, const AttentionProblem& p, bool with_backward = true, double bias_start = 0)
        : out(unwritten(device, p.qkv.t.dtype, {p.B * p.T, p.H * p.D})), lse(unwritten(device, Dtype::f32, {p.B, p.H, p.T})),
          dqkv(unwritten(device, p.qkv.t.dtype, {p.B * p.T, p.H * 3 * p.D})), dr(Dtype::f32, {p.T, p.H * p.D}), du(Dtype::f32, {p.H, p.D}),
          dv(Dtype::f32, {p.H, p.D}) {
        const AttentionOps& ops = device.attention;
        const AttentionForward f{out, lse, p.qkv, p.position()};
        TestContext forward_context(device, ops.forward_workspace_bytes(f));
        ops.forward(forward_context, f);
        if (!with_backward) return;
        for (Owned* bias : {&du, &dv}) bias->fill([&](int64_t) { return bias_start; });
        AttentionBackward g;
        g.dqkv = dqkv, g.dout = p.dout, g.out = out, g.lse = lse, g.qkv = p.qkv, g.position = p.position();
        if (p.kind == AttentionPosition::relative) dr.forget(device), g.dr = dr, g.dcontent_bias = du, g.dposition_bias = dv;
        TestContext backward_context(device, ops.backward_workspace_bytes(g));
        ops.backward(backward_context, g);
    }
};

}  // namespace clover::test
