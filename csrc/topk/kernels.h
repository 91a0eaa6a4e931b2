// The top-k kernels that Python may call.
#pragma once

#include "common/kernel.h"

namespace evalgrad::topk {

// scores (rows, classes), target and factor (rows,), 1 <= k < classes -> value (rows,), gradient
// (rows, classes).
template <class T>
void smooth_topk(const T* scores, const int64_t* target, const T* factor, int64_t rows,
                 int64_t classes, int64_t k, double temperature, double margin, T* value,
                 T* gradient, int64_t threads);
template <class T>
void topk_hinge(const T* scores, const int64_t* target, const T* factor, int64_t rows,
                int64_t classes, int64_t k, double margin, T* value, T* gradient, int64_t threads);

}  // namespace evalgrad::topk
