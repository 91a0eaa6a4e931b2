// The S-measure kernels that Python may call.
#pragma once

#include "common/kernel.h"

namespace evalgrad::s_measures {

// scores and positive (rows, items), weight (rows, 2) -> value (rows,), gradient (rows, items),
// totals (rows, 2, 3).
template <class T>
void weighted_errors(const T* scores, const uint8_t* positive, const T* weight, int64_t rows,
                     int64_t items, int64_t surrogate, T* value, T* gradient, T* totals,
                     int64_t threads);

// scores and positive (items,), scale and threshold (rows,) -> totals (rows, 2, 3).
template <class T>
void error_totals(const T* scores, const uint8_t* positive, const T* scale, const T* threshold,
                  int64_t rows, int64_t items, int64_t surrogate, T* totals, int64_t threads);

// scores, positive and index (items,), weight (2,) -> value, gradient (items,); with a report also
// into the memory of the data.
template <class T>
void batch(const T* scores, const uint8_t* positive, Optional<const int64_t> index, int64_t items,
           const T* weight, int64_t surrogate, T* value, T* gradient, const uint8_t* labels,
           T* cache, int64_t size, T* totals, double momentum, int64_t* progress, uint8_t* indexed,
           int64_t cycle, Optional<int64_t> report, int64_t threads);

// totals (rows, 2, 3), objective (rows, 4), constraints (rows, count, 4), share (rows,) -> mu
// (rows, count), weight (rows, 2) in place.
template <class T>
void renewed_multipliers(const T* totals, const T* objective, const T* constraints, const T* share,
                         int64_t rows, int64_t count, double prior, double worst,
                         double worst_per_prior, double step, double ceiling, double damped_step,
                         int64_t fractional, int64_t hard, T* mu, T* weight, int64_t threads);

}  // namespace evalgrad::s_measures
