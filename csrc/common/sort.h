// Sorting of items packed into one 64-bit key, order (32) | index (31) | foreground (1), by passes
// over the digits of the order. On some 10^5 keys a comparison sort takes 5 to 10 times as long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "common/memory.h"
#include "common/simd.h"

namespace evalgrad {

constexpr uint32_t kOrderedZero = 0x80000000u;  // ordered_bits(+0)

// Unsigned integers in the order of the floats they come from (-inf first); NaN of either sign
// sorts as the largest.
EVALGRAD_INLINE uint32_t ordered_bits(float x) {
    const uint32_t bits = static_cast<uint32_t>(float_bits(x));
    const uint32_t ordered = bits ^ ((bits >> 31) ? 0xFFFFFFFFu : 0x80000000u);
    return x == x ? ordered : 0xFFFFFFFFu;
}

EVALGRAD_INLINE float ordered_float(uint32_t ordered) {
    return bits_float(
        static_cast<int32_t>(ordered ^ ((ordered >> 31) ? 0x80000000u : 0xFFFFFFFFu)));
}

// Order: what keys are sorted by, the smallest first.
EVALGRAD_INLINE uint64_t pack_key(uint32_t order, int64_t index, bool foreground) {
    return (static_cast<uint64_t>(order) << 32) | (static_cast<uint64_t>(index) << 1) |
           (foreground ? 1u : 0u);
}
EVALGRAD_INLINE uint32_t key_order(uint64_t key) { return static_cast<uint32_t>(key >> 32); }
EVALGRAD_INLINE int64_t key_index(uint64_t key) {
    return static_cast<int64_t>((key >> 1) & 0x7FFFFFFFu);
}
EVALGRAD_INLINE bool key_foreground(uint64_t key) { return (key & 1u) != 0; }

// A worker's keys and a second buffer, reused from row to row.
class KeySorter {
public:
    // Where the caller writes up to `capacity` keys.
    uint64_t* room(int64_t capacity) { return keys_.reserve(capacity); }

    // The first `size` keys by their order, which is below 2^kBits; equal ones keep their places,
    // if their indices increase. As uint32_t they lose the order and keep index and foreground:
    // half the memory to write and to read again.
    template <class Key, int kBits>
    const Key* sort(int64_t size) {
        // Wide digits need fewer passes, and time to clear and to add up their counters.
        constexpr int64_t kFew = 64;
        constexpr int kPasses = (kBits + 11) / 12, kWide = (kBits + kPasses - 1) / kPasses;
        if (size > kFew)
            return size < 1 << kWide ? by_digits<Key, kBits, 8>(size)
                                     : by_digits<Key, kBits, kWide>(size);
        uint64_t* keys = keys_.data();
        std::sort(keys, keys + size);
        Key* sorted = reinterpret_cast<Key*>(other_.reserve(size));
        for (int64_t i = 0; i < size; ++i) sorted[i] = static_cast<Key>(keys[i]);
        return sorted;
    }

private:
    Scratch<uint64_t> keys_, other_;
    Scratch<uint32_t> counters_;

    template <class Key, int kBits, int kDigit>
    const Key* by_digits(int64_t size) {
        constexpr int kPasses = (kBits + kDigit - 1) / kDigit, kValues = 1 << kDigit;
        uint64_t *keys = keys_.data(), *other = other_.reserve(size);
        uint32_t* counters = counters_.reserve(kPasses * kValues);
        std::fill_n(counters, kPasses * kValues, 0u);
        for (int64_t i = 0; i < size; ++i)
            for (int pass = 0; pass < kPasses; ++pass)
                ++counters[pass * kValues + digit<kDigit>(keys[i], pass)];
        for (int pass = 0; pass < kPasses; ++pass) {
            uint32_t start = 0;
            for (int value = 0; value < kValues; ++value)
                start += std::exchange(counters[pass * kValues + value], start);
        }
        return passes<Key, kDigit, 0, kPasses>(size, keys, other, counters);
    }

    template <int kDigit>
    static uint32_t digit(uint64_t key, int pass) {
        return key_order(key) >> (pass * kDigit) & ((1u << kDigit) - 1);
    }

    // From the lowest digit up; the last pass may narrow the keys.
    template <class Key, int kDigit, int kPass, int kPasses>
    static const Key* passes(int64_t size, uint64_t* from, uint64_t* to, uint32_t* counters) {
        using To = std::conditional_t<kPass + 1 == kPasses, Key, uint64_t>;
        To* sorted = reinterpret_cast<To*>(to);
        uint32_t* next = counters + (kPass << kDigit);
        for (int64_t i = 0; i < size; ++i)
            sorted[next[digit<kDigit>(from[i], kPass)]++] = static_cast<To>(from[i]);
        if constexpr (kPass + 1 == kPasses)
            return sorted;
        else
            return passes<Key, kDigit, kPass + 1, kPasses>(size, to, from, counters);
    }
};

}  // namespace evalgrad
