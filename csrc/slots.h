// Ranking many pixels without a sort: they are counted in slots in decreasing order of error, about as many as there are pixels,
// background and foreground apart; those of one slot count as tied. As many are ahead of a pixel as in all slots before its own. The
// pixels are read in the order they have, and only slots are visited at random; a sort would scatter every pixel three times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "lovasz_weights.h"
#include "memory.h"
#include "simd.h"

#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)  // gcc has it from version 12 on
#define EVALGRAD_SHUFFLES
#endif
#endif

namespace evalgrad {

constexpr int64_t kSlotBlock = 256;  // pixels at a time

// Fewer pixels are sorted in less time than a map takes to clear and add up. Of less foreground it would show that those of a slot are
// tied: with P of it, a rank that is off by one moves a weight by about 1/P of itself. More, but little, needs more slots.
constexpr int64_t kSlotPixels = int64_t{1} << 16, kSlotForeground = int64_t{1} << 12, kMuchForeground = int64_t{1} << 14;

// A worker's map, reused from row to row.
struct SlotMap {
    // A cell is 8 slots: a word with their counts of background, of 4 bits each from the lowest on, one of foreground, and, later,
    // how many of each are ahead of the cell. Small, so that the cells of many pixels stay in a second-level cache.
    static constexpr uint32_t kSlots = 8, kWords = 4;

    int64_t cells;
    uint32_t* words;  // of the cells, then of one for each pixel of a block: those not to be ranked, which must not wait for each other

    void clear(int64_t slots) {
        cells = (slots + 16 * kSlots - 1) / (16 * kSlots) * 16;
        const int64_t count = (cells + kSlotBlock) * kWords;
        words = memory.reserve(count);
        std::fill_n(words, count, 0u);
    }

private:
    Scratch<uint32_t> memory;
};

// Where the pixels of a block are counted: the first word of their cell, and by how many bits their slot is below the highest.
struct SlotBlock {
    uint32_t words[kSlotBlock] = {}, lifts[kSlotBlock] = {};

    // `spare`: the number of cells.
    EVALGRAD_INLINE void put(int64_t j, uint32_t slot, bool ranked, uint32_t spare) {
        const uint32_t own = slot / SlotMap::kSlots, none = spare + static_cast<uint32_t>(j), cell = ranked ? own : none;
        words[j] = cell * SlotMap::kWords;
        lifts[j] = 28 - slot % SlotMap::kSlots * 4;
    }
};

EVALGRAD_INLINE void count_slots(const SlotBlock& block, const int32_t* foreground, int64_t width, SlotMap& map) {
    uint32_t places[kSlotBlock], ones[kSlotBlock], *words = map.words;
    for (int64_t j = 0; j < width; ++j) {
        places[j] = block.words[j] + static_cast<uint32_t>(foreground[j]);
        ones[j] = 0x10000000u >> block.lifts[j];
    }
    for (int64_t j = 0; j < width; ++j) words[places[j]] += ones[j];
}

// The sum of the eight counts of a word.
EVALGRAD_INLINE uint32_t sum_counts(uint32_t word) {
    constexpr uint32_t kEven = 0x0F0F0F0Fu;
    return ((word & kEven) + (word >> 4 & kEven)) * 0x01010101u >> 24;
}

// Once all `ranked` pixels are counted: what is ahead of one behind them all. Nothing if a count has overflowed or the pixels are crowded,
// as where most errors are equal: a sort is better then.
EVALGRAD_SIMD static std::optional<Ahead> count_ahead(SlotMap& map, int64_t ranked) {
    constexpr int64_t kMost = 32;  // of one kind in a cell, as a mean over pixels: some 4 in a slot
    constexpr int64_t kPart = 64;  // words at a time: first the sums, which need no order, in vectors
    uint32_t sums[kPart];
    uint64_t ahead = 0;  // both kinds in one word: neither reaches the other's half
    int64_t crowd = 0;
    for (uint32_t* part = map.words; part < map.words + map.cells * SlotMap::kWords; part += kPart) {
        uint32_t squares = 0;
        for (int64_t i = 0; i < kPart; ++i) {
            sums[i] = sum_counts(part[i]);
            squares += sums[i] * sums[i];
        }
        crowd += squares;
        for (int64_t i = 0; i < kPart; i += SlotMap::kWords) {
            uint64_t own;
            std::memcpy(&own, sums + i, sizeof own);
            std::memcpy(part + i + 2, &ahead, sizeof ahead);
            ahead += own;
        }
    }
    uint32_t totals[2];
    std::memcpy(totals, &ahead, sizeof ahead);
    if (totals[0] + totals[1] != ranked || crowd > kMost * ranked) return std::nullopt;
    return Ahead{totals[1], totals[0]};
}

// Slope x weight of the pixels of a whole block, those of ties in lovasz_weights.h: positive on the background, negative on the foreground;
// of pixels that are not ranked, or behind the last, it means nothing. Of a word of counts, lifted so that a pixel's own slot is the
// highest, the slots behind it are gone: the sum is then how many of the cell are ahead of the next slot.
#ifdef EVALGRAD_SHUFFLES
using FourWords = uint32_t __attribute__((vector_size(16)));
using EightWords = uint32_t __attribute__((vector_size(32)));
using EightCounts = int32_t __attribute__((vector_size(32)));
using EightFloats = float __attribute__((vector_size(32)));

// By reference: passed by value, vectors wider than the baseline's registers depend on the instruction set.
EVALGRAD_INLINE void sum_eight(const EightWords& words, EightWords& sums) {
    constexpr uint32_t kEven = 0x0F0F0F0Fu;
    sums = ((words & kEven) + (words >> 4 & kEven)) * 0x01010101u >> 24;
}
EVALGRAD_INLINE void to_floats(const EightWords& words, EightFloats& floats) { floats = __builtin_convertvector(reinterpret_cast<const EightCounts&>(words), EightFloats); }

EVALGRAD_INLINE void weigh_eight(const uint32_t* map, const uint32_t* words, const uint32_t* lifts, const int32_t* foreground, uint32_t total, float slope, float* out) {
    // One load per cell instead of four, transposed to one vector per word of a cell. Rows of pixels 0 | 4 to 3 | 7, as most shuffles
    // stay within a half.
    EightWords rows[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
        FourWords low, high;
        std::memcpy(&low, map + words[k], sizeof low);
        std::memcpy(&high, map + words[k + 4], sizeof high);
        rows[k] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
    }
    const EightWords own_01 = __builtin_shufflevector(rows[0], rows[1], 0, 8, 1, 9, 4, 12, 5, 13);
    const EightWords own_23 = __builtin_shufflevector(rows[2], rows[3], 0, 8, 1, 9, 4, 12, 5, 13);
    const EightWords ahead_01 = __builtin_shufflevector(rows[0], rows[1], 2, 10, 3, 11, 6, 14, 7, 15);
    const EightWords ahead_23 = __builtin_shufflevector(rows[2], rows[3], 2, 10, 3, 11, 6, 14, 7, 15);
    EightWords lift, back_sum, front_sum;
    EightCounts own;
    std::memcpy(&lift, lifts, sizeof lift);
    std::memcpy(&own, foreground, sizeof own);
    const EightWords back = __builtin_shufflevector(own_01, own_23, 0, 1, 8, 9, 4, 5, 12, 13) << lift;
    const EightWords front = __builtin_shufflevector(own_01, own_23, 2, 3, 10, 11, 6, 7, 14, 15) << lift;
    sum_eight(back, back_sum);
    sum_eight(front, front_sum);
    EightFloats size, rest, back_tied, front_tied;
    to_floats(total + back_sum + __builtin_shufflevector(ahead_01, ahead_23, 0, 1, 8, 9, 4, 5, 12, 13), size);
    to_floats(total - front_sum - __builtin_shufflevector(ahead_01, ahead_23, 2, 3, 10, 11, 6, 7, 14, 15), rest);
    to_floats(back >> 28, back_tied);
    to_floats(front >> 28, front_tied);
    const EightFloats above = own != 0 ? 0.5f * back_tied - size : rest + 0.5f * front_tied;
    const EightFloats weights = slope * above / ((size - back_tied) * size);
    std::memcpy(out, &weights, sizeof weights);
}

EVALGRAD_INLINE void weigh_slots(const SlotMap& map, const SlotBlock& block, const int32_t* foreground, int64_t foreground_total, float slope, float* out) {
    const auto total = static_cast<uint32_t>(foreground_total);
    for (int64_t j = 0; j < kSlotBlock; j += 8) weigh_eight(map.words, block.words + j, block.lifts + j, foreground + j, total, slope, out + j);
}
#else
EVALGRAD_INLINE void weigh_slots(const SlotMap& map, const SlotBlock& block, const int32_t* foreground, int64_t foreground_total, float slope, float* out) {
    uint32_t cells[kSlotBlock][SlotMap::kWords];
    for (int64_t j = 0; j < kSlotBlock; ++j) std::memcpy(cells[j], map.words + block.words[j], sizeof cells[j]);
    const auto total = static_cast<uint32_t>(foreground_total);
    const auto number = [](uint32_t count) { return static_cast<float>(static_cast<int32_t>(count)); };
    for (int64_t j = 0; j < kSlotBlock; ++j) {
        const uint32_t back = cells[j][0] << block.lifts[j], front = cells[j][1] << block.lifts[j];
        const float size = number(total + cells[j][2] + sum_counts(back)), rest = number(total - cells[j][3] - sum_counts(front));
        const float back_tied = number(back >> 28), front_tied = number(front >> 28);
        const float above = foreground[j] ? 0.5f * back_tied - size : rest + 0.5f * front_tied;
        out[j] = slope * above / ((size - back_tied) * size);
    }
}
#endif

}  // namespace evalgrad
