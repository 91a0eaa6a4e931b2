// Lovász extension of the Jaccard loss over rows of errors, or over rows of logits through the
// hinge.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/memory.h"
#include "common/parallel.h"
#include "common/simd.h"
#include "common/sort.h"
#include "lovasz/hinge_slots.h"
#include "lovasz/kernels.h"
#include "lovasz/weights.h"

namespace evalgrad::lovasz {
namespace {

// Of many pixels the margins are compared in units of 2^-24 of their spread, if that is at most
// kSpread: units of 2^-20 or less, near what float32 resolves of 1 - x. Closer ones count as tied,
// which moves the value by less than a unit. An outlier stretches the spread; then, and for few
// pixels, the order is exact. Of very many pixels with many wrong ones, see hinge_slots.h.
constexpr int64_t kMany = 4096;
constexpr float kSpread = 16.0f;
// An item that does not count: below the order bits of every float, -inf included.
constexpr uint32_t kAbsent = 0;

// One worker's memory for a row.
struct RowScratch {
    Scratch<uint32_t> errors;
    KeySorter sorter;
    SlotTable table;
};

struct RowRange {
    int64_t foreground_total;
    uint32_t lowest_foreground, highest;
};

EVALGRAD_SIMD void ordered_errors(const float* x, const uint8_t* foreground, const uint8_t* mask,
                                  int64_t n, bool hinge, uint32_t* errors) {
    if (hinge) {
        for (int64_t i = 0; i < n; ++i) {
            const float error = foreground[i] ? 1.0f - x[i] : 1.0f + x[i];
            errors[i] = ordered_bits(error < 0.0f ? 0.0f : error);  // this way round, NaN stays NaN
        }
    } else {
        for (int64_t i = 0; i < n; ++i) errors[i] = ordered_bits(x[i]);
    }
    if (mask == nullptr) return;
    for (int64_t i = 0; i < n; ++i) errors[i] = mask[i] ? errors[i] : kAbsent;
}

EVALGRAD_SIMD RowRange range_of(const uint32_t* errors, const uint8_t* foreground, int64_t n) {
    constexpr int64_t kBlock =
        int64_t{1} << 20;  // counted in 32 bits, the width of the errors: vectors need one width
    RowRange range{0, 0xFFFFFFFFu, kAbsent};
    for (int64_t start = 0; start < n; start += kBlock) {
        const int64_t end = std::min(n, start + kBlock);
        uint32_t total = 0, lowest = 0xFFFFFFFFu, highest = kAbsent;
        for (int64_t i = start; i < end; ++i) {
            const uint32_t counts = static_cast<uint32_t>(foreground[i] != 0) &
                                    static_cast<uint32_t>(errors[i] != kAbsent);
            total += counts;
            lowest =
                std::min(lowest, errors[i] | (counts - 1u));  // all ones where it does not count
            highest = std::max(highest, errors[i]);
        }
        range = {range.foreground_total + total, std::min(range.lowest_foreground, lowest),
                 std::max(range.highest, highest)};
    }
    return range;
}

// Keys of the items at or above `lowest`; blocks without one, most of them in a trained network,
// are passed over.
EVALGRAD_SIMD int64_t collect(const uint32_t* errors, const uint8_t* foreground, int64_t n,
                              uint32_t lowest, uint64_t* keys) {
    constexpr int64_t kBlock = 32;
    int64_t count = 0;
    for (int64_t start = 0; start < n; start += kBlock) {
        const int64_t end = std::min(n, start + kBlock);
        uint32_t top = 0;
        for (int64_t i = start; i < end; ++i) top = std::max(top, errors[i]);
        if (top < lowest) continue;
        for (int64_t i = start; i < end; ++i) {
            keys[count] = pack_key(errors[i], i, foreground[i]);
            count += errors[i] >= lowest;  // no branch to mispredict
        }
    }
    return count;
}

// The same with the units below the highest error in place of the error, counted for the sort.
EVALGRAD_SIMD int64_t collect_units(const uint32_t* errors, const uint8_t* foreground, int64_t n,
                                    uint32_t lowest, float top, float scale, KeySorter& sorter,
                                    uint64_t* keys) {
    constexpr int64_t kBlock = 32;
    int64_t count = 0;
    uint32_t units[kBlock];
    for (int64_t start = 0; start < n; start += kBlock) {
        const int64_t width = std::min(kBlock, n - start);
        uint32_t highest = 0;
        for (int64_t j = 0; j < width; ++j) highest = std::max(highest, errors[start + j]);
        if (highest < lowest) continue;
        for (int64_t j = 0; j < width; ++j) {
            const float below = top - ordered_float(errors[start + j]);
            units[j] = std::min(KeySorter::kLast,
                                static_cast<uint32_t>(static_cast<int32_t>(below * scale)));
        }
        const int64_t before = count;
        for (int64_t j = 0; j < width; ++j) {
            keys[count] = pack_key(units[j], start + j, foreground[start + j]);
            count += errors[start + j] >= lowest;
        }
        for (int64_t i = before; i < count; ++i) sorter.count(key_error(keys[i]));
    }
    return count;
}

// What a row is weighed with. Slopes: of the loss in the input, per unit of weight, on background
// and foreground.
struct Row {
    const uint32_t* errors;
    const uint8_t* foreground;
    int64_t n;
    RowRange range;
    float slopes[2];
    float* gradient;
};

// Sum of |slope| x margin, in lanes that do not wait for each other.
EVALGRAD_SIMD double sum_margins(const Row& row) {
    constexpr int64_t kLanes = 16;
    double lane[kLanes] = {};
    for (int64_t start = 0; start < row.n; start += kLanes) {
        const int64_t width = std::min(kLanes, row.n - start);
        for (int64_t j = 0; j < width; ++j) {
            const uint32_t margin =
                std::max(row.errors[start + j], kOrderedZero);  // kAbsent would be NaN
            lane[j] += std::fabs(row.gradient[start + j]) * ordered_float(margin);
        }
    }
    return std::accumulate(lane, lane + kLanes, 0.0);
}

double weigh_in_units(const Row& row, uint32_t lowest, float top, float spread, KeySorter& sorter) {
    uint64_t* keys = sorter.room(row.n + 1);
    sorter.start_counting();
    const int64_t count =
        collect_units(row.errors, row.foreground, row.n, lowest, top,
                      static_cast<float>(KeySorter::kLast) / spread, sorter, keys);
    const uint32_t* sorted = sorter.sort<uint32_t>(count, key_error);
    weigh_sorted(sorted, count, row.range.foreground_total, row.gradient,
                 [&](uint32_t key, double weight) {
                     row.gradient[key_index(key)] =
                         static_cast<float>(weight) * row.slopes[key_foreground(key)];
                 });
    return sum_margins(row);
}

double weigh_exactly(const Row& row, uint32_t lowest, KeySorter& sorter) {
    const int64_t count =
        collect(row.errors, row.foreground, row.n, lowest, sorter.room(row.n + 1));
    const uint64_t* sorted = sort_by_error(sorter, count, lowest, row.range.highest);
    double value = 0;
    weigh_sorted(sorted, count, row.range.foreground_total, row.gradient,
                 [&](uint64_t key, double weight) {
                     value += ordered_float(key_error(key)) * weight;
                     row.gradient[key_index(key)] =
                         static_cast<float>(weight) * row.slopes[key_foreground(key)];
                 });
    return row.slopes[0] * value;
}

float extend_row(const float* x, const uint8_t* foreground, const uint8_t* mask, int64_t n,
                 bool hinge, float factor, float* gradient, RowScratch& scratch) {
    if (hinge && factor != 0.0f) {
        const auto value =
            hinge_by_slots({x, foreground, mask, n}, kSpread, factor, gradient, scratch.table);
        if (value) return static_cast<float>(*value);
    }
    uint32_t* errors = scratch.errors.reserve(n);
    ordered_errors(x, foreground, mask, n, hinge, errors);
    std::fill_n(gradient, n, 0.0f);
    if (factor == 0.0f) return 0.0f;
    const Row row{
        errors,  foreground, n, range_of(errors, foreground, n), {factor, hinge ? -factor : factor},
        gradient};
    const float top = ordered_float(row.range.highest);
    if (row.range.highest == kAbsent || (hinge && top == 0.0f)) return 0.0f;
    if (row.range.foreground_total == 0) {  // the extension is the largest error
        gradient[std::find(errors, errors + n, row.range.highest) - errors] = factor;
        return factor * top;
    }
    // Background below every foreground error weighs 0 and need not be sorted; nor does what the
    // hinge has cut to 0.
    const uint32_t lowest = hinge ? std::max(row.range.lowest_foreground, kOrderedZero + 1)
                                  : row.range.lowest_foreground;
    const float spread = top - ordered_float(lowest);
    const bool in_units = hinge && n >= kMany && spread > 0.0f && spread <= kSpread;
    return static_cast<float>(in_units ? weigh_in_units(row, lowest, top, spread, scratch.sorter)
                                       : weigh_exactly(row, lowest, scratch.sorter));
}

}  // namespace

void rows(const float* x, const uint8_t* foreground, Optional<const uint8_t> mask,
          Optional<const float> factor, int64_t rows, int64_t n, int64_t hinge, float* value,
          float* gradient, int64_t threads) {
    advise_huge_pages(gradient, rows * n * sizeof(float));
    const int workers = useful_workers(rows * n, static_cast<int>(threads));
    std::vector<RowScratch> scratch(workers);
    parallel_tasks(rows, workers, [&](int64_t row, int worker) {
        const int64_t start = row * n;
        const uint8_t* row_mask = mask == nullptr ? nullptr : mask + start;
        const float row_factor = factor == nullptr ? 1.0f : factor[row];
        value[row] = extend_row(x + start, foreground + start, row_mask, n, hinge != 0, row_factor,
                                gradient + start, scratch[worker]);
    });
}

}  // namespace evalgrad::lovasz
