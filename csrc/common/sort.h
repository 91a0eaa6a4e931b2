// Sorting of (error, index, foreground) packed into one 64-bit key: two radix passes over the
// leading digits and a repair of what they left tied. On some 10^5 keys a comparison sort takes 5
// to 10 times as long.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <functional>
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

// error (32) | index (31) | foreground (1): one word to move, one word to compare. The error as its
// ordered bits, or as the number of units that a kernel sorts by.
EVALGRAD_INLINE uint64_t pack_key(uint32_t ordered, int64_t index, bool foreground) {
    return (static_cast<uint64_t>(ordered) << 32) | (static_cast<uint64_t>(index) << 1) |
           (foreground ? 1u : 0u);
}
EVALGRAD_INLINE uint32_t key_error(uint64_t key) { return static_cast<uint32_t>(key >> 32); }
EVALGRAD_INLINE int64_t key_index(uint64_t key) {
    return static_cast<int64_t>((key >> 1) & 0x7FFFFFFFu);
}
EVALGRAD_INLINE bool key_foreground(uint64_t key) { return (key & 1u) != 0; }

// A worker's keys, their digits' counts, and a second buffer, reused from group to group.
class KeySorter {
public:
    static constexpr int kDigits = 24;
    static constexpr uint32_t kLast = (1u << kDigits) - 1;

    // Where the caller writes up to `capacity` keys.
    uint64_t* room(int64_t capacity) { return keys_.reserve(capacity); }

    // The digits of every key are counted before `sort`, best while the key is written.
    void start_counting() { std::fill_n(low_, kBuckets, 0u), std::fill_n(high_, kBuckets, 0u); }
    EVALGRAD_INLINE void count(uint32_t digits) {
        ++low_[digits % kBuckets];
        ++high_[digits / kBuckets];
    }

    // The first `size` keys, those counted, in increasing order of `digits(key)`, an integer up to
    // kLast; equal digits keep their order. As uint32_t they lose the error and keep index and
    // foreground: half the memory to write and to read again.
    template <class Key, class Digits>
    Key* sort(int64_t size, const Digits& digits) {
        uint64_t *keys = keys_.data(), *other = other_.reserve(size);
        Key* sorted = reinterpret_cast<Key*>(keys);
        uint32_t low_start = 0, high_start = 0;
        for (uint32_t d = 0; d < kBuckets; ++d) {
            low_start += std::exchange(low_[d], low_start);
            high_start += std::exchange(high_[d], high_start);
        }
        for (int64_t i = 0; i < size; ++i) other[low_[digits(keys[i]) % kBuckets]++] = keys[i];
        for (int64_t i = 0; i < size; ++i)
            sorted[high_[digits(other[i]) / kBuckets]++] = static_cast<Key>(other[i]);
        return sorted;
    }

private:
    static constexpr uint32_t kBuckets = 1u << (kDigits / 2);
    Scratch<uint64_t> keys_, other_;
    uint32_t low_[kBuckets], high_[kBuckets];
};

// The first `size` keys in decreasing order of error, whose bits lie in [lowest, highest].
inline const uint64_t* sort_by_error(KeySorter& sorter, int64_t size, uint32_t lowest,
                                     uint32_t highest) {
    uint64_t* keys = sorter.room(size);
    const float top = ordered_float(highest), range = top - ordered_float(lowest);
    if (size <= 512 ||
        !(range > 0.0f && range < FLT_MAX)) {  // few, all equal, or with infinities and NaN
        std::sort(keys, keys + size, std::greater<uint64_t>());
        return keys;
    }
    const float scale = static_cast<float>(KeySorter::kLast) / range;
    const auto digits = [=](uint64_t key) {
        return std::min(KeySorter::kLast,
                        static_cast<uint32_t>((top - ordered_float(key_error(key))) * scale));
    };
    sorter.start_counting();
    for (int64_t i = 0; i < size; ++i) sorter.count(digits(keys[i]));
    sorter.sort<uint64_t>(size, digits);
    // Equal digits may hide a difference in the error. Few do, unless an outlier stretches the
    // range: sort such runs again.
    for (int64_t i = 1; i < size; ++i) {
        if (key_error(keys[i]) <= key_error(keys[i - 1])) continue;
        int64_t begin = i, end = i + 1;
        while (begin > 0 && digits(keys[begin - 1]) == digits(keys[i])) --begin;
        while (end < size && digits(keys[end]) == digits(keys[i])) ++end;
        if (end - begin == 2) {
            std::swap(keys[begin], keys[begin + 1]);
        } else {
            std::sort(keys + begin, keys + end, std::greater<uint64_t>());
        }
        i = end;
    }
    return keys;
}

}  // namespace evalgrad
