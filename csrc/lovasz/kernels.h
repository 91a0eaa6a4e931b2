// The Lovász kernels that Python may call. Tensors are contiguous.
// Misses, false alarms: what one weighs against a hit in the Tversky index; 1 and 1 is the Jaccard
// index.
#pragma once

#include "common/kernel.h"

namespace evalgrad::lovasz {

// x (groups, images, classes, pixels), label (groups, images, pixels), negative = ignored; scale
// (groups, classes). value (groups) = sum over classes of scale x loss; gradient, of the shape of
// x, = d value / d x. Bins: 0 = exact, else the number of equal bins that errors are counted in.
void softmax(const float* x, const int64_t* label, const float* scale, int64_t groups,
             int64_t images, int64_t classes, int64_t pixels, int64_t bins, double misses,
             double false_alarms, float* value, float* gradient, int64_t threads);

// The same in bins and in two calls, because the counts of several ranks may be added in between.
// counts (groups, classes, 2, bins), background then foreground, each from the largest errors down;
// slopes likewise: of the value in the probability of a pixel of that bin.
void softmax_bin_counts(const float* x, const int64_t* label, int64_t groups, int64_t images,
                        int64_t classes, int64_t pixels, int64_t bins, int64_t* counts,
                        int64_t threads);
void softmax_bin_gradient(const float* x, const int64_t* label, const float* slopes, int64_t groups,
                          int64_t images, int64_t classes, int64_t pixels, int64_t bins,
                          float* value, float* gradient, int64_t threads);

// x (rows, n): errors, or logits if hinge; foreground, mask (rows, n); factor (rows); value (rows)
// and gradient (rows, n) are times the factor. Bins, of a hinge only: 0 = exact, else the number of
// equal bins between 0 and the largest loss of the row.
void rows(const float* x, const uint8_t* foreground, Optional<const uint8_t> mask,
          Optional<const float> factor, int64_t rows, int64_t n, int64_t hinge, int64_t bins,
          double misses, double false_alarms, float* value, float* gradient, int64_t threads);

// Of the Jaccard loss. x, u: (rows, n); items outside the mask keep their x; a NaN that counts
// makes its row NaN.
void prox(const double* x, const uint8_t* foreground, const uint8_t* mask, int64_t rows, int64_t n,
          double lam, double* u, int64_t threads);

}  // namespace evalgrad::lovasz
