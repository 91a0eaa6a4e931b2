// log sigma_k - log sigma_{k-1} of exp(x) and its gradient, one row at a time (docs/maths.md):
// sigma_j are the elementary symmetric polynomials. The H largest x go one by one through an exact
// recursion (head), all the others as one polynomial (bulk).
#pragma once

#include <limits>

#include "topk/symmetric_bulk.h"
#include "topk/symmetric_head.h"

namespace evalgrad::topk {

template <class T>
struct Worker {
    TopItems<T> top;
    Workspace<T> space;
};

// sigma_j of all = sum_a sigma_{j-a}(head) sigma_a(bulk). In units of exp(x_[1] + .. + x_[j])
// Gamma_j, with gain_j = exp(x_[k] - x_[j])/mu and Gamma_j = prod max(1, gain), no term overflows:
// full_j = sum_a (S_{j-a}/Gamma_{j-a}) (mu^a V_a) prod_{t=j-a+1..j} min(1, gain_t).
// Leaves q_j for the bulk, the adjoint of S for the head; returns log(S_k/S_{k-1}).
template <class T>
EVALGRAD_INLINE double join(const Split& p, Workspace<T>& s, double scale) {
    const int64_t k = p.k;
    double *full = s.full.data(), *weight = s.weight.data(), *gain = s.gain.data(),
           *adjoint = s.adjoint.data();
    double* head = &s.state[((p.head() - 1) % kHeadBlock + 1) * p.stride()];
    double units = 1.0, last = 1.0;  // Gamma_j, Gamma_k/Gamma_{k-1}
    for (int64_t j = 0; j <= k; ++j) {
        gain[j] = p.has_bulk() && j ? s.pivot[j] / scale : 1.0;
        last = std::max(1.0, gain[j]);
        units *= last;
        gain[j] /= last;
        full[j] = head[j] = head[j] / units;
        weight[j] = 1.0;
        adjoint[j] = 1.0 / units;
    }
    for (int64_t a = 1; p.has_bulk() && a <= k; ++a)
        for (int64_t j = k; j >= a; --j)
            full[j] += head[j - a] * s.bulk[a] * (weight[j] *= gain[j - a + 1]);
    double up = 1.0, down = 1.0;
    for (int64_t a = 0; a <= k; ++a) {  // d log sigma_k / d S_{k-a} - d log sigma_{k-1} / d S_{k-a}
        double flow = s.bulk[a] * up / full[k];
        up *= gain[k - a];
        if (a > 0) {
            flow -= s.bulk[a - 1] * down / full[k - 1];
            down *= gain[k - a];
        }
        adjoint[k - a] *= flow;
    }
    for (int64_t j = 1; j <= k; ++j) s.q[j] = gain[j] * full[j - 1] / full[j] * scale;
    return std::log(full[k] / full[k - 1] * last);
}

// log sigma_k - log sigma_{k-1} - x_[k], with all that the gradient needs left in w.space and `row`
// (scores -> u of the bulk).
template <class T>
EVALGRAD_INLINE double log_ratio(const Split& split, double inverse, T* row, Worker<T>& w) {
    const int64_t k = split.k;
    const auto& items = w.top.items;
    const double exponent = head_forward(split, items.data(), inverse, w.space);
    double scale = 1.0;
    std::fill_n(w.space.bulk.begin(), k + 1, 0.0);
    w.space.bulk[0] = 1.0;
    if (split.has_bulk()) {
        for (int64_t i = 0; i < split.head(); ++i)
            row[items[i].index] = -std::numeric_limits<T>::infinity();
        const T finite = static_cast<T>(std::min<double>(inverse, std::numeric_limits<T>::max()));
        scale = bulk_scale(bulk_exponentials(row, split.classes, items[k - 1].score, finite), k);
        bulk_polynomial(row, split.classes, static_cast<T>(scale), k, w.space);
    }
    return join(split, w.space, scale) + exponent * 0.6931471805599453;
}

// coefficient d(log sigma_k - log sigma_{k-1})/d x_i over `row`.
template <class T>
EVALGRAD_INLINE void ratio_gradient(const Split& split, double coefficient, T* row, Worker<T>& w) {
    head_backward(split, w.space);
    if (split.has_bulk())
        bulk_gradient(row, split.classes, w.space.q.data(), split.k, coefficient,
                      w.space.lanes.data());
    else
        std::fill_n(row, split.classes, T(0));
    for (int64_t i = 0; i < split.head(); ++i)
        row[w.top.items[i].index] = static_cast<T>(w.space.head_gradient[i] * coefficient);
}

}  // namespace evalgrad::topk
