// The surrogate errors of the items of one row: weighted by class with their gradient, and their
// totals by class.
//
// An item violates its side of the threshold by u = -f (positives) or u = f (negatives); its error
// is the surrogate at z = 1 + u. Sums run over fixed lanes, so that a loop becomes SIMD and the
// bits are those of every instruction set.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/simd.h"

namespace evalgrad::s_measures {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kBlock = 1024;  // items summed in T before the sum goes on in double

struct Hinge {
    template <class T>
    static EVALGRAD_INLINE T value(T z) {
        return z < T(0) ? T(0) : z;
    }  // NaN stays NaN
    template <class T>
    static EVALGRAD_INLINE T slope(T z) {
        return z > T(0) ? T(1) : T(0);
    }
};

struct Square {
    template <class T>
    static EVALGRAD_INLINE T value(T z) {
        return z * z;
    }
    template <class T>
    static EVALGRAD_INLINE T slope(T z) {
        return T(2) * z;
    }
};

struct Margin {
    template <class T>
    static EVALGRAD_INLINE T value(T z) {
        return z < T(0) ? T(0) : z > T(1) ? T(1) : z;
    }
    template <class T>
    static EVALGRAD_INLINE T slope(T z) {
        return z > T(0) && z < T(1) ? T(1) : T(0);
    }
};

struct CrossEntropy {  // log2(1 + exp(z - 1))
    static constexpr double kBits = 1.4426950408889634;
    template <class T>
    static EVALGRAD_INLINE T value(T z) {
        const T x = z - T(1);
        return (std::max(x, T(0)) + std::log1p(std::exp(-std::abs(x)))) * T(kBits);
    }
    template <class T>
    static EVALGRAD_INLINE T slope(T z) {
        const T x = z - T(1), tail = std::exp(-std::abs(x));
        return (x < T(0) ? tail : T(1)) / (T(1) + tail) * T(kBits);
    }
};

// The sum of n values, n a multiple of kLanes.
template <class T>
EVALGRAD_INLINE double sum(const T* values, int64_t n) {
    T lane[kLanes] = {};
    for (int64_t i = 0; i < n; i += kLanes)
        for (int j = 0; j < kLanes; ++j) lane[j] += values[i + j];
    double total = 0.0;
    for (int j = 0; j < kLanes; ++j) total += lane[j];
    return total;
}

// What the items of a block add up to: positives | negatives; the sum of errors, the number of
// wrong items, that of items.
template <class T>
struct Totals {
    T error[2][kBlock];  // of the block; 0 for the items of the other side
    double of[2][3] = {};

    EVALGRAD_INLINE void add(int64_t n, int32_t wrong_hits, int32_t wrong, int32_t hits,
                             int32_t items) {
        const int64_t padded = (n + kLanes - 1) / kLanes * kLanes;
        const int32_t counts[2][2] = {{wrong_hits, hits}, {wrong - wrong_hits, items - hits}};
        for (int side = 0; side < 2; ++side) {
            std::fill(error[side] + n, error[side] + padded, T(0));
            of[side][0] += sum(error[side], padded);
            of[side][1] += counts[side][0];
            of[side][2] += counts[side][1];
        }
    }
    EVALGRAD_INLINE void write(T* out) const {
        for (int i = 0; i < 6; ++i) out[i] = static_cast<T>(of[i / 3][i % 3]);
    }
};

// A class without weight adds nothing, not even where its error is infinite; NaN shows.
EVALGRAD_INLINE double weighed(double weight, double error) {
    return weight == 0.0 && error == error ? 0.0 : weight * error;
}

// One row: class means of the errors times the class weights; nothing where a class is missing.
template <class Surrogate, class T>
EVALGRAD_INLINE void weighted_row(const T* score, const uint8_t* positive, int64_t items,
                                  const T* weight, T* value, T* gradient, T* out) {
    int64_t found = 0;
    for (int64_t i = 0; i < items; ++i) found += positive[i] != 0;
    const bool both = found > 0 && found < items;
    const T hit = both ? -weight[0] / static_cast<T>(found) : T(0),
            alarm = both ? weight[1] / static_cast<T>(items - found) : T(0);
    Totals<T> totals;
    for (int64_t begin = 0; begin < items; begin += kBlock) {
        const int64_t n = std::min(kBlock, items - begin);
        int32_t wrong_hits = 0, wrong = 0, hits = 0;
        for (int64_t i = 0; i < n; ++i) {
            const int32_t own = positive[begin + i] != 0;
            const T violation = (T(1) - T(2 * own)) * score[begin + i], z = T(1) + violation,
                    error = Surrogate::value(z);
            const T each = own ? hit : alarm, slope = Surrogate::slope(z);
            const int32_t miss = violation >= T(0);
            totals.error[0][i] = own ? error : T(0);
            totals.error[1][i] = own ? T(0) : error;
            gradient[begin + i] = each == T(0) ? T(0) : slope * each;
            wrong_hits += miss & own, wrong += miss, hits += own;
        }
        totals.add(n, wrong_hits, wrong, hits, static_cast<int32_t>(n));
    }
    *value = static_cast<T>(weighed(-hit, totals.of[0][0]) + weighed(alarm, totals.of[1][0]));
    totals.write(out);
}

// One row of totals at a threshold; a NaN score is an item not seen yet.
template <class Surrogate, class T>
EVALGRAD_INLINE void totals_row(const T* score, const uint8_t* positive, int64_t items, T scale,
                                T threshold, T* out) {
    Totals<T> totals;
    for (int64_t begin = 0; begin < items; begin += kBlock) {
        const int64_t n = std::min(kBlock, items - begin);
        int32_t wrong_hits = 0, wrong = 0, hits = 0, all = 0;
        for (int64_t i = 0; i < n; ++i) {
            const T offset = scale * (score[begin + i] - threshold);
            const int32_t own = positive[begin + i] != 0,
                          seen = score[begin + i] == score[begin + i];
            const T violation = (T(1) - T(2 * own)) * offset,
                    error = Surrogate::value(T(1) + violation);
            const int32_t miss = violation >= T(0);
            totals.error[0][i] = own & seen ? error : T(0);
            totals.error[1][i] = (own ^ 1) & seen ? error : T(0);
            wrong_hits += miss & own, wrong += miss, hits += own & seen, all += seen;
        }
        totals.add(n, wrong_hits, wrong, hits, all);
    }
    totals.write(out);
}

template <class T, class Row>
EVALGRAD_INLINE void with_surrogate(int64_t surrogate, const Row& row) {
    if (surrogate == 0) row(Hinge());
    if (surrogate == 1) row(Square());
    if (surrogate == 2) row(CrossEntropy());
    if (surrogate == 3) row(Margin());
}

}  // namespace
}  // namespace evalgrad::s_measures
