// The loss max-pooling kernel that Python may call.
#pragma once

#include "common/kernel.h"

namespace evalgrad::pooling {

// losses, mask and weights: (rows, n); value: (rows); n < 2^31.
void loss_max_pooling(const float* losses, Optional<const uint8_t> mask, int64_t rows, int64_t n,
                      double p, double support, float* value, float* weights, int64_t threads);

}  // namespace evalgrad::pooling
