// The weights of the Lovász extension, in closed form (docs/maths.md): with P foreground items, an
// item with a foreground and b background items ahead of it weighs
//
//     foreground  (mP + wb) / (D (D+m-1))     background  w (P-a) / (D (D+w))     D = P-a + ma + wb
//
// where m weighs a miss and w a false alarm against a hit. The Jaccard index, m = w = 1, has less
// to compute: 1/(P+b) and (P-a)/((P+b)(P+b+1)).
#pragma once

#include <cstdint>

#include "common/sort.h"

namespace evalgrad::lovasz {

using EightInts = int32_t __attribute__((vector_size(32)));
using EightFloats = float __attribute__((vector_size(32)));

// ---- the metrics. Of each: the weight of one item; the weights that the f foreground and g
// background items of a bin have in the mean of "foreground first" and "background first", f times
// the one plus g times the other being exactly the step of the loss across the bin; and what an
// unknown order within bins costs.

// Eight bins: how many items of the foreground are left behind each, P-a-f, and of P and the
// background there are up to it, P+b+g; f and g.
struct EightBins {
    EightInts left, size, front, back;
};

struct Jaccard {
    EVALGRAD_INLINE double weight(bool front, double total, double rest, double b) const {
        const double size = total + b;
        return (front ? size + 1.0 : rest) / (size * (size + 1.0));
    }

    EVALGRAD_INLINE void tied(const EightBins& bins, int32_t, EightFloats& of_front,
                              EightFloats& of_back) const {
        const EightFloats after = __builtin_convertvector(bins.size, EightFloats),
                          left = __builtin_convertvector(bins.left, EightFloats),
                          f = __builtin_convertvector(bins.front, EightFloats),
                          g = __builtin_convertvector(bins.back, EightFloats);
        const EightFloats inverse = 1.0f / ((after - g) * after);
        of_front = (after - 0.5f * g) * inverse;
        of_back = (left + 0.5f * f) * inverse;
    }

    EVALGRAD_INLINE void differences(const EightFloats& f, const EightFloats& g,
                                     const EightFloats& of_front, const EightFloats& of_back,
                                     EightFloats& sum) const {
        const EightFloats square = of_front * of_front;
        sum += square *
               (f * g * (f + g + 4.0f) * square + 4.0f * g * (g * g - 1.0f) * of_back * of_back);
    }
};

struct Tversky {
    double misses, false_alarms;

    EVALGRAD_INLINE double weight(bool front, double total, double rest, double b) const {
        const double wrong = false_alarms * b, size = rest + misses * (total - rest) + wrong;
        const double share = front ? misses * total + wrong : false_alarms * rest;
        return share / (size * (size + (front ? misses - 1.0 : false_alarms)));
    }

    EVALGRAD_INLINE void tied(const EightBins& bins, int32_t total, EightFloats& of_front,
                              EightFloats& of_back) const {
        const auto m = static_cast<float>(misses), w = static_cast<float>(false_alarms);
        const EightFloats left = __builtin_convertvector(bins.left, EightFloats),
                          missed = __builtin_convertvector(total - bins.left, EightFloats),
                          after = __builtin_convertvector(bins.size - total, EightFloats),
                          f = __builtin_convertvector(bins.front, EightFloats),
                          g = __builtin_convertvector(bins.back, EightFloats);
        // D at the corners of the bin: with all or none of its foreground and background
        const EightFloats all = left + m * missed + w * after, no_back = all - w * g,
                          no_front = (left + f) + m * (missed - f) + w * after,
                          none = no_front - w * g;
        const EightFloats wrong = m * static_cast<float>(total) + w * after;
        of_front = 0.5f * ((wrong - w * g) / (none * no_back) + wrong / (no_front * all));
        of_back = 0.5f * w * (left / (no_back * all) + (left + f) / (none * no_front));
    }

    EVALGRAD_INLINE void differences(const EightFloats& f, const EightFloats& g,
                                     const EightFloats& of_front, const EightFloats& of_back,
                                     EightFloats& sum) const {
        const auto m = static_cast<float>(misses), w = static_cast<float>(false_alarms);
        // 1/D follows from the weights; with it their slopes in a and b
        const EightFloats inverse = of_front + (1.0f - m) / w * of_back;
        const EightFloats front_in_b = w * inverse * (inverse - 2.0f * of_front),
                          front_in_a = 2.0f * (1.0f - m) * inverse * of_front,
                          back_in_b = 2.0f * w * inverse * of_back,
                          back_in_a = inverse * (w * inverse + 2.0f * (m - 1.0f) * of_back);
        sum +=
            f * (front_in_b * front_in_b * g * (g + 2.0f) +
                 front_in_a * front_in_a * (f * f - 1.0f)) +
            g * (back_in_a * back_in_a * f * (f + 2.0f) + back_in_b * back_in_b * (g * g - 1.0f));
    }
};

// Calls run(metric); the Jaccard index is compiled by itself.
template <class Run>
void with_metric(double misses, double false_alarms, const Run& run) {
    if (misses == 1.0 && false_alarms == 1.0)
        run(Jaccard{});
    else
        run(Tversky{misses, false_alarms});
}

// ---- items in decreasing order of error

// Items ahead of the next one in decreasing order of error.
struct Ahead {
    int64_t foreground = 0, background = 0;
};

constexpr int64_t kWeighed = 64;  // keys at a time

// Weights of up to kWeighed keys in decreasing order of error; `ahead` moves past them. In short
// loops, which become vectors. Differencing the curve of the metric instead would lose most digits
// of the background weights.
template <class Metric, class Key>
EVALGRAD_SIMD static void weigh_keys(const Metric& metric, const Key* keys, int32_t width,
                                     int64_t foreground_total, Ahead& ahead, double* weights) {
    int32_t front[kWeighed], fronts_ahead[kWeighed], sum = 0;
    for (int32_t j = 0; j < width; ++j) front[j] = static_cast<int32_t>(keys[j] & 1u);
    for (int32_t j = 0; j < width; ++j) fronts_ahead[j] = sum, sum += front[j];
    const double total = static_cast<double>(foreground_total),
                 rest = static_cast<double>(foreground_total - ahead.foreground),
                 backs_ahead = static_cast<double>(ahead.background);
    for (int32_t j = 0; j < width; ++j)
        weights[j] = metric.weight(front[j] != 0, total, rest - fronts_ahead[j],
                                   backs_ahead + (j - fronts_ahead[j]));
    ahead.foreground += sum, ahead.background += width - sum;
}

// Calls give(key, weight) for each key that has a weight, in decreasing order of error; `out` is
// where that will write.
template <class Metric, class Key, class Give>
inline void weigh_sorted(const Metric& metric, const Key* keys, int64_t count,
                         int64_t foreground_total, const float* out, const Give& give) {
    Ahead ahead;
    double weights[kWeighed];
    // Once all foreground is passed, weights are 0.
    for (int64_t start = 0; start < count && ahead.foreground < foreground_total;
         start += kWeighed) {
        const auto width = static_cast<int32_t>(std::min(kWeighed, count - start));
        // the places are scattered: ask for their cache lines early
        for (int32_t j = 0; j < width; ++j) __builtin_prefetch(out + key_index(keys[start + j]), 1);
        weigh_keys(metric, keys + start, width, foreground_total, ahead, weights);
        for (int32_t j = 0; j < width; ++j) give(keys[start + j], weights[j]);
    }
}

}  // namespace evalgrad::lovasz
