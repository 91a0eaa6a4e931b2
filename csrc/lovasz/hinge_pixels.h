// The pixels of a row and their hinge losses, for the ways to the Lovász hinge that count pixels
// instead of sorting them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "common/simd.h"

namespace evalgrad::lovasz {

constexpr int64_t kHingeBlock = 256;  // pixels at a time

struct HingePixels {
    const float* x;
    const uint8_t* foreground;
    const uint8_t* mask;  // may be null
    int64_t n;
};

// A block of them, all of one width: the compiler's vectors need that.
struct HingeBlock {
    float losses[kHingeBlock];        // 0 for those left out; NaN stays NaN
    int32_t foreground[kHingeBlock];  // 1 for foreground that counts, else 0
};

EVALGRAD_INLINE void read_block(const HingePixels& row, int64_t start, int64_t width,
                                HingeBlock& block) {
    const float* x = row.x + start;
    const uint8_t* foreground = row.foreground + start;
    for (int64_t j = 0; j < width; ++j) {
        const int32_t own = foreground[j] != 0;
        const float margin =
            1.0f + bits_float(float_bits(x[j]) ^
                              (own << 31));  // flips x without a choice between two sums
        block.losses[j] = margin < 0.0f ? 0.0f : margin;
        block.foreground[j] = own;
    }
    if (row.mask == nullptr) return;
    const uint8_t* mask = row.mask + start;
    for (int64_t j = 0; j < width; ++j) {
        block.losses[j] = mask[j] ? block.losses[j] : 0.0f;
        block.foreground[j] = mask[j] ? block.foreground[j] : 0;
    }
}

// Of pixels, block by block: how many have a loss, the largest, NaN if there is one, and how many
// are foreground.
struct HingeRange {
    int64_t wrong = 0, foreground_total = 0;
    int32_t highest_bits = 0;  // bits have the order of the losses, NaN the largest

    EVALGRAD_INLINE void add(const HingeBlock& block, int64_t width) {
        int32_t top = highest_bits, above = 0, total = 0;
        for (int64_t j = 0; j < width; ++j) {
            top = std::max(top, float_bits(block.losses[j]) & 0x7FFFFFFF);
            above += block.losses[j] > 0.0f;
            total += block.foreground[j];
        }
        highest_bits = top, wrong += above, foreground_total += total;
    }
    float highest() const { return bits_float(highest_bits); }
};

// Sum of loss x |slope|, block by block, in lanes that do not wait for each other.
struct HingeSum {
    static constexpr int64_t kLanes = 16;
    double lanes[kLanes] = {};

    EVALGRAD_INLINE void add(const float* __restrict losses, const float* __restrict slopes,
                             int64_t width) {
        float sums[kLanes] = {};
        int64_t j = 0;
        for (; j + kLanes <= width; j += kLanes)
            for (int64_t k = 0; k < kLanes; ++k)
                sums[k] += losses[j + k] * std::fabs(slopes[j + k]);
        for (int64_t k = 0; j + k < width; ++k) sums[k] += losses[j + k] * std::fabs(slopes[j + k]);
        for (int64_t k = 0; k < kLanes; ++k) lanes[k] += sums[k];
    }
    double total() const { return std::accumulate(lanes, lanes + kLanes, 0.0); }
};

}  // namespace evalgrad::lovasz
