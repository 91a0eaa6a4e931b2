// The weights of the Lovász extension of the Jaccard loss, in closed form (docs/maths.md): with P
// foreground items, an item with a foreground and b background items ahead of it weighs 1/(P+b) if
// foreground, (P-a)/((P+b)(P+b+1)) if background.
#pragma once

#include <cstdint>

#include "common/sort.h"

namespace evalgrad::lovasz {

// Items ahead of the next one in decreasing order of error.
struct Ahead {
    int64_t foreground = 0, background = 0;
};

constexpr int64_t kWeighed = 64;  // keys at a time

// Weights of up to kWeighed keys in decreasing order of error; `ahead` moves past them. In short
// loops, which become vectors. Differencing the Jaccard curve instead would lose most digits of the
// background weights.
template <class Key>
EVALGRAD_SIMD static void weigh_keys(const Key* keys, int32_t width, int64_t foreground_total,
                                     Ahead& ahead, double* weights) {
    int32_t front[kWeighed], fronts_ahead[kWeighed], sum = 0;
    for (int32_t j = 0; j < width; ++j) front[j] = static_cast<int32_t>(keys[j] & 1u);
    for (int32_t j = 0; j < width; ++j) fronts_ahead[j] = sum, sum += front[j];
    const double rest = static_cast<double>(foreground_total - ahead.foreground),
                 size = static_cast<double>(foreground_total + ahead.background);
    for (int32_t j = 0; j < width; ++j) {
        const double union_size = size + (j - fronts_ahead[j]);                     // P + b
        const double share = front[j] ? union_size + 1.0 : rest - fronts_ahead[j];  // or P - a
        weights[j] = share / (union_size * (union_size + 1.0));
    }
    ahead.foreground += sum, ahead.background += width - sum;
}

// Calls give(key, weight) for each key that has a weight, in decreasing order of error; `out` is
// where that will write.
template <class Key, class Give>
inline void weigh_sorted(const Key* keys, int64_t count, int64_t foreground_total, const float* out,
                         const Give& give) {
    Ahead ahead;
    double weights[kWeighed];
    // Once all foreground is passed, weights are 0.
    for (int64_t start = 0; start < count && ahead.foreground < foreground_total;
         start += kWeighed) {
        const auto width = static_cast<int32_t>(std::min(kWeighed, count - start));
        // the places are scattered: ask for their cache lines early
        for (int32_t j = 0; j < width; ++j) __builtin_prefetch(out + key_index(keys[start + j]), 1);
        weigh_keys(keys + start, width, foreground_total, ahead, weights);
        for (int32_t j = 0; j < width; ++j) give(keys[start + j], weights[j]);
    }
}

}  // namespace evalgrad::lovasz
