// Lovász-Softmax, exact: softmax, errors, sort, weights and the way back through the softmax, in
// one buffer of the size of the logits. Three passes: probabilities; per class, weights in their
// place; gradient in the logits in theirs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "common/memory.h"
#include "common/parallel.h"
#include "common/simd.h"
#include "lovasz/class_errors.h"
#include "lovasz/class_maps.h"
#include "lovasz/kernels.h"

namespace evalgrad::lovasz {
namespace {

// The buffer has the shape of the logits; scale: (groups, classes).
struct Problem : ClassMaps {
    const float* scale;
    float* buffer;
};

// What pass 1 finds out per (group, class); one copy per worker, merged afterwards.
struct ClassTotals {
    int64_t foreground = 0;
    float highest = 0.0f;  // largest own-class probability: 1 - the smallest foreground error
    bool nan = false;
};

// What is kept per pixel from pass 1: softmax peak and inverse sum, and the label in a size that is
// quick to scan.
struct PixelNorms {
    Scratch<float> peak_memory, inverse_memory;
    Scratch<int32_t> label_memory;
    float *peak, *inverse;
    int32_t* label;

    explicit PixelNorms(int64_t pixels)
        : peak(peak_memory.reserve(pixels)),
          inverse(inverse_memory.reserve(pixels)),
          label(label_memory.reserve(pixels)) {}
};

// ---- pass 1: probabilities into the buffer

EVALGRAD_SIMD void write_probabilities(const Problem& maps, const Tile& tile, PixelNorms& norms) {
    float* p = maps.buffer + tile.map;
    softmax_tile(maps.x + tile.map, maps.pixels, maps.classes, tile.width, p, maps.pixels,
                 norms.peak + tile.pixel, norms.inverse + tile.pixel);
    bool ignored = false;
    for (int64_t j = 0; j < tile.width; ++j) {
        norms.label[tile.pixel + j] = static_cast<int32_t>(maps.label[tile.pixel + j]);
        ignored |= maps.label[tile.pixel + j] < 0;
    }
    if (!ignored) return;
    for (int64_t c = 0; c < maps.classes; ++c)
        for (int64_t j = 0; j < tile.width; ++j)
            if (norms.label[tile.pixel + j] < 0) p[c * maps.pixels + j] = kIgnored;
}

void total_tile(const Problem& maps, const Tile& tile, const PixelNorms& norms,
                ClassTotals* totals) {
    for (int64_t j = 0; j < tile.width; ++j) {
        const int32_t y = norms.label[tile.pixel + j];
        if (y < 0) continue;
        if (y >=
            maps.classes) {  // unchecked where a check would force a sync: loud, and within bounds
            totals[tile.group * maps.classes].nan = true;
            continue;
        }
        const float p = maps.buffer[tile.map + y * maps.pixels + j];
        ClassTotals& own = totals[tile.group * maps.classes + y];
        ++own.foreground;
        own.highest = std::max(own.highest, p);
        own.nan |= p != p;
    }
}

void merge(std::vector<ClassTotals>& into, const std::vector<ClassTotals>& from) {
    for (std::size_t i = 0; i < into.size(); ++i) {
        into[i].foreground += from[i].foreground;
        into[i].highest = std::max(into[i].highest, from[i].highest);
        into[i].nan |= from[i].nan;
    }
}

// ---- pass 3: through the softmax

// Exponentials are recomputed: cheaper than a second buffer of the size of the logits. Returns the
// tile's part of the value.
EVALGRAD_SIMD double write_gradient(const Problem& maps, const Tile& tile, const PixelNorms& norms,
                                    float* __restrict p) {
    const float* x = maps.x + tile.map;
    const float *peak = norms.peak + tile.pixel, *inverse = norms.inverse + tile.pixel;
    for (int64_t c = 0; c < maps.classes; ++c)
        for (int64_t j = 0; j < tile.width; ++j)
            p[c * kTile + j] = exp_shifted(x[c * maps.pixels + j], peak[j]) * inverse[j];
    return softmax_backward_tile(p, maps.classes, inverse, tile.width, maps.label + tile.pixel,
                                 maps.buffer + tile.map, maps.pixels);
}

// ---- all three

// `weigh(task, i, scratch)` writes the slopes of the i-th class of all groups in place of its
// probabilities.
template <class Weigh>
void three_passes(const Problem& maps, float* value, int64_t threads, const Weigh& weigh) {
    const int64_t tiles = maps.groups * maps.tiles_per_group();
    const int workers = useful_workers(maps.groups * maps.group_size(), static_cast<int>(threads));
    advise_huge_pages(maps.buffer, maps.groups * maps.group_size() * sizeof(float));
    PixelNorms norms(maps.groups * maps.images * maps.pixels);

    std::vector<std::vector<ClassTotals>> totals(
        workers, std::vector<ClassTotals>(maps.groups * maps.classes));
    parallel_tiles(maps, 0, tiles, workers, [&](const Tile& tile, int worker) {
        write_probabilities(maps, tile, norms);
        total_tile(maps, tile, norms, totals[worker].data());
    });
    for (int worker = 1; worker < workers; ++worker) merge(totals[0], totals[worker]);

    std::vector<ClassScratch> scratch(workers);
    parallel_tasks(maps.groups * maps.classes, workers, [&](int64_t i, int worker) {
        const int64_t group = i / maps.classes;
        const ClassTask task{maps.buffer + group * maps.group_size(),
                             norms.label + group * maps.images * maps.pixels,
                             maps.images,
                             maps.classes,
                             maps.pixels,
                             i % maps.classes,
                             totals[0][i].foreground,
                             totals[0][i].highest,
                             maps.scale == nullptr ? 1.0f : maps.scale[i]};
        if (task.factor == 0.0f || totals[0][i].nan) return task.fill(0.0f);
        weigh(task, i, scratch[worker]);
    });

    std::vector<std::vector<float>> probabilities(workers,
                                                  std::vector<float>(maps.classes * kTile));
    std::vector<double> sums(
        tiles);  // added in a fixed order: the same bits on any number of threads
    parallel_tiles(maps, 0, tiles, workers, [&](const Tile& tile, int worker) {
        sums[tile.index] = write_gradient(maps, tile, norms, probabilities[worker].data());
    });
    for (int64_t group = 0; group < maps.groups; ++group) {
        const auto first = sums.begin() + group * maps.tiles_per_group();
        value[group] =
            static_cast<float>(std::accumulate(first, first + maps.tiles_per_group(), 0.0));
        for (int64_t c = 0; c < maps.classes; ++c)
            if (totals[0][group * maps.classes + c].nan)
                value[group] = std::numeric_limits<float>::quiet_NaN();
    }
}

// ---- counts only

EVALGRAD_SIMD void tile_probabilities(const ClassMaps& maps, const Tile& tile, float* p,
                                      int32_t* label) {
    float peak[kTile], inverse[kTile];
    softmax_tile(maps.x + tile.map, maps.pixels, maps.classes, tile.width, p, kTile, peak, inverse);
    for (int64_t j = 0; j < tile.width; ++j)
        label[j] = static_cast<int32_t>(maps.label[tile.pixel + j]);
    for (int64_t j = 0; j < tile.width; ++j)
        for (int64_t c = 0; label[j] < 0 && c < maps.classes; ++c) p[c * kTile + j] = kIgnored;
}

void count_tile(const ClassMaps& maps, const Tile& tile, float* p, Histogram<WideBins>* classes) {
    int32_t label[kTile];
    tile_probabilities(maps, tile, p, label);
    for (int64_t c = 0; c < maps.classes; ++c)
        count(ClassPixels{p + c * kTile, label, static_cast<int32_t>(c), tile.width}, classes[c]);
}

void add_counts(const Histogram<WideBins>& histogram, int64_t bins, int64_t* row) {
    for (int set = 0; set < histogram.kSets; ++set) {
        const uint32_t* counts = histogram.counts + set * histogram.next_set;
        for (int64_t i = 0; i < bins; ++i) {
            row[i] += counts[i];
            row[bins + i] += counts[histogram.bins + i];
        }
    }
}

}  // namespace

void softmax(const float* x, const int64_t* label, const float* scale, int64_t groups,
             int64_t images, int64_t classes, int64_t pixels, int64_t bins, double misses,
             double false_alarms, float* value, float* gradient, int64_t threads) {
    const Problem maps{{x, label, groups, images, classes, pixels}, scale, gradient};
    three_passes(maps, value, threads, [&](const ClassTask& task, int64_t, ClassScratch& scratch) {
        with_metric(misses, false_alarms, [&](const auto& metric) {
            if (bins > 0)
                weigh_in_bins(metric, task, bins, scratch);
            else
                weigh_exactly(metric, task, scratch);
        });
    });
}

void softmax_bin_gradient(const float* x, const int64_t* label, const float* slopes, int64_t groups,
                          int64_t images, int64_t classes, int64_t pixels, int64_t bins,
                          float* value, float* gradient, int64_t threads) {
    const Problem maps{{x, label, groups, images, classes, pixels}, nullptr, gradient};
    three_passes(maps, value, threads,
                 [&](const ClassTask& task, int64_t i, ClassScratch& scratch) {
                     const float* own = slopes + i * 2 * bins;
                     scratch.wide.start(class_bins(bins));
                     std::copy_n(own, bins, scratch.wide.slopes);
                     std::copy_n(own + bins, bins, scratch.wide.slopes + scratch.wide.bins);
                     task.look_up_in(scratch.wide);
                 });
}

// Tile by tile, which needs no memory of the size of the logits.
void softmax_bin_counts(const float* x, const int64_t* label, int64_t groups, int64_t images,
                        int64_t classes, int64_t pixels, int64_t bins, int64_t* counts,
                        int64_t threads) {
    struct TileScratch {
        std::vector<float> p;
        std::vector<Histogram<WideBins>> histograms;  // one per class
    };
    const ClassMaps maps{x, label, groups, images, classes, pixels};
    const int workers = useful_workers(maps.group_size(), static_cast<int>(threads));
    std::vector<TileScratch> scratch(workers);
    for (auto& own : scratch) own.p.resize(classes * kTile), own.histograms.resize(classes);
    for (int64_t group = 0; group < groups; ++group) {
        for (auto& own : scratch)
            for (auto& histogram : own.histograms) histogram.start(class_bins(bins));
        const int64_t first = group * maps.tiles_per_group();
        parallel_tiles(maps, first, first + maps.tiles_per_group(), workers,
                       [&](const Tile& tile, int worker) {
                           count_tile(maps, tile, scratch[worker].p.data(),
                                      scratch[worker].histograms.data());
                       });
        for (int64_t c = 0; c < classes; ++c) {
            int64_t* row = counts + (group * classes + c) * 2 * bins;
            std::fill_n(row, 2 * bins, int64_t{0});
            for (const auto& own : scratch) add_counts(own.histograms[c], bins, row);
        }
    }
}

}  // namespace evalgrad::lovasz
