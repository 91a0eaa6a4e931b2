// Lovász extension over rows of errors, or over rows of logits through the hinge.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/memory.h"
#include "common/parallel.h"
#include "common/simd.h"
#include "common/sort.h"
#include "lovasz/candidates.h"
#include "lovasz/fine_bins.h"
#include "lovasz/histogram.h"
#include "lovasz/kernels.h"
#include "lovasz/weights.h"

namespace evalgrad::lovasz {
namespace {

// Of many pixels the margins are compared in units of 2^-24 of their spread, if that is at most
// kSpread: units of 2^-20 or less, near what float32 resolves of 1 - x. Closer ones count as tied,
// which moves the value by less than a unit. An outlier stretches the spread; then, and for few
// pixels, the order is exact. Of very many pixels with many wrong ones, see fine_bins.h.
constexpr int64_t kMany = 4096;
constexpr int kUnitBits = 24;
constexpr float kSpread = 16.0f;
constexpr uint32_t kAbsent = 0;  // below the ordered bits of every float, -inf included

// One worker's memory for a row.
struct RowScratch {
    Scratch<uint32_t> errors;
    KeySorter sorter;
    Histogram<EqualBins<uint8_t>> fine;
    Histogram<EqualBins<uint32_t>> wide;
};

EVALGRAD_INLINE float hinge_loss(float x, uint8_t foreground) {
    // flips x without a choice between two sums
    const auto sign = static_cast<int32_t>(static_cast<uint32_t>(foreground != 0) << 31);
    const float margin = 1.0f + bits_float(float_bits(x) ^ sign);
    return margin < 0.0f ? 0.0f : margin;  // this way round, NaN stays NaN
}

struct Row {
    const float* x;
    const uint8_t *foreground, *mask;  // no mask: null
    int64_t n;
    bool hinge;
    float factor;
    float* gradient;

    // For the histogram, of a hinge: what the mask leaves out has no loss and is no foreground.
    EVALGRAD_INLINE void read(int64_t start, int32_t width, Block& block) const {
        for (int32_t j = 0; j < width; ++j) {
            block.errors[j] = hinge_loss(x[start + j], foreground[start + j]);
            block.foreground[j] = foreground[start + j] ? -1 : 0;
        }
        if (mask == nullptr) return;
        for (int32_t j = 0; j < width; ++j) {
            block.errors[j] = mask[start + j] ? block.errors[j] : 0.0f;
            block.foreground[j] = mask[start + j] ? block.foreground[j] : 0;
        }
    }
    // Of the loss in the input, per unit of weight, on background and foreground.
    float slope(bool front) const { return hinge && front ? -factor : factor; }
};

// ---- by a histogram

// Of the losses of a hinge.
struct LossRange {
    int64_t foreground_total = 0, positive = 0;
    float lowest, highest;  // of the positive ones; the highest is NaN if one is
};

EVALGRAD_SIMD LossRange range_of(const Row& row) {
    LossRange range;
    Block block;
    // The bits of losses have their order, NaN the largest. Less 1, those of 0 become the largest.
    uint32_t low = 0xFFFFFFFFu, top = 0;
    for (int64_t start = 0; start < row.n; start += kBlock) {
        const auto width = static_cast<int32_t>(std::min(kBlock, row.n - start));
        row.read(start, width, block);
        int32_t total = 0, above = 0;
        for (int32_t j = 0; j < width; ++j) {
            const auto bits = static_cast<uint32_t>(float_bits(block.errors[j])) & 0x7FFFFFFFu;
            low = std::min(low, bits - 1u), top = std::max(top, bits);
            above -= bits != 0, total += block.foreground[j];
        }
        range.foreground_total -= total, range.positive -= above;
    }
    range.lowest = bits_float(static_cast<int32_t>(low + 1u));
    range.highest = bits_float(static_cast<int32_t>(top));
    return range;
}

// A hinge with `bins=`.
template <class Metric>
double weigh_in_bins(const Metric& metric, const Row& row, const LossRange& range, int64_t bins,
                     RowScratch& scratch) {
    // Losses of 0 have no bin: FLT_MIN is less than any other.
    const float top = range.highest, scale = top > 0.0f ? static_cast<float>(bins) / top : 0.0f;
    auto& wide = scratch.wide;
    wide.start({FLT_MIN, top, scale, bins});
    count(row, wide);
    Ahead ahead;
    if (range.foreground_total == 0)
        fill_without_foreground(wide, row.factor);
    else
        fill_slopes(metric, wide, range.foreground_total, row.factor, ahead);
    return look_up(row, row.gradient, wide);
}

// A hinge of many pixels without a sort. False where one is better: with little foreground, losses
// equal or too close for the bins, or far apart.
template <class Metric>
bool weigh_in_fine_bins(const Metric& metric, const Row& row, const LossRange& range,
                        RowScratch& scratch, double& value) {
    const float lowest = range.lowest, top = range.highest;
    const int64_t total = range.foreground_total;
    if (total < kFineForeground) return false;
    if (!(top - lowest > 0.0f && top - lowest <= kSpread)) return false;
    Ahead ahead;
    const bool done = count_finely(
        metric, scratch.fine, first_bins(range.positive, total), total, row.factor, ahead,
        [&](double wanted) {
            const auto bins = static_cast<int64_t>(wanted);
            return EqualBins<uint8_t>(lowest, top, static_cast<float>(wanted) / (top - lowest),
                                      bins);
        },
        [&] { count(row, scratch.fine); });
    if (done) value = look_up(row, row.gradient, scratch.fine);
    return done;
}

// ---- by a sort

// Errors as ordered bits.
struct RowRange {
    int64_t foreground_total = 0;
    uint32_t lowest_foreground = 0xFFFFFFFFu, highest = kAbsent;
};

// Writes the errors; what the mask leaves out is absent.
EVALGRAD_SIMD RowRange read_errors(const Row& row, uint32_t* errors) {
    RowRange range;
    uint32_t block[kBlock];  // which, unlike `errors`, overlaps nothing
    for (int64_t start = 0; start < row.n; start += kBlock) {
        const auto width = static_cast<int32_t>(std::min(kBlock, row.n - start));
        const float* x = row.x + start;
        const uint8_t* foreground = row.foreground + start;
        if (row.hinge)
            for (int32_t j = 0; j < width; ++j)
                block[j] = ordered_bits(hinge_loss(x[j], foreground[j]));
        else
            for (int32_t j = 0; j < width; ++j) block[j] = ordered_bits(x[j]);
        if (row.mask != nullptr)
            for (int32_t j = 0; j < width; ++j) block[j] = row.mask[start + j] ? block[j] : kAbsent;
        uint32_t total = 0, lowest = range.lowest_foreground, highest = range.highest;
        for (int32_t j = 0; j < width; ++j) {
            const uint32_t counts = static_cast<uint32_t>(foreground[j] != 0) &
                                    static_cast<uint32_t>(block[j] != kAbsent);
            total += counts;
            lowest = std::min(lowest, block[j] | (counts - 1u));  // all ones if it does not count
            highest = std::max(highest, block[j]);
        }
        range = {range.foreground_total + total, lowest, highest};
        std::copy_n(block, width, errors + start);
    }
    return range;
}

// Items at or above `lowest` for a sort in full.
struct RowItems {
    const uint32_t* errors;
    const uint8_t* labels;
    uint32_t lowest;
    static constexpr int64_t offset = 0;

    EVALGRAD_INLINE bool wanted(int64_t i) const { return errors[i] >= lowest; }
    EVALGRAD_INLINE bool foreground(int64_t i) const { return labels[i] != 0; }
    EVALGRAD_INLINE uint32_t order(int64_t i) const { return ~errors[i]; }
};

// The same in units below the largest error.
struct RowUnits : RowItems {
    float top, scale;

    EVALGRAD_INLINE uint32_t order(int64_t i) const {
        constexpr int32_t last = (1 << kUnitBits) - 1;
        const float below = top - ordered_float(errors[i]);  // NaN or huge of an unwanted one
        const float units = std::min(static_cast<float>(last), below * scale);
        return static_cast<uint32_t>(static_cast<int32_t>(units));
    }
};

// Sum of |slope| x margin, in lanes that do not wait for each other.
EVALGRAD_SIMD double sum_margins(const uint32_t* errors, const float* gradient, int64_t n) {
    constexpr int64_t kLanes = 16;
    double lane[kLanes] = {};
    for (int64_t start = 0; start < n; start += kLanes) {
        const int64_t width = std::min(kLanes, n - start);
        for (int64_t j = 0; j < width; ++j) {
            const uint32_t margin =
                std::max(errors[start + j], kOrderedZero);  // kAbsent would be NaN
            lane[j] += std::fabs(gradient[start + j]) * ordered_float(margin);
        }
    }
    return std::accumulate(lane, lane + kLanes, 0.0);
}

template <class Metric>
double weigh_in_units(const Metric& metric, const Row& row, const RowUnits& items,
                      int64_t foreground_total, KeySorter& sorter) {
    const int64_t count = collect(items, row.n, sorter.room(row.n + 1));
    const uint32_t* sorted = sorter.sort<uint32_t, kUnitBits>(count);
    const float slopes[2] = {row.slope(false), row.slope(true)};
    weigh_sorted(
        metric, sorted, count, foreground_total, row.gradient, [&](uint32_t key, double weight) {
            row.gradient[key_index(key)] = static_cast<float>(weight) * slopes[key_foreground(key)];
        });
    return sum_margins(items.errors, row.gradient, row.n);
}

template <class Metric>
double weigh_exactly(const Metric& metric, const Row& row, const RowItems& items,
                     int64_t foreground_total, KeySorter& sorter) {
    const int64_t count = collect(items, row.n, sorter.room(row.n + 1));
    const uint64_t* sorted = sorter.sort<uint64_t, 32>(count);
    const float slopes[2] = {row.slope(false), row.slope(true)};
    double value = 0;
    weigh_sorted(
        metric, sorted, count, foreground_total, row.gradient, [&](uint64_t key, double weight) {
            value += ordered_float(~key_order(key)) * weight;
            row.gradient[key_index(key)] = static_cast<float>(weight) * slopes[key_foreground(key)];
        });
    return row.factor * value;
}

template <class Metric>
double weigh_by_sort(const Metric& metric, const Row& row, RowScratch& scratch) {
    uint32_t* errors = scratch.errors.reserve(row.n);
    const RowRange range = read_errors(row, errors);
    std::fill_n(row.gradient, row.n, 0.0f);
    const float top = ordered_float(range.highest);
    if (range.highest == kAbsent || (row.hinge && range.highest == kOrderedZero)) return 0.0;
    if (range.foreground_total == 0) {  // the extension is the largest error
        row.gradient[std::find(errors, errors + row.n, range.highest) - errors] = row.factor;
        return row.factor * top;
    }
    // Background below every foreground error weighs 0 and need not be sorted; nor does what the
    // hinge has cut to 0.
    const uint32_t lowest =
        row.hinge ? std::max(range.lowest_foreground, kOrderedZero + 1) : range.lowest_foreground;
    const float spread = top - ordered_float(lowest);
    const RowItems items{errors, row.foreground, lowest};
    if (!row.hinge || row.n < kMany || !(spread > 0.0f && spread <= kSpread))
        return weigh_exactly(metric, row, items, range.foreground_total, scratch.sorter);
    const float scale = static_cast<float>((1 << kUnitBits) - 1) / spread;
    return weigh_in_units(metric, row, {items, top, scale}, range.foreground_total, scratch.sorter);
}

template <class Metric>
double weigh_row(const Metric& metric, const Row& row, int64_t bins, RowScratch& scratch) {
    if (bins > 0) return weigh_in_bins(metric, row, range_of(row), bins, scratch);
    // Of more pixels, fine bins would be finer than float32 resolves; of losses mostly 0, few are
    // to be sorted.
    double value;
    if (row.hinge && row.n >= kFinePixels && row.n <= int64_t{1} << 22 &&
        share_from(row, FLT_MIN) > 1.0 / 32 &&
        weigh_in_fine_bins(metric, row, range_of(row), scratch, value))
        return value;
    return weigh_by_sort(metric, row, scratch);
}

}  // namespace

void rows(const float* x, const uint8_t* foreground, Optional<const uint8_t> mask,
          Optional<const float> factor, int64_t rows, int64_t n, int64_t hinge, int64_t bins,
          double misses, double false_alarms, float* value, float* gradient, int64_t threads) {
    advise_huge_pages(gradient, rows * n * sizeof(float));
    const int workers = useful_workers(rows * n, static_cast<int>(threads));
    std::vector<RowScratch> scratch(workers);
    parallel_tasks(rows, workers, [&](int64_t i, int worker) {
        const int64_t start = i * n;
        const Row row{x + start,
                      foreground + start,
                      mask == nullptr ? nullptr : mask + start,
                      n,
                      hinge != 0,
                      factor == nullptr ? 1.0f : factor[i],
                      gradient + start};
        if (row.factor == 0.0f) {  // left out: nothing, even where its losses are infinite or NaN
            value[i] = 0.0f;
            std::fill_n(row.gradient, n, 0.0f);
        } else {
            with_metric(misses, false_alarms, [&](const auto& metric) {
                value[i] = static_cast<float>(weigh_row(metric, row, bins, scratch[worker]));
            });
        }
    });
}

}  // namespace evalgrad::lovasz
