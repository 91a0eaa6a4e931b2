// The weights of one class of a softmax by counting errors in slots instead of sorting them. Slots are of equal width within an octave:
// the errors of a softmax spread over many of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "simd.h"
#include "slots.h"
#include "softmax_errors.h"

namespace evalgrad {

// Errors from `lowest` to 1; those below are not ranked.
struct ErrorSlots {
    float lowest;
    int32_t shift;
    uint32_t last;

    ErrorSlots(float lowest, int64_t pixels, int64_t foreground_total) : lowest(lowest), shift(0) {
        const int64_t least = int64_t{1} << (foreground_total < kMuchForeground ? 20 : 18);  // the map of 2^18 stays in a second-level cache
        while (below_one(lowest) >> (shift + 1) >= std::max(least, pixels / 2)) ++shift;
        last = below_one(lowest) >> shift;
    }
    EVALGRAD_INLINE uint32_t of(float error) const { return std::min(below_one(error) >> shift, last); }

private:
    // By how many steps of float32 an error is below 1; many for that of an ignored pixel, which is negative.
    EVALGRAD_INLINE static uint32_t below_one(float error) { return 0x3F800000u - static_cast<uint32_t>(float_bits(error)); }
};

// A block of pixels of one class. In short loops, each of which becomes vectors.
struct ErrorBlock {
    float errors[kSlotBlock];
    int32_t foreground[kSlotBlock];
    int32_t ranked;  // how many are
    SlotBlock slots;

    EVALGRAD_INLINE void read(const float* p, const int32_t* label, int32_t c, int64_t width, ErrorSlots scale, const SlotMap& map) {
        for (int64_t j = 0; j < width; ++j) foreground[j] = label[j] == c;
        for (int64_t j = 0; j < width; ++j) errors[j] = error_of(p[j], foreground[j]);
        int32_t count = 0;
        for (int64_t j = 0; j < width; ++j) count += errors[j] >= scale.lowest;
        ranked = count;
        const auto spare = static_cast<uint32_t>(map.cells);
        for (int64_t j = 0; j < width; ++j) {
            const float error = errors[j];
            slots.put(j, scale.of(error), error >= scale.lowest, spare);
        }
    }
    EVALGRAD_INLINE void find_cells(int64_t width, uint32_t* cells) const {
        for (int64_t j = 0; j < width; ++j) cells[j] = cell_of(errors[j], static_cast<uint32_t>(foreground[j]));
    }
};

// Whether an eighth of the errors or more would be ranked, from one block of 17 (odd: not the same columns of every image).
EVALGRAD_SIMD static bool many_ranked(const float* p, const int32_t* label, int64_t pixels, int32_t c, float lowest) {
    int64_t seen = 0, ranked = 0;
    for (int64_t start = 0; start + kSlotBlock <= pixels; start += 17 * kSlotBlock) {
        int32_t own = 0;
        for (int64_t i = start; i < start + kSlotBlock; ++i) own += error_of(p[i], label[i] == c) >= lowest;
        seen += kSlotBlock, ranked += own;
    }
    return 8 * ranked > seen;
}

// Counts errors in slots, and, if there are cells, the others in them. Returns how many are in slots.
EVALGRAD_SIMD static int64_t count_in_slots(const float* p, const int32_t* label, int64_t pixels, int32_t c, const ErrorSlots& scale, SlotMap& map,
                                            uint32_t (*cells)[2 * kStep]) {
    ErrorBlock block;
    uint32_t found[kSlotBlock];
    int64_t ranked = 0;
    for (int64_t start = 0; start < pixels; start += kSlotBlock) {
        const int64_t width = std::min(kSlotBlock, pixels - start);
        block.read(p + start, label + start, c, width, scale, map);
        ranked += block.ranked;
        if (block.ranked != 0) count_slots(block.slots, block.foreground, width, map);
        if (cells == nullptr || block.ranked == width) continue;
        block.find_cells(width, found);
        for (int64_t j = 0; j < width; ++j) ++cells[j & 1][found[j]];
    }
    return ranked;
}

// Slope x weight in place of the probabilities: from the slots, else from the table of the cells, 0 if there is none.
EVALGRAD_SIMD static void weigh_in_slots(float* p, const int32_t* label, int64_t pixels, int32_t c, const ErrorSlots& scale, const SlotMap& map,
                                         int64_t foreground_total, float slope, const float* table) {
    ErrorBlock block;
    uint32_t found[kSlotBlock];
    float weights[kSlotBlock];
    for (int64_t start = 0; start < pixels; start += kSlotBlock) {
        const int64_t width = std::min(kSlotBlock, pixels - start);
        float* out = p + start;
        block.read(out, label + start, c, width, scale, map);
        if (table == nullptr) {
            std::fill_n(out, width, 0.0f);
        } else {
            block.find_cells(width, found);
            for (int64_t j = 0; j < width; ++j) out[j] = table[found[j]];
        }
        if (block.ranked == 0) continue;
        weigh_slots(map, block.slots, block.foreground, foreground_total, slope, weights);
        const float lowest = scale.lowest;
        for (int64_t j = 0; j < width; ++j) {
            const float weight = weights[j], rest = out[j];
            out[j] = block.errors[j] >= lowest ? weight : rest;
        }
    }
}

}  // namespace evalgrad
