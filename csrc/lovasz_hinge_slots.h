// The Lovász hinge of many pixels without a sort, by slots of equal width between 0 and the largest loss.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "hinge_pixels.h"
#include "simd.h"
#include "slots.h"

namespace evalgrad {

static_assert(kHingeBlock == kSlotBlock);

// The loss that slot 0 stands for, and slots per unit of loss.
struct HingeSlots {
    float highest, scale;
};

// Asks for a block some blocks on, of what is read or written in order: the hardware by itself looks no further than the page.
EVALGRAD_INLINE void ask_for_block(const float* block) {
    constexpr int64_t kLine = 16;  // floats
    for (int64_t j = 0; j < kHingeBlock; j += kLine) __builtin_prefetch(block + 4 * kHingeBlock + j);
}

EVALGRAD_INLINE void find_slots(const HingeBlock& pixels, const HingeSlots& slots, int64_t width, SlotBlock& block) {
    for (int64_t j = 0; j < width; ++j) {
        const float loss = pixels.losses[j];
        const auto slot = static_cast<uint32_t>(std::max(static_cast<int32_t>((slots.highest - loss) * slots.scale), 0));
        block.place(j, slot, loss > 0.0f);
    }
    block.leave_out(width);
}

// Whether every pixel found a slot. The range is that of all pixels.
EVALGRAD_SIMD static bool take_hinge_slots(const HingePixels& row, const HingeSlots& slots, SlotMap& map, HingeRange& range) {
    HingeBlock pixels;
    SlotBlock block;
    for (int64_t start = 0; start < row.n; start += kHingeBlock) {
        const int64_t width = std::min(kHingeBlock, row.n - start);
        ask_for_block(row.x + start);
        read_block(row, start, width, pixels);
        range.add(pixels, width);
        find_slots(pixels, slots, width, block);
        for (int64_t j = 0; j < width; ++j) block.words[j] += static_cast<uint32_t>(pixels.foreground[j]);
        if (!take_slots(block, start, map)) return false;
    }
    return true;
}

// Writes the gradient and returns the value.
EVALGRAD_SIMD static double weigh_hinge_slots(const HingePixels& row, const HingeSlots& slots, const SlotMap& map, int64_t foreground_total, float factor, float* gradient) {
    HingeBlock pixels;
    SlotBlock block;
    HingeSum sum;
    const SlotMap::Moved* next = map.moved;
    for (int64_t start = 0; start < row.n; start += kHingeBlock) {
        const int64_t width = std::min(kHingeBlock, row.n - start);
        float* out = gradient + start;
        ask_for_block(out);
        read_block(row, start, width, pixels);
        find_slots(pixels, slots, width, block);
        weigh_slots(map, block, start, width, pixels.foreground, foreground_total, factor, next, out);
        sum.add(pixels.losses, out, width);
    }
    return sum.total();
}

// About how large the losses of a row are and whether many are above 0 and of foreground, from one block of 17 (odd: not the same columns
// of every image).
struct HingeSample {
    float highest;
    bool many;
};

EVALGRAD_SIMD static HingeSample sample_losses(const HingePixels& row) {
    HingeRange range;
    HingeBlock block;
    int64_t seen = 0, wrong = 0;
    for (int64_t start = 0; start + kHingeBlock <= row.n; start += 17 * kHingeBlock) {
        read_block(row, start, kHingeBlock, block);
        range.add(block, kHingeBlock);
        int32_t own = 0;
        for (int64_t j = 0; j < kHingeBlock; ++j) own += block.losses[j] > 0.0f;
        wrong += own, seen += kHingeBlock;
    }
    return {range.highest(), 5 * wrong > 2 * seen && range.foreground_total * row.n > kSlotForeground * seen};
}

// The value, and the gradient written; nothing where a sort is better: for pixels too few or too many, with little foreground, losses
// mostly 0 or mostly equal, or one above `widest`.
inline std::optional<double> hinge_by_slots(const HingePixels& row, float widest, float factor, float* gradient, SlotMap& map) {
    // To clear and add up a map takes longer than to sort fewer; more would need finer slots than float32 resolves.
    if (row.n < int64_t{1} << 16 || row.n > int64_t{1} << 21) return std::nullopt;
    const HingeSample sample = sample_losses(row);
    if (!sample.many) return std::nullopt;
    int64_t count = int64_t{1} << 21;
    while (count < 8 * row.n) count *= 2;
    for (float highest = 1.25f * sample.highest; highest <= widest;) {
        const HingeSlots slots{highest, static_cast<float>(count - 4) / highest};  // 4: room for what rounding may add
        HingeRange range;
        map.clear(row.n, count);
        if (!take_hinge_slots(row, slots, map, range) || range.foreground_total < kSlotForeground) return std::nullopt;
        if (range.highest() <= highest) {
            count_ahead(map);
            return weigh_hinge_slots(row, slots, map, range.foreground_total, factor, gradient);
        }
        highest = range.highest();  // more than the sample let expect: once more
    }
    return std::nullopt;
}

}  // namespace evalgrad
