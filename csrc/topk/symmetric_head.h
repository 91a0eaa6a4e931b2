// The head: S_j <- S_j + exp(x_i - x_[j]) S_{j-1} over the largest x in descending order, and its
// reverse, in double, for kRows rows at once. Every factor that meets a non-zero S is <= 1. S is
// kept for one block of items at a time and recomputed from checkpoints.
#pragma once

#include "topk/symmetric_space.h"
#include "topk/top_items.h"

namespace evalgrad::topk {

// One block from its checkpoint. exp(x_i - x_[j]) is the product of ratio_t = exp(x_t - x_{t-1}), j
// < t <= i: factors <= 1.
template <class T>
EVALGRAD_INLINE void head_block(const Split& p, Workspace<T>& s, int64_t block) {
    const int64_t k = p.k, stride = p.stride(), first = block * kHeadBlock,
                  last = std::min(p.head(), first + kHeadBlock);
    std::copy_n(&s.state_at[block * stride], stride, &s.state[0]);
    const Lanes* before = &s.factor_at[block * stride];
    for (int64_t i = first; i < last; ++i) {
        const Doubles ratio = load(s.ratio[i]);
        const Lanes* state = &s.state[(i - first) * stride];
        Lanes *factor = &s.factor[(i - first) * stride], *next = &s.state[(i - first + 1) * stride];
        next[0] = state[0];
        for (int64_t j = 1; j <= k; ++j) {
            const Doubles own = j == i + 1 ? kOnes : load(before[j]) * ratio;  // 1 for x_[j] itself
            store(own, factor[j]);
            store(load(state[j]) + own * load(state[j - 1]), next[j]);
        }
        if (i == k - 1)  // exp(x_[k] - x_[j]); meaningful without rescaling
            std::copy_n(factor, stride, &s.pivot[0]);
        before = factor;
    }
}

// Per-degree powers of two: S_j returns to [1, 2), the factors follow, degrees not yet reached
// share the last one's scale.
EVALGRAD_INLINE void rescale(Lanes* state, Lanes* factor, Lanes* scale, int64_t k) {
    for (int64_t row = 0; row < kRows; ++row) {
        double before = scale[0].row[row] = 1.0;
        for (int64_t j = 1; j <= k; ++j) {
            double &sum = state[j].row[row], &own = scale[j].row[row];
            own = sum > 0.0 ? std::ldexp(1.0, -std::ilogb(sum)) : before;
            sum *= own;
            factor[j].row[row] *= own / before;
            before = own;
        }
    }
}

// All the blocks; exponents[row] = log2 of (scale of S_{k-1} / scale of S_k). The last block stays
// in s.state and s.factor.
template <class T>
EVALGRAD_INLINE void head_forward(const Split& p, Workspace<T>& s, double* exponents) {
    const int64_t stride = p.stride(), blocks = p.checkpoints();
    std::fill_n(s.state_at.begin(), stride, Lanes{});
    store(kOnes, s.state_at[0]);
    std::fill_n(exponents, kRows, 0.0);
    for (int64_t block = 0; block < blocks; ++block) {
        head_block(p, s, block);
        if (block + 1 == blocks) break;
        Lanes *state = &s.state_at[(block + 1) * stride],
              *factor = &s.factor_at[(block + 1) * stride];
        std::copy_n(&s.state[kHeadBlock * stride], stride, state);
        std::copy_n(&s.factor[(kHeadBlock - 1) * stride], stride, factor);
        if (p.head() <= kPlainHead) continue;
        Lanes* scale = &s.rescaling[(block + 1) * stride];
        rescale(state, factor, scale, p.k);
        for (int64_t row = 0; row < kRows; ++row)
            exponents[row] += std::log2(scale[p.k - 1].row[row]) - std::log2(scale[p.k].row[row]);
    }
}

// Reverse mode: s.adjoint holds d(log sigma_k - log sigma_{k-1})/d S_j after the last item;
// head_gradient = d/d x_i.
template <class T>
EVALGRAD_INLINE void head_backward(const Split& p, Workspace<T>& s) {
    const int64_t stride = p.stride(), blocks = p.checkpoints();
    Lanes* adjoint = s.adjoint.data();
    for (int64_t block = blocks - 1; block >= 0; --block) {
        if (block + 1 < blocks) head_block(p, s, block);
        const int64_t first = block * kHeadBlock, last = std::min(p.head(), first + kHeadBlock);
        for (int64_t i = last - 1; i >= first; --i) {
            const Lanes *state = &s.state[(i - first) * stride],
                        *factor = &s.factor[(i - first) * stride];
            Doubles total = {};
            for (int64_t j = 0; j < p.k; ++j) {
                const Doubles flow = load(adjoint[j + 1]) * load(factor[j + 1]);
                total += flow * load(state[j]);
                store(load(adjoint[j]) + flow, adjoint[j]);
            }
            store(total, s.head_gradient[i]);
        }
        if (block > 0 && p.head() > kPlainHead)
            for (int64_t j = 0; j <= p.k; ++j)
                store(load(adjoint[j]) * load(s.rescaling[block * stride + j]), adjoint[j]);
    }
}

}  // namespace evalgrad::topk
