// How the bins of a histogram divide the errors, and how wide their counters are: an error is held
// or not, and one that is has a bin. Bins are numbered from the largest errors down.
#pragma once

#include <cstdint>

#include "common/simd.h"

namespace evalgrad::lovasz {

// Of one width between two errors, both included. NaN is held, among the largest errors.
template <class C>
struct EqualBins {
    using Count = C;
    static constexpr bool finest = false;
    float lowest, highest, scale;
    int32_t last;

    EqualBins() = default;
    EqualBins(float lowest, float highest, float scale, int64_t bins)
        : lowest(lowest), highest(highest), scale(scale), last(static_cast<int32_t>(bins) - 1) {}
    int64_t bins() const { return int64_t{last} + 1; }
    EVALGRAD_INLINE bool holds(float error) const { return !(error < lowest) & !(error > highest); }
    EVALGRAD_INLINE uint32_t bin(float error) const {
        const float place = (error - lowest) * scale, top = static_cast<float>(last);
        // this way round, NaN is in the first bin
        return static_cast<uint32_t>(last - static_cast<int32_t>(place < top ? place : top));
    }
};

// Errors from `lowest` to 1, by how many steps of float32 they are below 1: of equal width within
// an octave.
struct OctaveBins {
    using Count = uint8_t;
    float lowest;
    int32_t shift;
    bool finest;  // a bin per number: there are no finer ones

    OctaveBins() = default;
    OctaveBins(float lowest, double at_least) : lowest(lowest), shift(0) {
        while (below_one(lowest) >> (shift + 1) >= at_least) ++shift;
        finest = shift == 0;
    }
    int64_t bins() const { return int64_t{bin(lowest)} + 1; }
    EVALGRAD_INLINE bool holds(float error) const { return error >= lowest; }
    EVALGRAD_INLINE uint32_t bin(float error) const { return below_one(error) >> shift; }

private:
    EVALGRAD_INLINE static uint32_t below_one(float error) {
        return 0x3F800000u - static_cast<uint32_t>(float_bits(error));
    }
};

}  // namespace evalgrad::lovasz
