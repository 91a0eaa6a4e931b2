// The Lovász hinge without a sort: the losses of a row counted in equal bins between 0 and the
// largest of them, then weights looked up per bin.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/memory.h"
#include "common/parallel.h"
#include "common/simd.h"
#include "lovasz/hinge_pixels.h"
#include "lovasz/kernels.h"
#include "lovasz/weights.h"

namespace evalgrad::lovasz {
namespace {

// Entries behind those of the bins, for pixels without a loss and those left out: several, because
// in a trained network most pixels fall there, and increments of one counter wait for each other.
constexpr int32_t kNothing = 64;

EVALGRAD_SIMD HingeRange range_of(const HingePixels& row) {
    HingeRange range;
    HingeBlock block;
    for (int64_t start = 0; start < row.n; start += kHingeBlock) {
        const int64_t width = std::min(kHingeBlock, row.n - start);
        read_block(row, start, width, block);
        range.add(block, width);
    }
    return range;
}

// 2 x bin + foreground of each pixel of a block, `2 * bins` and more for nothing.
EVALGRAD_INLINE void block_entries(const HingeBlock& block, int64_t width, float scale,
                                   int32_t bins, int32_t* entries) {
    const float last = static_cast<float>(bins - 1);
    for (int64_t j = 0; j < width; ++j) {
        const float place = block.losses[j] * scale;
        const auto bin = static_cast<int32_t>(
            place < last ? place : last);  // this way round, NaN falls into the last bin
        const int32_t entry = 2 * bin + block.foreground[j];
        entries[j] =
            block.losses[j] <= 0.0f ? 2 * bins + static_cast<int32_t>(j % kNothing) : entry;
    }
}

EVALGRAD_SIMD void count(const HingePixels& row, float scale, int32_t bins, uint32_t* counts) {
    HingeBlock block;
    int32_t entries[kHingeBlock];
    for (int64_t start = 0; start < row.n; start += kHingeBlock) {
        const int64_t width = std::min(kHingeBlock, row.n - start);
        read_block(row, start, width, block);
        block_entries(block, width, scale, bins, entries);
        for (int64_t j = 0; j < width; ++j) ++counts[entries[j]];
    }
}

// Slope of the loss in the logit of a pixel, per entry; from the largest losses down.
void fill_slopes(const uint32_t* counts, int32_t bins, int64_t foreground_total, float factor,
                 float* slopes) {
    std::fill_n(slopes, 2 * bins + kNothing, 0.0f);
    if (foreground_total == 0) {  // the extension is the largest error: the last bin, which holds
                                  // it, has all the weight
        slopes[2 * bins - 2] = factor / static_cast<float>(std::max(counts[2 * bins - 2], 1u));
        return;
    }
    Ahead ahead;
    for (int32_t bin = bins - 1; bin >= 0; --bin) {
        const int64_t f = counts[2 * bin + 1], g = counts[2 * bin];
        const TieWeights weights = weigh_tie(foreground_total, ahead, f, g);
        slopes[2 * bin] = factor * static_cast<float>(weights.background);
        slopes[2 * bin + 1] = -factor * static_cast<float>(weights.foreground);
        ahead.foreground += f, ahead.background += g;
    }
}

// Writes the gradient and returns the value.
EVALGRAD_SIMD double look_up(const HingePixels& row, float scale, int32_t bins, const float* slopes,
                             float* gradient) {
    HingeBlock block;
    int32_t entries[kHingeBlock];
    HingeSum sum;
    for (int64_t start = 0; start < row.n; start += kHingeBlock) {
        const int64_t width = std::min(kHingeBlock, row.n - start);
        float* out = gradient + start;
        read_block(row, start, width, block);
        block_entries(block, width, scale, bins, entries);
        for (int64_t j = 0; j < width; ++j) out[j] = slopes[entries[j]];
        sum.add(block.losses, out, width);
    }
    return sum.total();
}

}  // namespace

void hinge_bins(const float* x, const uint8_t* foreground, Optional<const uint8_t> mask,
                const float* factor, int64_t rows, int64_t n, int64_t bins, float* value,
                float* gradient, int64_t threads) {
    struct Table {
        std::vector<uint32_t> counts;
        std::vector<float> slopes;
    };
    const int64_t entries = 2 * bins + kNothing;
    advise_huge_pages(gradient, rows * n * sizeof(float));
    const int workers = useful_workers(rows * n, static_cast<int>(threads));
    std::vector<Table> tables(workers,
                              Table{std::vector<uint32_t>(entries), std::vector<float>(entries)});
    parallel_tasks(rows, workers, [&](int64_t i, int worker) {
        if (factor[i] ==
            0.0f) {  // a row left out: nothing, even where its losses are infinite or NaN
            value[i] = 0.0f;
            std::fill_n(gradient + i * n, n, 0.0f);
            return;
        }
        const HingePixels row{x + i * n, foreground + i * n,
                              mask == nullptr ? nullptr : mask + i * n, n};
        auto& [counts, slopes] = tables[worker];
        const HingeRange range = range_of(row);
        const float scale = static_cast<float>(bins) / range.highest();
        std::fill(counts.begin(), counts.end(), 0u);
        count(row, scale, static_cast<int32_t>(bins), counts.data());
        fill_slopes(counts.data(), static_cast<int32_t>(bins), range.foreground_total, factor[i],
                    slopes.data());
        value[i] = static_cast<float>(
            look_up(row, scale, static_cast<int32_t>(bins), slopes.data(), gradient + i * n));
    });
}

}  // namespace evalgrad::lovasz
