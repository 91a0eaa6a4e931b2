// The Lovász hinge of many pixels without a sort: in a map of slots, many more than pixels and in decreasing order of loss, every pixel
// takes a slot of its kind. How many are ahead of a pixel is then a count of bits: the total of the cells before its own, 32 slots
// each, and the bits before its own in the cell. The pixels are read in the order they have, and only cells are visited at random;
// a sort would scatter every pixel three times. The order is that of the losses up to the width of a slot, or, where they are crowded,
// of a few slots of the same cell.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "hinge_pixels.h"
#include "memory.h"
#include "simd.h"

#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)  // gcc has it from version 12 on
#define EVALGRAD_SHUFFLES
#endif
#endif

namespace evalgrad {

// A worker's map, reused from row to row.
struct SlotMap {
    static constexpr uint32_t kWords = 4;  // of a cell: bits of background and of foreground, then how many of each are ahead of it

    // A pixel that found its slot taken, and the bit of the free one in the same cell that it took instead.
    struct Moved {
        uint32_t index, bit;
    };

    int64_t cells;
    float highest, scale;  // the loss that slot 0 stands for, slots per unit of loss
    int64_t crowd;         // once more pixels than this have moved, a sort is better
    Moved* moved;          // in the order of the pixels
    uint32_t* words;

    void clear(int64_t n, float highest_loss) {
        cells = int64_t{1} << 16;
        while (cells < n / 4) cells *= 2;
        highest = highest_loss;
        scale = static_cast<float>(32 * cells - 4) / highest;  // 4: room for what rounding may add
        crowd = n / 4;
        moved = moved_memory.reserve(crowd + kHingeBlock + 1);
        words = word_memory.reserve(cells * kWords);
        std::fill_n(words, cells * kWords, 0u);
    }

private:
    Scratch<Moved> moved_memory;
    Scratch<uint32_t> word_memory;
};

// Asks for a block some blocks on, of what is read or written in order: the hardware by itself looks no further than the page.
EVALGRAD_INLINE void ask_for_block(const float* block) {
    constexpr int64_t kLine = 16;  // floats
    for (int64_t j = 0; j < kHingeBlock; j += kLine) __builtin_prefetch(block + 4 * kHingeBlock + j);
}

// Per pixel of a block also where in the map its cell begins, or the word of its kind in there, and its bit, 0 without a loss.
struct SlotBlock : HingeBlock {
    static constexpr int64_t kEarly = 16;  // pixels ahead to ask for a cell: most cells are not in the first-level cache
    uint32_t words[kHingeBlock + kEarly] = {}, bits[kHingeBlock];
};

template <bool kOfKind>
EVALGRAD_INLINE void find_slots(const HingePixels& row, const SlotMap& map, int64_t start, int64_t width, SlotBlock& block) {
    read_block(row, start, width, block);
    for (int64_t j = 0; j < width; ++j) {
        const float loss = block.losses[j];
        const auto slot = static_cast<uint32_t>(std::max(static_cast<int32_t>((map.highest - loss) * map.scale), 0));
        block.words[j] = slot / 32 * SlotMap::kWords + (kOfKind ? static_cast<uint32_t>(block.foreground[j]) : 0u);
        block.bits[j] = loss > 0.0f ? 1u << (slot % 32) : 0u;
    }
    std::fill(block.words + width, block.words + kHingeBlock, 0u);
    std::fill(block.bits + width, block.bits + kHingeBlock, 0u);
}

// Whether every pixel found a slot: not if most losses are equal. The range is that of all pixels.
EVALGRAD_SIMD static bool take_slots(const HingePixels& row, SlotMap& map, HingeRange& range) {
    SlotBlock block;
    uint32_t* words = map.words;
    int64_t moved = 0;
    for (int64_t start = 0; start < row.n; start += kHingeBlock) {
        const int64_t width = std::min(kHingeBlock, row.n - start);
        ask_for_block(row.x + start);
        find_slots<true>(row, map, start, width, block);
        range.add(block, width);
        for (int64_t group = 0; group < kHingeBlock; group += 64) {
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
                map.moved[moved++] = {static_cast<uint32_t>(start + j), bit};
            }
        }
        if (moved > map.crowd) return false;
    }
    map.moved[moved].index = 0xFFFFFFFFu;
    return true;
}

EVALGRAD_SIMD static void count_ahead(SlotMap& map) {
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

// Writes the gradient and returns the value.
EVALGRAD_SIMD static double weigh_slots(const HingePixels& row, const SlotMap& map, int64_t foreground_total, float factor, float* gradient) {
    SlotBlock block;
    int32_t background[kHingeBlock], foreground[kHingeBlock];  // ahead of a pixel
    HingeSum sum;
    const uint32_t* words = map.words;
    const SlotMap::Moved* moved = map.moved;
    const auto total = static_cast<int32_t>(foreground_total);
    for (int64_t start = 0; start < row.n; start += kHingeBlock) {
        const int64_t width = std::min(kHingeBlock, row.n - start);
        ask_for_block(gradient + start);
        find_slots<false>(row, map, start, width, block);
        for (; moved->index < start + width; ++moved) block.bits[moved->index - start] = moved->bit;
        for (int64_t j = 0; j < kHingeBlock; j += 8) {
#pragma GCC unroll 8
            for (int64_t k = j; k < j + 8; ++k) __builtin_prefetch(words + block.words[k + SlotBlock::kEarly]);
            count_ahead_of_eight(words, block.words + j, block.bits + j, background + j, foreground + j);
        }
        float* out = gradient + start;
        for (int64_t j = 0; j < width; ++j) {  // the closed form of lovasz_weights.h
            const auto size = static_cast<float>(total + background[j]), rest = static_cast<float>(total - foreground[j]);
            const float above = block.foreground[j] ? -factor : factor * rest, below = block.foreground[j] ? size : size * (size + 1.0f);
            const float slope = above / below;
            out[j] = block.bits[j] != 0 ? slope : 0.0f;
        }
        sum.add(block.losses, out, width);
    }
    return sum.total();
}

// About how large the losses of a row are and whether many are above 0, from one block of 17 (odd: not the same columns of every image).
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
    return {range.highest(), 5 * wrong > 2 * seen};
}

// The value, and the gradient written; nothing where a sort is better: for pixels too few or too many, with losses mostly 0 or mostly
// equal, or one above `widest`.
inline std::optional<double> hinge_by_slots(const HingePixels& row, float widest, float factor, float* gradient, SlotMap& map) {
    // To clear and add up a map takes longer than to sort fewer; more would need finer slots than float32 resolves.
    if (row.n < int64_t{1} << 16 || row.n > int64_t{1} << 21) return std::nullopt;
    const HingeSample sample = sample_losses(row);
    if (!sample.many) return std::nullopt;
    for (float highest = 1.25f * sample.highest; highest <= widest;) {
        HingeRange range;
        map.clear(row.n, highest);
        if (!take_slots(row, map, range) || range.foreground_total == 0) return std::nullopt;
        if (range.highest() <= highest) {
            count_ahead(map);
            return weigh_slots(row, map, range.foreground_total, factor, gradient);
        }
        highest = range.highest();  // more than the sample let expect: once more
    }
    return std::nullopt;
}

}  // namespace evalgrad
