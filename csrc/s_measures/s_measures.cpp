// S-measures: surrogate errors by rows, with their gradient, and their totals. All state is
// Python's.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/simd.h"
#include "s_measures/kernels.h"
#include "s_measures/rows.h"

namespace evalgrad::s_measures {
namespace {

template <class T>
EVALGRAD_SIMD void weighted_rows(const T* scores, const uint8_t* positive, const T* weight,
                                 int64_t rows, int64_t items, int64_t surrogate, T* value,
                                 T* gradient, T* totals) {
    for (int64_t r = 0; r < rows; ++r)
        with_surrogate<T>(surrogate, [&](auto kind) __attribute__((always_inline)) {
            weighted_row<decltype(kind)>(scores + r * items, positive + r * items, items,
                                         weight + 2 * r, value + r, gradient + r * items,
                                         totals + 6 * r);
        });
}

template <class T>
EVALGRAD_SIMD void totals_rows(const T* scores, const uint8_t* positive, const T* scale,
                               const T* threshold, int64_t rows, int64_t items, int64_t surrogate,
                               T* totals) {
    for (int64_t r = 0; r < rows; ++r)
        with_surrogate<T>(surrogate, [&](auto kind) __attribute__((always_inline)) {
            totals_row<decltype(kind)>(scores, positive, items, scale[r], threshold[r],
                                       totals + 6 * r);
        });
}

// The value of F-beta, V = (beta^2 + F) / T, from totals (2, 3); 0 where a class is missing. Hard
// counts find one positive at least where T > 0: a T below one of n positives stands for one of n.
template <class T>
double ratio(const T* totals, double square, double prior) {
    const double missed = totals[0], n = totals[2], alarms = totals[3], m = totals[5];
    if (n == 0.0 || m == 0.0) return 0.0 * missed * alarms;  // NaN shows
    const double alarm = prior > 0.0 ? prior * alarms / m : alarms / n;
    return (square + alarm) / std::max(1.0 - missed / n, 1.0 / n);
}

// An overflowed batch stays out: a gradient scaler skips its step, and an infinite sum would never
// recover.
template <class T>
void take_in(const T* totals, int64_t n, double momentum, T* running) {
    if (!std::all_of(totals, totals + n, [](T x) { return std::isfinite(x); })) return;
    for (int64_t i = 0; i < n; ++i) running[i] = static_cast<T>(momentum * running[i] + totals[i]);
}

}  // namespace

template <class T>
void weighted_errors(const T* scores, const uint8_t* positive, const T* weight, int64_t rows,
                     int64_t items, int64_t surrogate, double square, double prior, T* value,
                     T* gradient, T* totals, Optional<T> running, double momentum, int64_t) {
    weighted_rows(scores, positive, weight, rows, items, surrogate, value, gradient, totals);
    for (int64_t r = 0; square > 0.0 && r < rows; ++r)
        value[r] = static_cast<T>(ratio(totals + 6 * r, square, prior));
    if (running) take_in(totals, 6 * rows, momentum, static_cast<T*>(running));
}
EVALGRAD_FLOAT_AND_DOUBLE(weighted_errors)

template <class T>
void error_totals(const T* scores, const uint8_t* positive, const T* scale, const T* threshold,
                  int64_t rows, int64_t items, int64_t surrogate, T* totals, int64_t) {
    totals_rows(scores, positive, scale, threshold, rows, items, surrogate, totals);
}
EVALGRAD_FLOAT_AND_DOUBLE(error_totals)

}  // namespace evalgrad::s_measures
