// The head: S_j <- S_j + exp(x_i - x_[j]) S_{j-1} over the largest x in descending order, and its
// reverse, in double. Every factor that meets a non-zero S is <= 1. S is kept for one block of
// items at a time and recomputed from checkpoints.
#pragma once

#include "topk/symmetric_space.h"
#include "topk/top_items.h"

namespace evalgrad::topk {

// One block from its checkpoint. exp(x_i - x_[j]) is the product of ratio_t = exp(x_t - x_{t-1}), j
// < t <= i: factors <= 1.
template <class T>
EVALGRAD_INLINE void head_block(const Split& p, Workspace<T>& s, int64_t block) {
    const int64_t stride = p.stride(), first = block * kHeadBlock,
                  last = std::min(p.head(), first + kHeadBlock);
    std::copy_n(&s.state_at[block * stride], stride, &s.state[0]);
    const double* before = &s.factor_at[block * stride];
    for (int64_t i = first; i < last; ++i) {
        double* factor = &s.factor[(i - first) * stride];
        double* state = &s.state[(i - first) * stride];
        state[stride] = state[0];
        for (int64_t j = 1; j < stride - 3; j += 4)
            store(load(before + j) * s.ratio[i], factor + j);
        if (i < p.k) factor[1 + i] = 1.0;  // the item that is x_[j] itself
        for (int64_t j = 1; j < stride - 3; j += 4)
            store(load(state + j) + load(factor + j) * load(state + j - 1), state + stride + j);
        if (i == p.k - 1)
            std::copy_n(factor, stride,
                        &s.pivot[0]);  // exp(x_[k] - x_[j]); meaningful without rescaling
        before = factor;
    }
}

// Per-degree powers of two: S_j returns to [1, 2), the factors follow, degrees not yet reached
// share the last one's scale.
EVALGRAD_INLINE void rescale(double* state, double* factor, double* scale, int64_t k) {
    scale[0] = 1.0;
    for (int64_t j = 1; j <= k; ++j) {
        scale[j] = state[j] > 0.0 ? std::ldexp(1.0, -std::ilogb(state[j])) : scale[j - 1];
        state[j] *= scale[j];
        factor[j] *= scale[j] / scale[j - 1];
    }
}

// All the blocks; returns log2 of (scale of S_{k-1} / scale of S_k). The last block stays in
// s.state and s.factor.
template <class T>
EVALGRAD_INLINE double head_forward(const Split& p, const Item<T>* items, double inverse,
                                    Workspace<T>& s) {
    const int64_t stride = p.stride(), blocks = p.checkpoints();
    double* falls = s.head_gradient.data();  // free until the way back
    for (int64_t i = 1; i < p.head(); ++i)
        falls[i] = difference<double>(items[i].score, items[i - 1].score);
    falls[0] = 0.0;
    for (int64_t i = 0; i < p.head(); ++i) s.ratio[i] = exp_nonpositive(falls[i] * inverse);
    std::fill_n(s.state_at.begin(), stride, 0.0);
    s.state_at[0] = 1.0;
    double exponent = 0.0;
    for (int64_t block = 0; block < blocks; ++block) {
        head_block(p, s, block);
        if (block + 1 == blocks) break;
        double *state = &s.state_at[(block + 1) * stride],
               *factor = &s.factor_at[(block + 1) * stride];
        std::copy_n(&s.state[kHeadBlock * stride], stride, state);
        std::copy_n(&s.factor[(kHeadBlock - 1) * stride], stride, factor);
        if (p.head() <= kPlainHead) continue;
        double* scale = &s.rescaling[(block + 1) * stride];
        rescale(state, factor, scale, p.k);
        exponent += std::log2(scale[p.k - 1]) - std::log2(scale[p.k]);
    }
    return exponent;
}

// Reverse mode: s.adjoint holds d(log sigma_k - log sigma_{k-1})/d S_j after the last item;
// head_gradient = d/d x_i.
template <class T>
EVALGRAD_INLINE void head_backward(const Split& p, Workspace<T>& s) {
    const int64_t stride = p.stride(), blocks = p.checkpoints();
    double* adjoint = s.adjoint.data();
    for (int64_t block = blocks - 1; block >= 0; --block) {
        if (block + 1 < blocks) head_block(p, s, block);
        const int64_t first = block * kHeadBlock, last = std::min(p.head(), first + kHeadBlock);
        for (int64_t i = last - 1; i >= first; --i) {
            const double *state = &s.state[(i - first) * stride],
                         *factor = &s.factor[(i - first) * stride];
            Doubles total = {};
            for (int64_t j = 0; j + 4 < stride; j += 4) {
                const Doubles flow = load(adjoint + 1 + j) * load(factor + 1 + j);
                total += flow * load(state + j);
                store(load(adjoint + j) + flow, adjoint + j);
            }
            s.head_gradient[i] = (total[0] + total[1]) + (total[2] + total[3]);
        }
        if (block > 0 && p.head() > kPlainHead)
            for (int64_t j = 0; j <= p.k; ++j) adjoint[j] *= s.rescaling[block * stride + j];
    }
}

}  // namespace evalgrad::topk
