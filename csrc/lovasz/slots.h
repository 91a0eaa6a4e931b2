// Ranking many pixels without a sort: they are counted in slots in decreasing order of error, about
// as many as there are pixels to rank, background and foreground apart; those of one slot count as
// tied. The counts, added up from slot to slot, become a table of slopes, in which each pixel then
// finds its own. The pixels are read in the order they have, and only slots are visited at random;
// a sort would scatter every pixel three times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "common/memory.h"
#include "common/simd.h"
#include "lovasz/weights.h"

namespace evalgrad::lovasz {

constexpr int64_t kSlotBlock = 256;  // pixels at a time

// Fewer pixels are sorted in less time than a table takes to clear and to fill; with less
// foreground, ties would show.
constexpr int64_t kSlotPixels = int64_t{1} << 16, kSlotForeground = int64_t{1} << 12;

// A table of fewer slots takes no less time to visit; one of more leaves the caches, and a sort is
// better.
constexpr int64_t kFewestSlots = int64_t{1} << 17, kMostSlots = int64_t{1} << 20;

// How many slots to begin with for `ranked` pixels: with P foreground pixels, a rank that is off by
// one moves a weight by about 1/P of itself, and the ranks of a slot are off by about the root of
// the pixels in it. `slots_needed` tells how good that was.
inline int64_t first_slots(int64_t ranked, int64_t foreground_total) {
    const double ratio = 3e4 / static_cast<double>(std::max<int64_t>(foreground_total, 1)),
                 fine = static_cast<double>(ranked) * ratio * ratio;
    return std::max(
        {kFewestSlots, static_cast<int64_t>(std::min<double>(fine, kMostSlots)), ranked / 2});
}

// A worker's slots, reused from row to row. Pixels have entries: the number of their slot, `slots`
// more for foreground; those that are not to be ranked one of kSlotBlock behind these, by their
// place in a block, so that their increments do not wait for each other.
struct SlotTable {
    int64_t slots;
    uint8_t* counts;  // modulo 256: overflow shows in the sum
    float* slopes;

    void clear(int64_t at_least) {
        slots = (at_least + 7) / 8 * 8;
        const int64_t entries = 2 * slots + kSlotBlock;
        counts = count_memory.reserve(entries);
        slopes = slope_memory.reserve(entries);
        std::fill_n(counts, entries, uint8_t{0});
    }

private:
    Scratch<uint8_t> count_memory;
    Scratch<float> slope_memory;
};

// j: the place in the block.
EVALGRAD_INLINE uint32_t slot_entry(const SlotTable& table, uint32_t slot, int32_t foreground,
                                    bool ranked, int32_t j) {
    const auto slots = static_cast<uint32_t>(table.slots);
    return ranked ? slot + (foreground != 0 ? slots : 0u) : 2 * slots + static_cast<uint32_t>(j);
}

using EightCounts = int32_t __attribute__((vector_size(32)));
using EightFloats = float __attribute__((vector_size(32)));

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the first of eight counts is the lowest byte of a word");
EVALGRAD_INLINE uint64_t eight_bytes(const uint8_t* bytes) {
    uint64_t eight;
    std::memcpy(&eight, bytes, sizeof eight);
    return eight;
}

// By reference: passed by value, vectors wider than the baseline's registers depend on the
// instruction set.
EVALGRAD_INLINE void to_floats(uint64_t bytes, int32_t sign, int32_t offset, EightFloats& floats) {
    uint8_t eight[8];
    int32_t numbers[8];
    std::memcpy(eight, &bytes, sizeof eight);
    for (int k = 0; k < 8; ++k) numbers[k] = eight[k];
    EightCounts counts;
    std::memcpy(&counts, numbers, sizeof counts);
    floats = __builtin_convertvector(offset + sign * counts, EightFloats);
}

// Once all `ranked` pixels are counted: slope x weight of the pixels of each slot, those of ties in
// weights.h, positive on the background, negative on the foreground. Returns what is ahead of a
// pixel behind them all; nothing if a count has overflowed, as where most errors are equal.
EVALGRAD_SIMD static std::optional<Ahead> fill_slopes(SlotTable& table, int64_t ranked,
                                                      int64_t foreground_total, float slope) {
    constexpr uint64_t kEach =
        0x0101010101010101u;  // times it, bytes become the sums of themselves and those before
    const uint8_t* __restrict back_counts = table.counts, * __restrict front_counts =
                                                              table.counts + table.slots;
    float* __restrict back_slopes = table.slopes, * __restrict front_slopes =
                                                      table.slopes + table.slots;
    const auto total = static_cast<int32_t>(foreground_total);
    int32_t size = total, rest = total;  // P + b and P - a, ahead of the next slot
    for (int64_t slot = 0, end = table.slots; slot < end; slot += 8) {
        const uint64_t back = eight_bytes(back_counts + slot),
                       front = eight_bytes(front_counts + slot);
        const uint64_t back_sums = back * kEach, front_sums = front * kEach;
        EightFloats after, left, back_tied, front_tied;
        to_floats(back_sums, 1, size, after);
        to_floats(front_sums, -1, rest, left);
        to_floats(back, 1, 0, back_tied);
        to_floats(front, 1, 0, front_tied);
        const EightFloats inverse = slope / ((after - back_tied) * after);
        const EightFloats of_back = (left + 0.5f * front_tied) * inverse,
                          of_front = (0.5f * back_tied - after) * inverse;
        std::memcpy(back_slopes + slot, &of_back, sizeof of_back);
        std::memcpy(front_slopes + slot, &of_front, sizeof of_front);
        size += static_cast<int32_t>(back_sums >> 56),
            rest -= static_cast<int32_t>(front_sums >> 56);
    }
    std::fill_n(table.slopes + 2 * table.slots, kSlotBlock, 0.0f);
    const Ahead ahead{total - rest, size - total};
    return ahead.foreground + ahead.background == ranked ? std::optional(ahead) : std::nullopt;
}

// With how many slots the slopes would be within kClose of those of a sort, relative and as a norm;
// no more than there are if they are that close already. From what is expected of one in 16 of the
// slots: of g items in any order the number ahead of another has the variance (g^2 + 2g)/12, of one
// of themselves (g^2 - 1)/12. One more of the background moves a weight w = 1/(P+b) of the
// foreground by w^2 and one v of the background by 2vw; one more of the foreground moves v by w^2.
EVALGRAD_SIMD static double slots_needed(const SlotTable& table, float slope) {
    constexpr double kClose = 3e-5;
    EightFloats squares{}, differences{};
    for (int64_t slot = 0; slot < table.slots; slot += 16 * 8) {
        EightFloats g, f, v, w;
        to_floats(eight_bytes(table.counts + slot), 1, 0, g);
        to_floats(eight_bytes(table.counts + table.slots + slot), 1, 0, f);
        std::memcpy(&v, table.slopes + slot, sizeof v);
        std::memcpy(&w, table.slopes + table.slots + slot, sizeof w);
        v /= slope, w /= slope;
        squares += f * w * w + g * v * v;
        differences += w * w * (f * g * (f + g + 4.0f) * w * w + 4.0f * g * (g * g - 1.0f) * v * v);
    }
    double square = 0, difference = 0;
    for (int k = 0; k < 8; ++k) square += squares[k], difference += differences[k];
    // The difference, a square, falls with the number of slots, and faster where they are full.
    return static_cast<double>(table.slots) * difference /
           (12 * kClose * kClose * std::max(square, 1e-30));
}

}  // namespace evalgrad::lovasz
