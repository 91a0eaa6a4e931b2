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
    std::vector<T> maxima, scores, greater;
    std::vector<Item<T>> items, unranked;
};

template <class T>
constexpr int64_t group_lanes = 256 / sizeof(T);

// The maximum of each group (one lane of one chunk of whole blocks). False if there is a NaN.
template <class T>
EVALGRAD_INLINE bool group_maxima(const T* row, int64_t count, int64_t chunk, T* maxima) {
    constexpr int64_t block = group_lanes<T>;
    T defect[block] = {};
    for (int64_t begin = 0; begin < count; begin += chunk, maxima += block) {
        std::fill(maxima, maxima + block, -std::numeric_limits<T>::infinity());
        const int64_t end = std::min(begin + chunk, count),
                      whole = begin + (end - begin) / block * block;
        for (int64_t i = begin; i < whole; i += block)
            for (int64_t l = 0; l < block; ++l) {
                maxima[l] = row[i + l] > maxima[l] ? row[i + l] : maxima[l];
                defect[l] = row[i + l] != row[i + l] ? T(1) : defect[l];
            }
        for (int64_t i = whole; i < end; ++i) {
            maxima[i - whole] = std::max(maxima[i - whole], row[i]);
            defect[i - whole] = row[i] != row[i] ? T(1) : defect[i - whole];
        }
    }
    return *std::max_element(defect, defect + block) == T(0);
}

template <class T>
EVALGRAD_INLINE int64_t count_reaching(const std::vector<T>& values, T threshold) {
    int32_t count = 0;
    for (const T value : values) count += value >= threshold ? 1 : 0;
    return count;
}

// A number that at least `wanted` of the values reach, and hardly more if bisection finds one: far
// cheaper than the exact one.
template <class T>
EVALGRAD_INLINE T reached_by(const std::vector<T>& values, int64_t wanted) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    T low = infinity, high = -infinity, reached = -infinity;
    for (const T value : values) {
        low = value < low && value > -infinity ? value : low;
        high = value > high ? value : high;
    }
    for (int step = 0; step < 20; ++step) {
        const T middle = low / 2 + high / 2;
        const int64_t count = count_reaching(values, middle);
        if (count >= wanted) {
            reached = low = middle;
            if (count <= wanted + wanted / 8) break;
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
    const int64_t padded = (count + width - 1) / width * width;
    s.scores.resize(padded);
    s.greater.resize(padded);
    s.unranked.assign(s.items.begin(), s.items.begin() + count);
    for (int64_t i = 0; i < count; ++i) {
        s.scores[i] = s.unranked[i].score;
        s.items[i].index = -1;
    }
    for (int64_t begin = 0; begin < padded; begin += width) {
        T greater[width] = {};
        const T* own = s.scores.data() + begin;
        for (int64_t i = 0; i < count; ++i)
            for (int64_t l = 0; l < width; ++l) greater[l] += s.scores[i] > own[l] ? T(1) : T(0);
        std::copy_n(greater, width, s.greater.data() + begin);
    }
    for (int64_t i = 0; i < count; ++i) {
        int64_t place = static_cast<int64_t>(s.greater[i]);
        while (s.items[place].index >= 0) ++place;  // tied items stand one behind the other
        s.items[place] = s.unranked[i];
    }
}

// items[0 .. wanted) = the largest of the row in descending order; false if the row has a NaN. At
// least `wanted` groups reach the threshold, so no smaller score is among the largest, and only
// those groups are searched.
template <class T>
EVALGRAD_INLINE bool select_top(const T* row, int64_t count, int64_t wanted, TopItems<T>& s) {
    constexpr int64_t block = group_lanes<T>;
    const int64_t blocks = (count + block - 1) / block;
    const int64_t groups =
        std::max<int64_t>(3 * wanted, static_cast<int64_t>(std::sqrt(double(wanted) * count) / 2));
    const int64_t chunk = std::max<int64_t>(1, blocks * block / groups) * block;
    s.maxima.resize((count + chunk - 1) / chunk * block);
    if (!group_maxima(row, count, chunk, s.maxima.data())) return false;
    const T threshold = reached_by(s.maxima, wanted);

    s.items.resize(std::max<size_t>(s.items.size(), count + 1));
    int64_t found = 0, ties = 0;  // of a long plateau at the threshold, `wanted` items are enough
    for (int64_t g = 0; g < static_cast<int64_t>(s.maxima.size()); ++g) {
        if (s.maxima[g] < threshold) continue;
        const int64_t begin = g / block * chunk, end = std::min(begin + chunk, count);
        for (int64_t i = begin + g % block; i < end;
             i += block) {  // written always, kept if it counts
            s.items[found] = {row[i], i};
            const bool tie = row[i] == threshold;
            found += (row[i] > threshold) | (tie & (ties < wanted));
            ties += tie;
        }
    }
    const auto first = s.items.begin();
    if (found > 2 * wanted) {
        std::nth_element(first, first + wanted, first + found, std::greater<Item<T>>());
        found = wanted;
    }
    if (found <= 256)
        rank_items(s, found);
    else
        std::sort(first, first + found, std::greater<Item<T>>());
    return true;
}

}  // namespace evalgrad::topk
