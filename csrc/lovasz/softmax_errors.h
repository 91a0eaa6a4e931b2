// The errors of one class of a softmax: as keys for a sort, and the smallest of them counted in
// cells.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/simd.h"
#include "common/sort.h"
#include "lovasz/class_maps.h"
#include "lovasz/slots.h"
#include "lovasz/weights.h"

namespace evalgrad::lovasz {

// Errors are compared in units of 2^-22, about what float32 resolves of a softmax; closer ones
// count as tied, which moves the value by less than a unit. So two radix passes sort exactly, and
// the smallest errors, of which a trained network has most, need no sort at all: they are counted
// in one cell per unit.
constexpr float kUnits = 4194304.0f;
constexpr int32_t kCells = 4096;

EVALGRAD_INLINE float error_of(float p, bool foreground) { return foreground ? 1.0f - p : p; }
EVALGRAD_INLINE int32_t units_of(float error) { return static_cast<int32_t>(error * kUnits); }

constexpr int32_t kStep =
    kCells + 1;  // cells of one kind, the last for errors above them and for ignored pixels

// Background cells first, foreground cells a step later. A negative number of units wraps to a
// large one.
EVALGRAD_INLINE uint32_t cell_of(float error, uint32_t foreground) {
    const auto units = static_cast<uint32_t>(units_of(error));
    return (units < static_cast<uint32_t>(kCells) ? units : kCells) + foreground * kStep;
}

struct ClassScratch {
    KeySorter sorter;
    SlotTable slots;
    uint32_t cells[2][2 * kStep];  // two sets of counters, so that neighbouring pixels need not
                                   // wait for each other
    float table[2 * kStep];        // slope x weight of a cell
};

EVALGRAD_INLINE bool any_candidate(const float* p, const int32_t* label, int32_t c,
                                   float threshold) {
    int any = 0;
    for (int j = 0; j < kTile; ++j) any |= (p[j] >= threshold) | (label[j] == c);
    return any != 0;
}

// Keys hold the units below 1 in place of the error: what they are sorted by.
EVALGRAD_INLINE uint32_t digits_of(float error) {
    constexpr uint32_t last = static_cast<uint32_t>(kUnits) - 1;  // an error of 1 shares it
    return last - std::min(last, static_cast<uint32_t>(units_of(error)));
}

// Appends keys of the foreground of class c and of the background at or above the threshold;
// offset: of p in `buffer`.
EVALGRAD_SIMD static int64_t collect(const float* p, const int32_t* label, int64_t pixels,
                                     int32_t c, float threshold, int64_t offset, KeySorter& sorter,
                                     uint64_t* keys) {
    int64_t count = 0;
    uint32_t digits[kTile], counts[kTile];
    for (int64_t start = 0; start < pixels; start += kTile) {
        const int64_t width = std::min(kTile, pixels - start);
        if (width == kTile && !any_candidate(p + start, label + start, c, threshold)) continue;
        for (int64_t j = 0; j < width; ++j) {
            const bool foreground = label[start + j] == c;
            const float error = error_of(p[start + j], foreground);
            digits[j] = digits_of(error);
            counts[j] =
                static_cast<uint32_t>(foreground) | static_cast<uint32_t>(error >= threshold);
        }
        const int64_t before = count;
        for (int64_t j = 0; j < width; ++j) {
            keys[count] = pack_key(digits[j], offset + start + j, label[start + j] == c);
            count += counts[j];  // no branch to mispredict
        }
        for (int64_t i = before; i < count; ++i) sorter.count(key_error(keys[i]));
    }
    return count;
}

// The same with the errors below kCells units counted instead of appended.
EVALGRAD_SIMD static int64_t collect_and_count(const float* p, const int32_t* label, int64_t pixels,
                                               int32_t c, int64_t offset, KeySorter& sorter,
                                               uint64_t* keys, uint32_t (*cells)[2 * kStep]) {
    int64_t count = 0;
    uint32_t digits[kTile], cell[kTile], counts[kTile];
    for (int64_t start = 0; start < pixels; start += kTile) {
        const int64_t width = std::min(kTile, pixels - start);
        for (int64_t j = 0; j < width; ++j) {
            const uint32_t foreground = label[start + j] == c;
            const float error = error_of(p[start + j], foreground);
            cell[j] = cell_of(error, foreground);
            digits[j] = digits_of(error);
            counts[j] = static_cast<uint32_t>(error >= kCells / kUnits);
        }
        const int64_t before = count;
        for (int64_t j = 0; j < width; ++j) {
            keys[count] =
                pack_key(digits[j], offset + start + j, cell[j] >= static_cast<uint32_t>(kStep));
            count += counts[j];
            ++cells[j & 1][cell[j]];
        }
        for (int64_t i = before; i < count; ++i) sorter.count(key_error(keys[i]));
    }
    return count;
}

// Turns the counts into slope x weight per cell, from the largest errors down.
inline void fill_table(ClassScratch& scratch, int64_t foreground_total, Ahead ahead, float scale) {
    scratch.table[kCells] = scratch.table[kStep + kCells] = 0.0f;
    for (int32_t u = kCells - 1; u >= 0; --u) {
        const int64_t g = scratch.cells[0][u] + scratch.cells[1][u],
                      f = scratch.cells[0][kStep + u] + scratch.cells[1][kStep + u];
        const TieWeights weights = weigh_tie(foreground_total, ahead, f, g);
        scratch.table[u] = scale * static_cast<float>(weights.background);
        scratch.table[kStep + u] = -scale * static_cast<float>(weights.foreground);
        ahead.foreground += f, ahead.background += g;
    }
}

// Slopes from the table in place of probabilities, 0 for what the cells do not hold.
EVALGRAD_SIMD static void look_up(float* p, const int32_t* label, int64_t pixels, int32_t c,
                                  const float* __restrict table) {
    for (int64_t i = 0; i < pixels; ++i) {
        const uint32_t foreground = label[i] == c;
        p[i] = table[cell_of(error_of(p[i], foreground), foreground)];
    }
}

}  // namespace evalgrad::lovasz
