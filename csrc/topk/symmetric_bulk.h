// The bulk: all the classes behind the head as one polynomial V_a = sigma_a(u), u_i = exp(x_i -
// x_[k]) <= 1, built in SIMD lanes by V_a += u_i V_{a-1}. Its gradient needs no state: with q_j =
// exp(x_[k]) sigma_{j-1}/sigma_j the marginals p_j(i) = d log sigma_j/d x_i obey p_j = u_i q_j (1 -
// p_{j-1}). As H >= 3k, a bulk class has p_j <= k/(3k+1) < 1/3: each step at most halves the error
// it inherits.
#pragma once

#include "topk/symmetric_space.h"
#include "topk/top_items.h"

namespace evalgrad::topk {

// u_i = exp(x_i - x_[k]) in place; returns their sum.
template <class T>
EVALGRAD_INLINE double bulk_exponentials(T* u, int64_t padded, T pivot, T inverse) {
    constexpr int64_t block = 2 * Simd<T>::lanes;  // sums that stay in registers
    T sums[block] = {};
    for (int64_t i = 0; i < padded; i += block)
        for (int64_t l = 0; l < block; ++l) {
            u[i + l] = exp_nonpositive(difference(u[i + l], pivot) * inverse);
            sums[l] += u[i + l];
        }
    double sum = 0.0;
    for (const T part : sums) sum += part;
    return sum;
}

// Four items per lane at once: c_1..c_4 are their own symmetric polynomials. v holds zeros in three
// rows of lanes, then V_0, V_1, ...
template <class T>
EVALGRAD_INLINE void absorb(const T* u, T scale, int64_t k, T* v) {
    using Vector = typename Simd<T>::Vector;
    constexpr int64_t lanes = Simd<T>::lanes;
    const Vector a = load(u) * scale, b = load(u + lanes) * scale, c = load(u + 2 * lanes) * scale,
                 d = load(u + 3 * lanes) * scale;
    const Vector ab = a * b, cd = c * d, a_b = a + b, c_d = c + d;
    const Vector c1 = a_b + c_d, c2 = (ab + cd) + a_b * c_d, c3 = ab * c_d + cd * a_b, c4 = ab * cd;
    for (T* at = v + (3 + k) * lanes; at > v + 3 * lanes; at -= lanes) {
        const Vector low = c1 * load(at - lanes) + c2 * load(at - 2 * lanes);
        store(load(at) + (low + (c3 * load(at - 3 * lanes) + c4 * load(at - 4 * lanes))), at);
    }
}

// Halves the number of lanes, polynomial of lane l times polynomial of lane l + W, down to one.
template <int W>
EVALGRAD_INLINE void merge_lanes(double* v, int64_t k, int64_t lanes) {
    for (int64_t a = k; a >= 0; --a) {
        double product[W] = {};
        for (int64_t b = 0; b <= a; ++b)
            for (int l = 0; l < W; ++l) product[l] += v[b * lanes + l] * v[(a - b) * lanes + W + l];
        std::copy_n(product, W, v + a * lanes);
    }
    if constexpr (W > 1) merge_lanes<W / 2>(v, k, lanes);
}

// A power of two mu with mu sum(u) <= k/e: mu^a V_a <= (k/e)^a/a! <= exp(k/e) never overflows, nor
// vanishes where it matters.
EVALGRAD_INLINE double bulk_scale(double sum, int64_t k) {
    const double excess = sum * 2.718281828459045 / k;
    return excess > 1.0 && excess < 1e300 ? std::ldexp(1.0, -std::ilogb(excess) - 1) : 1.0;
}

// mu^a V_a for a = 0..k into the given lane of s.bulk.
template <class T>
EVALGRAD_INLINE void bulk_polynomial(const T* u, int64_t padded, T scale, int64_t k, int64_t lane,
                                     Workspace<T>& s) {
    constexpr int64_t lanes = Simd<T>::lanes;
    T* v = s.lanes.data();
    std::fill(s.lanes.begin(), s.lanes.end(), T(0));
    std::fill_n(s.lanes.begin() + 3 * lanes, lanes, T(1));
    for (int64_t i = 0; i < padded; i += 4 * lanes) absorb(u + i, scale, k, v);
    for (int64_t a = 0; a < (k + 1) * lanes; ++a) s.products[a] = s.lanes[3 * lanes + a];
    merge_lanes<lanes / 2>(s.products.data(), k, lanes);
    for (int64_t a = 0; a <= k; ++a) s.bulk[a].row[lane] = s.products[a * lanes];
}

// Four chains at once hide the latency of the recursion.
template <class T>
EVALGRAD_INLINE void bulk_gradient_block(const T* u, const T* steps, int64_t k, T rise, T last,
                                         T* out) {
    using Vector = typename Simd<T>::Vector;
    constexpr int64_t lanes = Simd<T>::lanes;
    Vector x[4], p[4] = {}, odds;
    for (int c = 0; c < 4; ++c) x[c] = load(u + c * lanes);
    for (int64_t j = 1; j < k - 1; ++j)
        for (int c = 0; c < 4; ++c) odds = x[c] * steps[j], p[c] = odds - odds * p[c];
    for (int c = 0; c < 4; ++c) {
        odds = x[c] * steps[k - 1];
        const Vector next = odds - odds * p[c];
        store<T>(x[c] * (rise - rise * next - last * (next - p[c])), out + c * lanes);
    }
}

// Gradient of the bulk, (p_k - p_{k-1}) coefficient. The last step is taken on the difference,
// which does not cancel: p_k - p_{k-1} = u ((q_k - q_{k-1}) (1 - p_{k-1}) - q_{k-1} (p_{k-1} -
// p_{k-2})).
template <class T>
EVALGRAD_INLINE void bulk_gradient(const T* u, int64_t count, const Lanes* q, int64_t k,
                                   int64_t lane, double coefficient, T* steps, T* out) {
    constexpr int64_t block = 4 * Simd<T>::lanes;
    for (int64_t j = 0; j < k; ++j) steps[j] = static_cast<T>(q[j].row[lane]);
    const T rise = static_cast<T>((q[k].row[lane] - q[k - 1].row[lane]) * coefficient),
            last = static_cast<T>(q[k - 1].row[lane] * coefficient);
    int64_t i = 0;
    for (; i + block <= count; i += block)
        bulk_gradient_block(u + i, steps, k, rise, last, out + i);
    if (i == count) return;
    T tail[block];
    bulk_gradient_block(u + i, steps, k, rise, last, tail);
    std::copy_n(tail, count - i, out + i);
}

}  // namespace evalgrad::topk
