// Embedding lookup on the CPU. Backward gives each thread a slice of the columns, in which it goes through the rows in order: no two
// threads add to the same number, rows of the table that do not occur are not touched, and any slicing gives the same bits.
#include "embedding.h"

#include <omp.h>

#include "parallel.h"

namespace clover {
namespace {
using namespace simd;

void check_ids(Tensor ids, int64_t V) {
    const int32_t* const id = ids.as<int32_t>();
    for (int64_t n = 0; n < ids.count(); n++)
        if (id[n] < 0 || id[n] >= V) throw Error(text("Token id ", id[n], " at position ", n, " is not in the vocabulary [0, ", V, ")"));
}

template <class A, class W, class P>
void forward_rows(const EmbeddingForward& e) {
    const int64_t N = e.out.rows(), C = e.out.columns(), T = e.sequence;
    A* const out = e.out.as<A>();
    const int32_t* const ids = e.ids.as<int32_t>();
    const W* const table = e.table.as<W>();
    const P* const positions = e.positions.present() ? e.positions.as<P>() : nullptr;
    const int32_t* const past = e.past.present() ? e.past.as<int32_t>() : nullptr;

#pragma omp parallel for schedule(static) if (N * C > parallel_above)
    for (int64_t n = 0; n < N; n++) {
        A* const to = out + n * C;
        const W* const word = table + ids[n] * C;
        if (positions)
            for_vectors(C, [=, place = positions + ((past ? past[n / T] : 0) + n % T) * C](int64_t i, auto lanes) {
                store(to + i, load(word + i, lanes) + load(place + i, lanes), lanes);
            });
        else
            for_vectors(C, [=](int64_t i, auto lanes) { store(to + i, load(word + i, lanes), lanes); });
    }
}

void check_positions(const EmbeddingForward& e) {
    for (int64_t b = 0; b < e.past.count(); b++) {
        const int64_t past = e.past.as<int32_t>()[b];
        CLOVER_CHECK(past >= 0 && past + e.sequence <= e.positions.shape[0], "sequence ", b, " wants positions ", past, "+", e.sequence,
                     " of ", e.positions.shape[0]);
    }
}

void forward(Context& ctx, const EmbeddingForward& e) {
    check(e);
    if (e.positions.present() && e.past.present()) check_positions(e);
    check_ids(e.ids, e.table.shape[0]);
    by_dtype(e.out.dtype, [&](auto a) {
        by_dtype(e.table.dtype, [&](auto w) {
            by_dtype(e.positions.present() ? e.positions.dtype : e.table.dtype,
                     [&](auto p) { forward_rows<decltype(a), decltype(w), decltype(p)>(e); });
        });
    });
    if (e.norm) norm_cpu.forward(ctx, *e.norm);
}

template <class A>
void add_row(float* to, const A* from, int64_t n) {
    for_vectors(n, [=](int64_t i, auto lanes) { store(to + i, load(to + i, lanes) + load(from + i, lanes), lanes); });
}

template <class A>
void backward_columns(const EmbeddingBackward& e, int64_t first, int64_t count) {
    const int64_t N = e.dout.rows(), C = e.dout.columns(), T = e.sequence;
    float* const dtable = e.dtable.as<float>() + first;
    float* const dpositions = e.dpositions.present() ? e.dpositions.as<float>() + first : nullptr;
    const A* const dout = e.dout.as<A>() + first;
    const int32_t* const ids = e.ids.as<int32_t>();
    for (int64_t n = 0; n < N; n++) {
        add_row(dtable + ids[n] * C, dout + n * C, count);
        if (dpositions) add_row(dpositions + n % T * C, dout + n * C, count);
    }
}

size_t backward_workspace_bytes(const EmbeddingBackward&) { return 0; }

void backward(Context&, const EmbeddingBackward& e) {
    check(e);
    check_ids(e.ids, e.dtable.shape[0]);
    const int64_t N = e.dout.rows(), C = e.dout.columns();
    by_dtype(e.dout.dtype, [&](auto a) {
#pragma omp parallel if (N * C > parallel_above)
        {
            const int64_t threads = omp_get_num_threads(), slice = ((C + threads - 1) / threads + width - 1) / width * width;
            const int64_t first = std::min(C, omp_get_thread_num() * slice);
            backward_columns<decltype(a)>(e, first, std::min(slice, C - first));
        }
    });
}

}  // namespace

const EmbeddingOps embedding_cpu = {forward, backward_workspace_bytes, backward};

}  // namespace clover
