// One row of a symmetric-polynomial problem: which classes are head and which bulk, and the memory
// of a worker.
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
// With a larger k all classes are in the head: float32 holds exp(k/e), see bulk_scale.
constexpr int64_t kWidestBulk = 128;
// S_j <= C(H, j) < 2^H: longer heads are rescaled per degree.
constexpr int64_t kPlainHead = 512;

// As wide as most registers: wider is slow.
template <class T>
struct Simd {
    typedef T Vector __attribute__((vector_size(32)));
    static constexpr int64_t lanes = 32 / sizeof(T);
};
using Doubles = Simd<double>::Vector;

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
    int64_t stride() const {
        return (k + 3) / 4 * 4 + 4;
    }  // degrees 0..k and zeros for whole vectors
    int64_t checkpoints() const { return (head() + kHeadBlock - 1) / kHeadBlock; }
};

// Memory of one worker. Rows of `stride` doubles: S before each head item of a block, the factors
// exp(x_i - x_[j]) of those items.
template <class T>
struct Workspace {
    std::vector<T> lanes;
    // rows of the head
    std::vector<double> state, factor, state_at, factor_at, rescaling;
    // one row each
    std::vector<double> ratio, head_gradient, adjoint, pivot, bulk, full, weight, gain, q;

    explicit Workspace(const Split& p) {
        const int64_t stride = p.stride(), blocks = p.checkpoints();
        state.assign((kHeadBlock + 1) * stride, 0.0);
        factor.assign(kHeadBlock * stride, 0.0);
        for (auto* rows : {&state_at, &factor_at, &rescaling}) rows->assign(blocks * stride, 0.0);
        for (auto* row : {&adjoint, &pivot, &full, &weight, &gain, &q})
            row->assign(stride + 1, 0.0);
        for (auto* row : {&ratio, &head_gradient}) row->assign(p.head(), 0.0);
        bulk.resize((p.k + 1) * Simd<T>::lanes);
        lanes.resize((p.k + 4) * Simd<T>::lanes);
    }
};

}  // namespace evalgrad::topk
