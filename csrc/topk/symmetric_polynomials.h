// log sigma_k - log sigma_{k-1} of exp(x) and its gradient, kRows rows at a time (docs/maths.md):
// sigma_j are the elementary symmetric polynomials. The H largest x go one by one through an exact
// recursion (head), all the others as one polynomial (bulk).
#pragma once

#include <limits>

#include "topk/symmetric_bulk.h"
#include "topk/symmetric_head.h"

namespace evalgrad::topk {

// No rows yet. A lane that is given none has numbers too, of no meaning.
template <class T>
EVALGRAD_INLINE void clear_rows(Workspace<T>& s) {
    std::fill(s.ratio.begin(), s.ratio.end(), Lanes{});
    std::fill(s.bulk.begin(), s.bulk.end(), Lanes{});
    store(kOnes, s.bulk[0]);
    store(kOnes, s.scale);
}

// The row of a lane: its head from `items`, its bulk from its scores, which become u.
template <class T>
EVALGRAD_INLINE void take_row(const Split& split, double inverse, const Item<T>* items,
                              int64_t lane, Workspace<T>& s) {
    const int64_t k = split.k, head = split.head();
    for (int64_t i = 0; i < head; ++i) {
        const T ahead = items[std::max<int64_t>(i, 1) - 1].score;
        s.ratio[i].row[lane] = difference<double>(items[i].score, ahead) * inverse;
        s.place[lane * head + i] = items[i].index;
    }
    if (!split.has_bulk()) return;
    T* scores = s.row(split, lane);
    for (int64_t i = 0; i < head; ++i) scores[items[i].index] = -std::numeric_limits<T>::infinity();
    const T finite = static_cast<T>(std::min<double>(inverse, std::numeric_limits<T>::max()));
    const double sum = bulk_exponentials(scores, split.padded(), items[k - 1].score, finite);
    s.scale.row[lane] = bulk_scale(sum, k);
    bulk_polynomial(scores, split.padded(), static_cast<T>(s.scale.row[lane]), k, lane, s);
}

// sigma_j of all = sum_a sigma_{j-a}(head) sigma_a(bulk). In units of exp(x_[1] + .. + x_[j])
// Gamma_j, with gain_j = exp(x_[k] - x_[j])/mu and Gamma_j = prod max(1, gain), no term overflows:
// full_j = sum_a (S_{j-a}/Gamma_{j-a}) (mu^a V_a) prod_{t=j-a+1..j} min(1, gain_t).
// Leaves q_j for the bulk, the adjoint of S for the head; returns S_k/S_{k-1}.
template <class T>
EVALGRAD_INLINE Doubles join(const Split& p, Workspace<T>& s) {
    const int64_t k = p.k;
    const Doubles scale = load(s.scale);
    Lanes *full = s.full.data(), *weight = s.weight.data(), *gain = s.gain.data(),
          *adjoint = s.adjoint.data();
    Lanes* head = &s.state[((p.head() - 1) % kHeadBlock + 1) * p.stride()];
    Doubles units = kOnes, last = kOnes;  // Gamma_j, Gamma_k/Gamma_{k-1}
    for (int64_t j = 0; j <= k; ++j) {
        const Doubles own = p.has_bulk() && j ? load(s.pivot[j]) / scale : kOnes;
        last = own > kOnes ? own : kOnes;
        units *= last;
        store(own / last, gain[j]);
        store(load(head[j]) / units, head[j]);
        full[j] = head[j];
        store(kOnes, weight[j]);
        store(kOnes / units, adjoint[j]);
    }
    for (int64_t a = 1; p.has_bulk() && a <= k; ++a)
        for (int64_t j = k; j >= a; --j) {
            const Doubles least = load(weight[j]) * load(gain[j - a + 1]);
            store(least, weight[j]);
            store(load(full[j]) + load(head[j - a]) * load(s.bulk[a]) * least, full[j]);
        }
    const Doubles top = load(full[k]), below = load(full[k - 1]);
    Doubles up = kOnes, down = kOnes;
    for (int64_t a = 0; a <= k; ++a) {  // d log sigma_k / d S_{k-a} - d log sigma_{k-1} / d S_{k-a}
        Doubles flow = load(s.bulk[a]) * up / top;
        up *= load(gain[k - a]);
        if (a > 0) {
            flow -= load(s.bulk[a - 1]) * down / below;
            down *= load(gain[k - a]);
        }
        store(load(adjoint[k - a]) * flow, adjoint[k - a]);
    }
    for (int64_t j = 1; j <= k; ++j)
        store(load(gain[j]) * load(full[j - 1]) / load(full[j]) * scale, s.q[j]);
    return top / below * last;
}

// ratios[lane] = log sigma_k - log sigma_{k-1} - x_[k], with all that the gradient needs left in s.
template <class T>
EVALGRAD_INLINE void log_ratios(const Split& split, Workspace<T>& s, double* ratios) {
    for (Lanes& ratio : s.ratio)
        for (double& own : ratio.row) own = exp_nonpositive(own);
    double exponents[kRows];
    head_forward(split, s, exponents);
    const Doubles joined = join(split, s);
    for (int64_t lane = 0; lane < kRows; ++lane)
        ratios[lane] = std::log(joined[lane]) + exponents[lane] * 0.6931471805599453;
}

// coefficient d(log sigma_k - log sigma_{k-1})/d x_i of the row of a lane, after head_backward.
template <class T>
EVALGRAD_INLINE void ratio_gradient(const Split& split, double coefficient, int64_t lane,
                                    Workspace<T>& s, T* out) {
    const int64_t head = split.head();
    if (split.has_bulk())
        bulk_gradient(s.row(split, lane), split.classes, s.q.data(), split.k, lane, coefficient,
                      s.lanes.data(), out);
    else
        std::fill_n(out, split.classes, T(0));
    for (int64_t i = 0; i < head; ++i)
        out[s.place[lane * head + i]] = static_cast<T>(s.head_gradient[i].row[lane] * coefficient);
}

}  // namespace evalgrad::topk
