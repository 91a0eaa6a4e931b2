// The S-measure kernels that Python may call.
#pragma once

#include "common/kernel.h"

namespace evalgrad::s_measures {

// scores and positive (rows, items), weight (rows, 2) -> value (rows,), gradient (rows, items),
// totals (rows, 2, 3). With square > 0 the value is the ratio of F-beta, square = beta^2 and prior
// the negatives per positive, 0 for those of the totals. The running totals, if given, become
// momentum times themselves plus these, unless these overflowed.
template <class T>
void weighted_errors(const T* scores, const uint8_t* positive, const T* weight, int64_t rows,
                     int64_t items, int64_t surrogate, double square, double prior, T* value,
                     T* gradient, T* totals, Optional<T> running, double momentum, int64_t threads);

// scores and positive (items,), scale and threshold (rows,) -> totals (rows, 2, 3).
template <class T>
void error_totals(const T* scores, const uint8_t* positive, const T* scale, const T* threshold,
                  int64_t rows, int64_t items, int64_t surrogate, T* totals, int64_t threads);

}  // namespace evalgrad::s_measures
