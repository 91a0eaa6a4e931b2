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
                     int64_t items, int64_t surrogate, T* value, T* gradient, T* totals,
                     Optional<T> running, double momentum, int64_t) {
    weighted_rows(scores, positive, weight, rows, items, surrogate, value, gradient, totals);
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
