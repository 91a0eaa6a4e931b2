// The weights of the Lovász extension of the Jaccard loss, in closed form (docs/maths.md): with P
// foreground items, an item with a foreground and b background items ahead of it weighs 1/(P+b) if
// foreground, (P-a)/((P+b)(P+b+1)) if background.
#pragma once

#include <cstdint>

#include "common/sort.h"

namespace evalgrad::lovasz {

// Items ahead of the next one in decreasing order of error.
struct Ahead {
    int64_t foreground = 0, background = 0;
};

// Walks keys in decreasing order of error and calls give(key, weight) for each that has a weight;
// `out` is where that will write. Differencing the Jaccard curve instead would lose most digits of
// the background weights.
template <class Key, class Give>
inline void weigh_sorted(const Key* keys, int64_t count, int64_t foreground_total, const float* out,
                         const Give& give) {
    const double total = static_cast<double>(foreground_total);
    double a = 0, b = 0, inverse = 1.0 / total;  // 1/(P+b)
    for (int64_t i = 0; i < count && a < total;
         ++i) {                        // once all foreground is passed, weights are 0
        constexpr int64_t early = 24;  // the places are scattered: ask for their cache lines early
        if (i + early < count) __builtin_prefetch(out + key_index(keys[i + early]), 1);
        // No branch: in an untrained network the two kinds follow each other at random, and a wrong
        // guess costs more than this.
        const double foreground = key_foreground(keys[i]) ? 1.0 : 0.0,
                     background = 1.0 - foreground;
        const double next = 1.0 / (total + b + background);
        give(keys[i], inverse * (foreground + background * (total - a) * next));
        a += foreground, b += background, inverse = next;
    }
}

struct TieWeights {
    double foreground, background;
};

// Weights of f foreground and g background items that are tied: the mean of "foreground first" and
// "background first", so that f x foreground + g x background is exactly the step of the Jaccard
// loss across the tie. P must be positive.
inline TieWeights weigh_tie(int64_t foreground_total, Ahead ahead, int64_t f, int64_t g) {
    const double before = static_cast<double>(foreground_total + ahead.background),
                 after = before + static_cast<double>(g);
    const double left =
        static_cast<double>(foreground_total - ahead.foreground) - 0.5 * static_cast<double>(f);
    return {0.5 / before + 0.5 / after, left / (before * after)};
}

}  // namespace evalgrad::lovasz
