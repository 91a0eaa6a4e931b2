// The largest items of a row in descending order, with their places: linear in the row, no sort of
// it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "common/simd.h"

namespace evalgrad::topk {

template <class T>
struct Item {
    T score;
    int64_t index;

    bool operator>(const Item& other) const { return score > other.score; }
};

// Memory for one row at a time; the answer is at the beginning of `items`.
template <class T>
struct TopItems {
    std::vector<T> maxima;
    std::vector<T> scores, greater;  // of those that reach the threshold
    std::vector<int64_t> indices;
    std::vector<Item<T>> items;
};

template <class T>
constexpr int64_t group_lanes = 256 / sizeof(T);

// The maximum of each group (one lane of one chunk of whole blocks).
template <class T>
EVALGRAD_INLINE void group_maxima(const T* row, int64_t count, int64_t chunk, T* maxima) {
    constexpr int64_t block = group_lanes<T>;
    for (int64_t begin = 0; begin < count; begin += chunk, maxima += block) {
        std::fill(maxima, maxima + block, -std::numeric_limits<T>::infinity());
        const int64_t end = std::min(begin + chunk, count),
                      whole = begin + (end - begin) / block * block;
        for (int64_t i = begin; i < whole; i += block)
            for (int64_t l = 0; l < block; ++l)
                maxima[l] = row[i + l] > maxima[l] ? row[i + l] : maxima[l];
        for (int64_t i = whole; i < end; ++i)
            maxima[i - whole] = std::max(maxima[i - whole], row[i]);
    }
}

template <class T>
EVALGRAD_INLINE bool any_nan(const T* row, int64_t count) {
    int32_t nan = 0;
    for (int64_t i = 0; i < count; ++i) nan |= row[i] != row[i];
    return nan != 0;
}

// The smallest, but for -inf, and the largest of some of the values.
template <class T>
EVALGRAD_INLINE void range_of_some(const T* values, int64_t some, T& low, T& high) {
    constexpr int64_t lanes = 32 / sizeof(T);  // which do not wait for each other
    constexpr T infinity = std::numeric_limits<T>::infinity();
    T lows[lanes], highs[lanes];
    std::fill_n(lows, lanes, infinity);
    std::fill_n(highs, lanes, -infinity);
    for (int64_t i = 0; i + lanes <= some; i += lanes)
        for (int64_t l = 0; l < lanes; ++l) {
            const T value = values[i + l], above = value > -infinity ? value : infinity;
            lows[l] = above < lows[l] ? above : lows[l];
            highs[l] = value > highs[l] ? value : highs[l];
        }
    low = *std::min_element(lows, lows + lanes);
    high = *std::max_element(highs, highs + lanes);
}

// A number that at least `wanted` of the values reach, and hardly more if bisection finds one: far
// cheaper than the exact one. It begins between the smallest and the largest of some of the values:
// at worst more items than necessary reach what it finds.
template <class T>
EVALGRAD_INLINE T reached_by(const T* values, int64_t count, int64_t wanted) {
    T low, high, reached = -std::numeric_limits<T>::infinity();
    range_of_some(values, std::min(count, std::max<int64_t>(32, 2 * wanted)), low, high);
    for (int step = 0; step < 20; ++step) {
        const T middle = low / 2 + high / 2;
        int32_t reaching = 0;
        for (int64_t i = 0; i < count; ++i) reaching += values[i] >= middle ? 1 : 0;
        if (reaching >= wanted) {
            reached = low = middle;
            if (reaching <= wanted + wanted / 2) break;
        } else {
            high = middle;
        }
    }
    return reached;
}

// The `count` items in descending order. Counting the greater ones of each is quadratic, but free
// of branches: up to some hundreds that beats a sort by comparisons, which mispredicts every other
// one.
template <class T>
EVALGRAD_INLINE void rank_items(TopItems<T>& s, int64_t count) {
    constexpr int64_t width = group_lanes<T> / 2;  // so many counters stay in registers
    s.greater.resize(count + width);
    s.scores.resize(std::max<std::size_t>(s.scores.size(), count + width));
    for (int64_t begin = 0; begin < count; begin += width) {
        T greater[width] = {};
        const T* own = s.scores.data() + begin;
        for (int64_t i = 0; i < count; ++i)
            for (int64_t l = 0; l < width; ++l) greater[l] += s.scores[i] > own[l] ? T(1) : T(0);
        std::copy_n(greater, width, s.greater.data() + begin);
    }
    for (int64_t i = 0; i < count; ++i) s.items[i].index = -1;
    for (int64_t i = 0; i < count; ++i) {
        auto place = static_cast<int64_t>(s.greater[i]);
        while (s.items[place].index >= 0) ++place;  // tied items stand one behind the other
        s.items[place] = {s.scores[i], s.indices[i]};
    }
}

// The same of many, by comparisons; only `wanted` of them if these are few.
template <class T>
void sort_items(TopItems<T>& s, int64_t count, int64_t wanted) {
    const auto first = s.items.begin();
    for (int64_t i = 0; i < count; ++i) s.items[i] = {s.scores[i], s.indices[i]};
    if (count > 2 * wanted) {
        std::nth_element(first, first + wanted, first + count, std::greater<Item<T>>());
        count = wanted;
    }
    std::sort(first, first + count, std::greater<Item<T>>());
}

// Items that reach the threshold, one after the other. Of a long plateau at it, `wanted` are
// enough.
template <class T>
struct Reaching {
    T threshold;
    int64_t wanted, found = 0, ties = 0;

    // written always, kept if it counts
    EVALGRAD_INLINE void offer(T score, int64_t index, TopItems<T>& s) {
        s.scores[found] = score;
        s.indices[found] = index;
        const bool tie = score == threshold;
        found += (score > threshold) | (tie & (ties < wanted));
        ties += tie;
    }
};

// In a short row every item is looked at, 64 at a time.
template <class T>
EVALGRAD_INLINE void offer_items(const T* row, int64_t count, Reaching<T>& reaching,
                                 TopItems<T>& s) {
    for (int64_t start = 0; start < count; start += 64) {
        uint8_t reaches[64] = {};
        const int64_t width = std::min<int64_t>(64, count - start);
        for (int64_t j = 0; j < width; ++j) reaches[j] = row[start + j] >= reaching.threshold;
        for (uint64_t bits = pack_bits(reaches); bits != 0; bits &= bits - 1) {
            const int64_t i = start + __builtin_ctzll(bits);
            reaching.offer(row[i], i, s);
        }
    }
}

// In a long one, first the maximum of each of some groups. At least `wanted` groups reach the
// threshold, so no smaller score is among the largest, and only those groups are searched.
template <class T>
EVALGRAD_INLINE void offer_groups(const T* row, int64_t count, Reaching<T>& reaching,
                                  TopItems<T>& s) {
    constexpr int64_t block = group_lanes<T>;
    const int64_t blocks = (count + block - 1) / block;
    const int64_t groups = std::max<int64_t>(
        3 * reaching.wanted, static_cast<int64_t>(std::sqrt(double(reaching.wanted) * count) / 2));
    const int64_t chunk = std::max<int64_t>(1, blocks * block / groups) * block;
    s.maxima.resize((count + chunk - 1) / chunk * block);
    const T* maxima = s.maxima.data();
    const auto size = static_cast<int64_t>(s.maxima.size());
    group_maxima(row, count, chunk, s.maxima.data());
    reaching.threshold = reached_by(maxima, size, reaching.wanted);
    // Few groups are searched as quickly by looking at every item.
    if (size < 16 * reaching.wanted) return offer_items(row, count, reaching, s);
    for (int64_t g = 0; g < size; ++g) {
        if (maxima[g] < reaching.threshold) continue;
        const int64_t begin = g / block * chunk, end = std::min(begin + chunk, count);
        for (int64_t i = begin + g % block; i < end; i += block) reaching.offer(row[i], i, s);
    }
}

// items[0 .. wanted) = the largest of the row in descending order; false if the row has a NaN.
template <class T>
EVALGRAD_INLINE bool select_top(const T* row, int64_t count, int64_t wanted, TopItems<T>& s) {
    if (any_nan(row, count)) return false;
    if (static_cast<int64_t>(s.items.size()) <= count) {
        s.items.resize(count + 1);
        s.scores.resize(count + 1);
        s.indices.resize(count + 1);
    }
    Reaching<T> reaching{-std::numeric_limits<T>::infinity(), wanted};
    if (count <= 4 * group_lanes<T>) {
        reaching.threshold = reached_by(row, count, wanted);
        offer_items(row, count, reaching, s);
    } else {
        offer_groups(row, count, reaching, s);
    }
    if (reaching.found <= 256)
        rank_items(s, reaching.found);
    else
        sort_items(s, reaching.found, wanted);
    return true;
}

}  // namespace evalgrad::topk
