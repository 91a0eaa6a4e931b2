// The weights of one class of a softmax by counting errors in slots instead of sorting them. Slots
// are of equal width within an octave: the errors of a softmax spread over many of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/simd.h"
#include "lovasz/slots.h"
#include "lovasz/softmax_errors.h"

namespace evalgrad::lovasz {

// Errors from `lowest` to 1; those below are not ranked.
struct ErrorSlots {
    float lowest;
    int32_t shift;
    uint32_t last;

    ErrorSlots(float lowest, double at_least) : lowest(lowest), shift(0) {
        while (below_one(lowest) >> (shift + 1) >= at_least) ++shift;
        last = below_one(lowest) >> shift;
    }
    EVALGRAD_INLINE uint32_t of(float error) const {
        return below_one(error) >> shift;
    }  // of one that is ranked

private:
    // By how many steps of float32 an error is below 1.
    EVALGRAD_INLINE static uint32_t below_one(float error) {
        return 0x3F800000u - static_cast<uint32_t>(float_bits(error));
    }
};

// A block of pixels of one class. In short loops, each of which becomes vectors.
struct ErrorBlock {
    float errors[kSlotBlock];
    int32_t foreground[kSlotBlock];
    uint32_t entries[kSlotBlock];
    int32_t ranked;  // how many are

    EVALGRAD_INLINE void read(const float* p, const int32_t* label, int32_t c, int32_t width,
                              ErrorSlots scale, const SlotTable& table) {
        for (int32_t j = 0; j < width; ++j) foreground[j] = label[j] == c;
        for (int32_t j = 0; j < width; ++j) errors[j] = error_of(p[j], foreground[j]);
        int32_t count = 0;
        for (int32_t j = 0; j < width; ++j) count += errors[j] >= scale.lowest;
        ranked = count;
        for (int32_t j = 0; j < width; ++j)
            entries[j] =
                slot_entry(table, scale.of(errors[j]), foreground[j], errors[j] >= scale.lowest, j);
    }
    EVALGRAD_INLINE void find_cells(int32_t width, uint32_t* cells) const {
        for (int32_t j = 0; j < width; ++j)
            cells[j] = cell_of(errors[j], static_cast<uint32_t>(foreground[j]));
    }
};

// Which part of the errors would be ranked, from one block of 17 (odd: not the same columns of
// every image).
struct ErrorSample {
    int64_t seen = 0, ranked = 0;

    bool many() const { return 8 * ranked > seen; }
};

EVALGRAD_SIMD static void sample_errors(const float* p, const int32_t* label, int64_t pixels,
                                        int32_t c, float lowest, ErrorSample& sample) {
    for (int64_t start = 0; start + kSlotBlock <= pixels; start += 17 * kSlotBlock) {
        int32_t own = 0;
        for (int64_t i = start; i < start + kSlotBlock; ++i)
            own += error_of(p[i], label[i] == c) >= lowest;
        sample.seen += kSlotBlock, sample.ranked += own;
    }
}

// Counts errors in slots, and, if there are cells, the others in them. Returns how many are in
// slots.
EVALGRAD_SIMD static int64_t count_in_slots(const float* p, const int32_t* label, int64_t pixels,
                                            int32_t c, const ErrorSlots& scale, SlotTable& table,
                                            uint32_t (*cells)[2 * kStep]) {
    ErrorBlock block;
    uint32_t found[kSlotBlock];
    uint8_t* __restrict counts = table.counts;
    int64_t ranked = 0;
    for (int64_t start = 0; start < pixels; start += kSlotBlock) {
        const auto width = static_cast<int32_t>(std::min(kSlotBlock, pixels - start));
        block.read(p + start, label + start, c, width, scale, table);
        ranked += block.ranked;
        if (block.ranked != 0)
            for (int32_t j = 0; j < width; ++j) ++counts[block.entries[j]];
        if (cells == nullptr || block.ranked == width) continue;
        block.find_cells(width, found);
        for (int32_t j = 0; j < width; ++j) ++cells[j & 1][found[j]];
    }
    return ranked;
}

// Slope x weight in place of the probabilities, from the slots or, if there are cells, from theirs:
// one of the two is 0.
EVALGRAD_SIMD static void look_up_in_slots(float* p, const int32_t* label, int64_t pixels,
                                           int32_t c, const ErrorSlots& scale,
                                           const SlotTable& table, const float* cells) {
    ErrorBlock block;
    uint32_t found[kSlotBlock];
    const float* slopes = table.slopes;
    for (int64_t start = 0; start < pixels; start += kSlotBlock) {
        const auto width = static_cast<int32_t>(std::min(kSlotBlock, pixels - start));
        float* out = p + start;
        block.read(out, label + start, c, width, scale, table);
        if (block.ranked == 0) {
            std::fill_n(out, width, 0.0f);
        } else {
            for (int32_t j = 0; j < width; ++j) out[j] = slopes[block.entries[j]];
        }
        if (cells == nullptr || block.ranked == width) continue;
        block.find_cells(width, found);
        for (int32_t j = 0; j < width; ++j) out[j] += cells[found[j]];
    }
}

}  // namespace evalgrad::lovasz
