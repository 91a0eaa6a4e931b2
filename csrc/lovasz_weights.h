// The weights of the Lovász extension of the Jaccard loss, in closed form (MATHS.md 2): with P foreground items, an item
// with a foreground and b background items ahead of it weighs 1/(P+b) if foreground, (P-a)/((P+b)(P+b+1)) if background.
#pragma once

#include <cstdint>

#include "sort.h"

namespace evalgrad {

// Items ahead of the next one in decreasing order of error.
struct Ahead {
    int64_t foreground = 0, background = 0;
};

// Walks keys in decreasing order of error, writes weight x slope of each to its place in `out`, and returns the sum of
// error x weight. Differencing the Jaccard curve instead would lose most digits of the background weights.
inline double weigh_sorted(const uint64_t* keys, int64_t count, int64_t foreground_total, float foreground_slope, float background_slope, float* out) {
    const double total = static_cast<double>(foreground_total);
    double value = 0, a = 0, b = 0, inverse = 1.0 / total;  // 1/(P+b)
    for (int64_t i = 0; i < count && a < total; ++i) {      // once all foreground is passed, weights are 0
        constexpr int64_t early = 24;                       // the places are scattered: ask for their cache lines early
        if (i + early < count) __builtin_prefetch(out + key_index(keys[i + early]), 1);
        // No branch: in an untrained network the two kinds follow each other at random, and a wrong guess costs more than this.
        const double foreground = key_foreground(keys[i]) ? 1.0 : 0.0, background = 1.0 - foreground;
        const double next = 1.0 / (total + b + background), weight = inverse * (foreground + background * (total - a) * next);
        value += ordered_float(key_error(keys[i])) * weight;
        out[key_index(keys[i])] = static_cast<float>(weight) * (key_foreground(keys[i]) ? foreground_slope : background_slope);
        a += foreground, b += background, inverse = next;
    }
    return value;
}

struct TieWeights {
    double foreground, background;
};

// Weights of f foreground and g background items that are tied: the mean of "foreground first" and "background first",
// so that f x foreground + g x background is exactly the step of the Jaccard loss across the tie. P must be positive.
inline TieWeights weigh_tie(int64_t foreground_total, Ahead ahead, int64_t f, int64_t g) {
    const double before = static_cast<double>(foreground_total + ahead.background), after = before + static_cast<double>(g);
    const double left = static_cast<double>(foreground_total - ahead.foreground) - 0.5 * static_cast<double>(f);
    return {0.5 / before + 0.5 / after, left / (before * after)};
}

}  // namespace evalgrad
