// A symmetric-polynomial problem: which classes of a row are head and which bulk, and the memory of
// a worker.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/simd.h"

namespace evalgrad::topk {

// Head items between two checkpoints: without rescaling S grows by less than 2^1000 in them.
constexpr int64_t kHeadBlock = 32;
// Classes of the bulk at a time. A worker's rows are multiples of so many, with -inf behind the
// end.
constexpr int64_t kBulkBlock = 32;
// With a larger k all classes are in the head: float32 holds exp(k/e), see bulk_scale.
constexpr int64_t kWidestBulk = 128;
// S_j <= C(H, j) < 2^H: longer heads are rescaled per degree.
constexpr int64_t kPlainHead = 512;

// As wide as most registers: wider is slow.
template <class T>
struct Simd {
    typedef T Vector __attribute__((vector_size(32)));
    static constexpr int64_t lanes = 32 / sizeof(T);
    static_assert(kBulkBlock % (4 * lanes) == 0, "whole blocks of `absorb`");
};
// To and from memory of any alignment. A pointer to vectors would promise that of a whole vector;
// to take the promise back by an attribute in a template is what clang does not hear.
template <class T>
EVALGRAD_INLINE typename Simd<T>::Vector load(const T* from) {
    typename Simd<T>::Vector vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
}
template <class T>
EVALGRAD_INLINE void store(const typename Simd<T>::Vector& vector, T* to) {
    std::memcpy(to, &vector, sizeof vector);
}

// The heads of so many rows go side by side, each in a lane of its own. Within a row the step from
// a degree to the next would cross the lanes, and wait for two stores before each load.
constexpr int64_t kRows = Simd<double>::lanes;
using Doubles = Simd<double>::Vector;
constexpr Doubles kOnes = {1.0, 1.0, 1.0, 1.0};

// A number of each of those rows, in memory: how a vector is aligned depends on the instruction
// set.
struct Lanes {
    double row[kRows];
};
EVALGRAD_INLINE Doubles load(const Lanes& from) { return load(from.row); }
EVALGRAD_INLINE void store(const Doubles& vector, Lanes& to) { store(vector, to.row); }

// a - b where equal infinities are at distance 0, so that +-inf acts as a common limit.
template <class T>
EVALGRAD_INLINE T difference(T a, T b) {
    return a == b ? T(0) : a - b;
}

// Which classes are head and bulk; `classes` counts one that is ruled out.
struct Split {
    int64_t classes, k;

    int64_t head() const {  // H; a short or a very wide problem has no bulk
        return k > kWidestBulk || classes - 1 <= 6 * k ? classes - 1 : 3 * k;
    }
    bool has_bulk() const { return head() < classes - 1; }
    int64_t padded() const { return (classes + kBulkBlock - 1) / kBulkBlock * kBulkBlock; }
    int64_t stride() const { return k + 1; }  // degrees 0..k
    int64_t checkpoints() const { return (head() + kHeadBlock - 1) / kHeadBlock; }
};

// Memory of one worker.
template <class T>
struct Workspace {
    std::vector<T> rows;  // scores, then u
    // of one row: its bulk in the lanes of `absorb`, and these multiplied
    std::vector<T> lanes;
    std::vector<double> products;
    std::vector<int64_t> place;               // of the head items, row by row
    std::vector<Lanes> ratio, head_gradient;  // of the head items
    // a line of degrees each: S before each item of a block, the factors exp(x_i - x_[j]) of those
    // items, and both at the checkpoints
    std::vector<Lanes> state, factor, state_at, factor_at, rescaling;
    // one line; bulk: mu^a V_a
    std::vector<Lanes> adjoint, pivot, bulk, full, weight, gain, q;
    Lanes scale;  // mu

    T* row(const Split& p, int64_t lane) { return &rows[lane * p.padded()]; }
    explicit Workspace(const Split& p) {
        const int64_t stride = p.stride(), blocks = p.checkpoints();
        rows.resize(p.padded() * kRows);
        lanes.resize((p.k + 4) * Simd<T>::lanes);
        products.resize(stride * Simd<T>::lanes);
        place.resize(p.head() * kRows);
        for (auto* line : {&ratio, &head_gradient}) line->resize(p.head());
        state.resize((kHeadBlock + 1) * stride);
        factor.resize(kHeadBlock * stride);
        for (auto* lines : {&state_at, &factor_at, &rescaling}) lines->resize(blocks * stride);
        for (auto* line : {&adjoint, &pivot, &bulk, &full, &weight, &gain, &q})
            line->resize(stride);
    }
};

}  // namespace evalgrad::topk
