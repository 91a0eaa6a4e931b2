// Ranking many pixels without a sort: in a map of slots, many more than pixels and in decreasing order of error, every pixel takes a
// slot of its kind. How many are ahead of a pixel is then a count of bits: the total of the cells before its own, 32 slots each, and
// the bits before its own in the cell. The pixels are read in the order they have, and only cells are visited at random; a sort
// would scatter every pixel three times. The order is that of the errors up to the width of a slot, or, where they are crowded, of a
// few slots of the same cell.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "memory.h"
#include "simd.h"

#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)  // gcc has it from version 12 on
#define EVALGRAD_SHUFFLES
#endif
#endif

namespace evalgrad {

constexpr int64_t kSlotBlock = 256;  // pixels at a time

// Of two pixels less than a slot apart, the one behind may be ranked first. With P of foreground that moves a weight by less than 1/P of
// itself; of fewer than this it would show.
constexpr int64_t kSlotForeground = 4096;

// A worker's map, reused from row to row.
struct SlotMap {
    static constexpr uint32_t kWords = 4;  // of a cell: bits of background and of foreground, then how many of each are ahead of it

    // A pixel that found its slot taken, and the bit of the free one in the same cell that it took instead.
    struct Moved {
        uint32_t index, bit;
    };

    int64_t cells;
    int64_t crowd;  // once more pixels than this have moved, a sort is better
    Moved* moved;   // in the order of the pixels
    int64_t moved_count;
    uint32_t* words;

    void clear(int64_t pixels, int64_t slots) {
        cells = (slots + 31) / 32;
        crowd = pixels / 4;
        moved = moved_memory.reserve(crowd + kSlotBlock + 1);
        moved_count = 0;
        words = word_memory.reserve(cells * kWords);
        std::fill_n(words, cells * kWords, 0u);
    }

private:
    Scratch<Moved> moved_memory;
    Scratch<uint32_t> word_memory;
};

// Per pixel of a block where in the map its cell begins, or the word of its kind in there, and its bit, 0 if it is not to be ranked.
struct SlotBlock {
    static constexpr int64_t kEarly = 16;  // pixels ahead to ask for a cell: most cells are not in the first-level cache
    uint32_t words[kSlotBlock + kEarly] = {}, bits[kSlotBlock];

    EVALGRAD_INLINE void place(int64_t j, uint32_t slot, bool ranked) {
        words[j] = slot / 32 * SlotMap::kWords;
        bits[j] = ranked ? 1u << (slot % 32) : 0u;
    }
    // Of the pixels behind the last.
    EVALGRAD_INLINE void leave_out(int64_t width) {
        std::fill(words + width, words + kSlotBlock, 0u);
        std::fill(bits + width, bits + kSlotBlock, 0u);
    }
};

// Takes the slots of a block whose first pixel is number `start`; its words are those of the kinds. Whether all found one: not if most
// errors are equal.
EVALGRAD_INLINE bool take_slots(const SlotBlock& block, int64_t start, SlotMap& map) {
    uint32_t* words = map.words;
    for (int64_t group = 0; group < kSlotBlock; group += 64) {
        uint64_t late = 0;  // pixels whose slot was taken, the first in the highest bit: collected without a store or a branch
#pragma GCC unroll 4
        for (int64_t j = group; j < group + 64; ++j) {
            __builtin_prefetch(words + block.words[j + SlotBlock::kEarly], 1);
            uint32_t& word = words[block.words[j]];
            const uint32_t before = word;
            word = before | block.bits[j];
            late = 2 * late + ((before & block.bits[j]) != 0);
        }
        for (; late != 0; late &= ~(uint64_t{1} << 63 >> __builtin_clzll(late))) {
            const int64_t j = group + __builtin_clzll(late);
            uint32_t& word = words[block.words[j]];
            const uint32_t free = ~word, behind = free & (0u - block.bits[j]);
            if (free == 0) return false;
            const uint32_t bit = behind != 0 ? behind & (0u - behind) : 1u << (31 - __builtin_clz(free));
            word |= bit;
            map.moved[map.moved_count++] = {static_cast<uint32_t>(start + j), bit};
        }
    }
    return map.moved_count <= map.crowd;
}

// Once all pixels have a slot.
EVALGRAD_SIMD static void count_ahead(SlotMap& map) {
    map.moved[map.moved_count].index = 0xFFFFFFFFu;
    uint32_t background = 0, foreground = 0;
    for (uint32_t* cell = map.words; cell < map.words + map.cells * SlotMap::kWords; cell += SlotMap::kWords) {
        cell[2] = background, cell[3] = foreground;
        background += static_cast<uint32_t>(__builtin_popcount(cell[0]));
        foreground += static_cast<uint32_t>(__builtin_popcount(cell[1]));
    }
}

#ifdef EVALGRAD_SHUFFLES
using FourWords = uint32_t __attribute__((vector_size(16)));
using EightWords = uint32_t __attribute__((vector_size(32)));

// By reference: passed by value, vectors wider than the baseline's registers depend on the instruction set.
EVALGRAD_INLINE void replace_by_popcount(EightWords& x) {
    x -= x >> 1 & 0x55555555u;
    x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
    x = (x + (x >> 4)) & 0x0F0F0F0Fu;
    x = x * 0x01010101u >> 24;
}
#endif

// How many of each kind are ahead of eight pixels. Of a slot with both kinds the foreground is ahead.
EVALGRAD_INLINE void count_ahead_of_eight(const uint32_t* map, const uint32_t* words, const uint32_t* bits, int32_t* background, int32_t* foreground) {
#ifdef EVALGRAD_SHUFFLES
    // One load per cell instead of four, transposed to one vector per word of a cell. Rows of pixels 0 | 4 to 3 | 7, as most shuffles
    // stay within a half.
    EightWords rows[4], bit;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        FourWords low, high;
        std::memcpy(&low, map + words[j], sizeof low);
        std::memcpy(&high, map + words[j + 4], sizeof high);
        rows[j] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
    }
    std::memcpy(&bit, bits, sizeof bit);
    const EightWords bits_01 = __builtin_shufflevector(rows[0], rows[1], 0, 8, 1, 9, 4, 12, 5, 13);
    const EightWords bits_23 = __builtin_shufflevector(rows[2], rows[3], 0, 8, 1, 9, 4, 12, 5, 13);
    const EightWords ahead_01 = __builtin_shufflevector(rows[0], rows[1], 2, 10, 3, 11, 6, 14, 7, 15);
    const EightWords ahead_23 = __builtin_shufflevector(rows[2], rows[3], 2, 10, 3, 11, 6, 14, 7, 15);
    EightWords before = __builtin_shufflevector(bits_01, bits_23, 0, 1, 8, 9, 4, 5, 12, 13) & (bit - 1);
    EightWords up_to = __builtin_shufflevector(bits_01, bits_23, 2, 3, 10, 11, 6, 7, 14, 15) & (bit + bit - 1);
    replace_by_popcount(before);
    replace_by_popcount(up_to);
    before += __builtin_shufflevector(ahead_01, ahead_23, 0, 1, 8, 9, 4, 5, 12, 13);
    up_to += __builtin_shufflevector(ahead_01, ahead_23, 2, 3, 10, 11, 6, 7, 14, 15);
    std::memcpy(background, &before, sizeof before);
    std::memcpy(foreground, &up_to, sizeof up_to);
#else
    for (int j = 0; j < 8; ++j) {
        const uint32_t *cell = map + words[j], bit = bits[j];
        background[j] = static_cast<int32_t>(cell[2]) + __builtin_popcount(cell[0] & (bit - 1));
        foreground[j] = static_cast<int32_t>(cell[3]) + __builtin_popcount(cell[1] & (2 * bit - 1));
    }
#endif
}

// Slope x weight of the pixels of a block, whose words are where their cells begin: the closed form of lovasz_weights.h, positive on the
// background and negative on the foreground, 0 for pixels that are not ranked. `next` is the first of map.moved that was not reached yet.
EVALGRAD_INLINE void weigh_slots(const SlotMap& map, SlotBlock& block, int64_t start, int64_t width, const int32_t* own, int64_t foreground_total,
                                 float slope, const SlotMap::Moved*& next, float* out) {
    for (; next->index < start + width; ++next) block.bits[next->index - start] = next->bit;
    int32_t background[kSlotBlock], foreground[kSlotBlock];  // ahead of a pixel
    for (int64_t j = 0; j < kSlotBlock; j += 8) {
#pragma GCC unroll 8
        for (int64_t k = j; k < j + 8; ++k) __builtin_prefetch(map.words + block.words[k + SlotBlock::kEarly]);
        count_ahead_of_eight(map.words, block.words + j, block.bits + j, background + j, foreground + j);
    }
    const auto total = static_cast<int32_t>(foreground_total);
    for (int64_t j = 0; j < width; ++j) {
        const auto size = static_cast<float>(total + background[j]), rest = static_cast<float>(total - foreground[j]);
        const float above = own[j] ? -slope : slope * rest, below = own[j] ? size : size * (size + 1.0f);
        const float weight = above / below;
        out[j] = block.bits[j] != 0 ? weight : 0.0f;
    }
}

}  // namespace evalgrad
