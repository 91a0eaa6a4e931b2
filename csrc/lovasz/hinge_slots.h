// The Lovász hinge of many pixels without a sort, by slots of equal width between about the
// smallest and the largest loss.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/simd.h"
#include "lovasz/hinge_pixels.h"
#include "lovasz/slots.h"

namespace evalgrad::lovasz {

static_assert(kHingeBlock == kSlotBlock);

// The loss where slot 0 begins, and slots per unit of loss.
struct HingeSlots {
    float highest, scale;
};

// Asks for a block some blocks on, of what is read or written in order: the hardware by itself
// looks no further than the page.
EVALGRAD_INLINE void ask_for_block(const float* block) {
    constexpr int64_t kLine = 16;  // floats
    for (int64_t j = 0; j < kHingeBlock; j += kLine)
        __builtin_prefetch(block + 4 * kHingeBlock + j);
}

EVALGRAD_INLINE void find_entries(const HingeBlock& pixels, const HingeSlots& slots,
                                  const SlotTable& table, int32_t width, uint32_t* entries) {
    const auto last = static_cast<uint32_t>(table.slots) - 1;
    for (int32_t j = 0; j < width; ++j) {
        const float loss = pixels.losses[j];
        const auto slot =
            static_cast<uint32_t>(static_cast<int32_t>((slots.highest - loss) * slots.scale));
        // The last also holds what is below the sample's lowest; what is above the highest, until
        // such a row is counted once more.
        entries[j] = slot_entry(table, std::min(slot, last), pixels.foreground[j], loss > 0.0f, j);
    }
}

// Returns what all pixels are like.
EVALGRAD_SIMD static HingeRange count_losses(const HingePixels& row, const HingeSlots& slots,
                                             SlotTable& table) {
    HingeRange range;
    HingeBlock pixels;
    uint32_t entries[kSlotBlock];
    uint8_t* __restrict counts = table.counts;
    for (int64_t start = 0; start < row.n; start += kHingeBlock) {
        const int64_t width = std::min(kHingeBlock, row.n - start);
        ask_for_block(row.x + start);
        read_block(row, start, width, pixels);
        range.add(pixels, width);
        find_entries(pixels, slots, table, static_cast<int32_t>(width), entries);
        for (int64_t j = 0; j < width; ++j) ++counts[entries[j]];
    }
    return range;
}

// Writes the gradient and returns the value.
EVALGRAD_SIMD static double look_up_slopes(const HingePixels& row, const HingeSlots& slots,
                                           const SlotTable& table, float* gradient) {
    HingeBlock pixels;
    HingeSum sum;
    uint32_t entries[kSlotBlock];
    for (int64_t start = 0; start < row.n; start += kHingeBlock) {
        const int64_t width = std::min(kHingeBlock, row.n - start);
        float* out = gradient + start;
        ask_for_block(out);
        read_block(row, start, width, pixels);
        find_entries(pixels, slots, table, static_cast<int32_t>(width), entries);
        for (int64_t j = 0; j < width; ++j) out[j] = table.slopes[entries[j]];
        sum.add(pixels.losses, out, width);
    }
    return sum.total();
}

// What the pixels of a row are like, from one block of 17 (odd: not the same columns of every
// image).
struct HingeSample {
    int64_t pixels = 0;
    HingeRange range;
    uint32_t below_lowest = 0x7F7FFFFFu;  // the bits, which have the order of the losses, of the
                                          // smallest loss above 0, less 1

    float lowest() const { return bits_float(static_cast<int32_t>(below_lowest + 1)); }
};

EVALGRAD_SIMD static HingeSample sample_losses(const HingePixels& row) {
    HingeSample sample;
    HingeBlock block;
    for (int64_t start = 0; start + kHingeBlock <= row.n; start += 17 * kHingeBlock) {
        read_block(row, start, kHingeBlock, block);
        uint32_t low = sample.below_lowest;
        for (int64_t j = 0; j < kHingeBlock; ++j)
            low = std::min(
                low, static_cast<uint32_t>(float_bits(block.losses[j])) - 1);  // of 0, the largest
        sample.range.add(block, kHingeBlock);
        sample.pixels += kHingeBlock, sample.below_lowest = low;
    }
    return sample;
}

// The value, and the gradient written; nothing where a sort is better: for pixels too few or too
// many, with little foreground, losses mostly 0, equal or too close for the slots, or further apart
// than `widest`.
inline std::optional<double> hinge_by_slots(const HingePixels& row, float widest, float factor,
                                            float* gradient, SlotTable& table) {
    // More would need finer slots than float32 resolves.
    if (row.n < kSlotPixels || row.n > int64_t{1} << 22) return std::nullopt;
    const HingeSample sample = sample_losses(row);
    const HingeRange& range = sample.range;
    if (32 * range.wrong < sample.pixels ||
        range.foreground_total * row.n < kSlotForeground * sample.pixels)
        return std::nullopt;
    // A margin for what the sample does not show; of few losses it shows less, and few leave slots
    // to spare.
    const float margin =
        (4 * range.wrong < sample.pixels ? 1.0f : 0.25f) * (range.highest() - sample.lowest());
    const float lowest = std::max(sample.lowest() - margin, 0.0f);
    float highest = range.highest() + margin;
    int64_t count = first_slots(range.wrong * row.n / sample.pixels,
                                range.foreground_total * row.n / sample.pixels);
    while (highest - lowest > 0.0f && highest - lowest <= widest) {
        const HingeSlots slots{highest, static_cast<float>(count) / (highest - lowest)};
        table.clear(count);
        const HingeRange all = count_losses(row, slots, table);
        if (!(all.highest() <= highest)) {  // NaN, too, which then ends the loop
            highest = all.highest();
            continue;
        }
        if (!fill_slopes(table, all.wrong, all.foreground_total, factor)) break;
        const double needed = slots_needed(table, factor);
        if (needed <= static_cast<double>(table.slots))
            return look_up_slopes(row, slots, table, gradient);
        if (needed > kMostSlots) break;
        count = static_cast<int64_t>(1.125 * needed);  // some to spare: once more is enough
    }
    return std::nullopt;
}

}  // namespace evalgrad::lovasz
