// The kernels of direct loss minimisation that Python may call. scores, target, mask, gradient:
// (rows, n); value, reached: (rows).
#pragma once

#include "common/kernel.h"

namespace evalgrad::ranking {

// reached = Delta of y_direct. NDCG's cutoff 0 means none.
template <class T>
void direct_ranking(const T* scores, const uint8_t* target, Optional<const uint8_t> mask,
                    int64_t rows, int64_t n, double epsilon, int64_t sign, int64_t ndcg,
                    int64_t cutoff, T* value, T* reached, T* gradient, int64_t threads);

// max_y (F + Delta) - F(all positives first) if augmented (hinge), otherwise F(y_w) - F(all
// positives first) (perceptron).
template <class T>
void ap_structured(const T* scores, const uint8_t* target, Optional<const uint8_t> mask,
                   int64_t rows, int64_t n, int64_t augmented, T* value, T* gradient,
                   int64_t threads);

template <class T>
void direct_jaccard(const T* scores, const uint8_t* target, const uint8_t* mask, int64_t rows,
                    int64_t n, double epsilon, int64_t sign, T* value, T* gradient,
                    int64_t threads);

// gain: (rows, n). The cutoff 0 means none.
template <class T>
void direct_graded(const T* scores, const double* gain, Optional<const uint8_t> mask, int64_t rows,
                   int64_t n, double epsilon, int64_t sign, int64_t cutoff, T* value, T* reached,
                   T* gradient, int64_t threads);

}  // namespace evalgrad::ranking
