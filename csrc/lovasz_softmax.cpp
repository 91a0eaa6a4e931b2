// Lovász-Softmax, exact: softmax, errors, sort, weights and the way back through the softmax, in one buffer of the size of
// the logits. Three passes: probabilities; per class, weights in their place; gradient in the logits in theirs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "class_maps.h"
#include "lovasz_weights.h"
#include "memory.h"
#include "parallel.h"
#include "simd.h"
#include "sort.h"

namespace evalgrad {
namespace {

// Errors are compared in units of 2^-22, about what float32 resolves of a softmax; closer ones count as tied, which moves
// the value by less than a unit. So two radix passes sort exactly, and the smallest errors, of which a trained network
// has most, need no sort at all: they are counted in one cell per unit.
constexpr float kUnits = 4194304.0f;
constexpr int32_t kCells = 4096;
constexpr float kIgnored = -1.0f;  // in place of the probability of a pixel that does not count

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

// What is kept per pixel from pass 1: softmax peak and inverse sum, and the label in a size that is quick to scan.
struct PixelNorms {
    Scratch<float> peak_memory, inverse_memory;
    Scratch<int32_t> label_memory;
    float *peak, *inverse;
    int32_t* label;

    explicit PixelNorms(int64_t pixels)
        : peak(peak_memory.reserve(pixels)), inverse(inverse_memory.reserve(pixels)), label(label_memory.reserve(pixels)) {}
};

// ---- pass 1: probabilities into the buffer --------------------------------------------------------------------------

EVALGRAD_SIMD void write_probabilities(const Problem& maps, const Tile& tile, PixelNorms& norms) {
    float* p = maps.buffer + tile.map;
    softmax_tile(maps.x + tile.map, maps.pixels, maps.classes, tile.width, p, maps.pixels, norms.peak + tile.pixel, norms.inverse + tile.pixel);
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

void total_tile(const Problem& maps, const Tile& tile, const PixelNorms& norms, ClassTotals* totals) {
    for (int64_t j = 0; j < tile.width; ++j) {
        const int32_t y = norms.label[tile.pixel + j];
        if (y < 0) continue;
        if (y >= maps.classes) {  // unchecked where a check would force a sync: loud, and within bounds
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

// ---- pass 2: weights of one class of one group in place of its probabilities ----------------------------------------

EVALGRAD_INLINE float error_of(float p, bool foreground) { return foreground ? 1.0f - p : p; }
EVALGRAD_INLINE int32_t units_of(float error) { return static_cast<int32_t>(error * kUnits); }

constexpr int32_t kStep = kCells + 1;  // cells of one kind, the last for errors above them and for ignored pixels

// Background cells first, foreground cells a step later. A negative number of units wraps to a large one.
EVALGRAD_INLINE uint32_t cell_of(float error, uint32_t foreground) {
    const auto units = static_cast<uint32_t>(units_of(error));
    return (units < static_cast<uint32_t>(kCells) ? units : kCells) + foreground * kStep;
}

struct ClassScratch {
    KeySorter sorter;
    uint32_t cells[2][2 * kStep];  // two sets of counters, so that neighbouring pixels need not wait for each other
    float table[2 * kStep];        // slope x weight of a cell
};

EVALGRAD_INLINE bool any_candidate(const float* p, const int32_t* label, int32_t c, float threshold) {
    int any = 0;
    for (int j = 0; j < kTile; ++j) any |= (p[j] >= threshold) | (label[j] == c);
    return any != 0;
}

// Keys hold the units below 1 in place of the error: what they are sorted by.
EVALGRAD_INLINE uint32_t digits_of(float error) {
    constexpr uint32_t last = static_cast<uint32_t>(kUnits) - 1;  // an error of 1 shares it
    return last - std::min(last, static_cast<uint32_t>(units_of(error)));
}

// Appends keys of the foreground of class c and of the background at or above the threshold; offset: of p in `buffer`.
EVALGRAD_SIMD int64_t collect(const float* p, const int32_t* label, int64_t pixels, int32_t c, float threshold, int64_t offset, KeySorter& sorter, uint64_t* keys) {
    int64_t count = 0;
    uint32_t digits[kTile], counts[kTile];
    for (int64_t start = 0; start < pixels; start += kTile) {
        const int64_t width = std::min(kTile, pixels - start);
        if (width == kTile && !any_candidate(p + start, label + start, c, threshold)) continue;
        for (int64_t j = 0; j < width; ++j) {
            const bool foreground = label[start + j] == c;
            const float error = error_of(p[start + j], foreground);
            digits[j] = digits_of(error);
            counts[j] = static_cast<uint32_t>(foreground) | static_cast<uint32_t>(error >= threshold);
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
EVALGRAD_SIMD int64_t collect_and_count(const float* p, const int32_t* label, int64_t pixels, int32_t c, int64_t offset, KeySorter& sorter, uint64_t* keys, uint32_t (*cells)[2 * kStep]) {
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
            keys[count] = pack_key(digits[j], offset + start + j, cell[j] >= static_cast<uint32_t>(kStep));
            count += counts[j];
            ++cells[j & 1][cell[j]];
        }
        for (int64_t i = before; i < count; ++i) sorter.count(key_error(keys[i]));
    }
    return count;
}

// Turns the counts into slope x weight per cell, from the largest errors down.
void fill_table(ClassScratch& scratch, int64_t foreground_total, Ahead ahead, float scale) {
    scratch.table[kCells] = scratch.table[kStep + kCells] = 0.0f;
    for (int32_t u = kCells - 1; u >= 0; --u) {
        const int64_t g = scratch.cells[0][u] + scratch.cells[1][u], f = scratch.cells[0][kStep + u] + scratch.cells[1][kStep + u];
        const TieWeights weights = weigh_tie(foreground_total, ahead, f, g);
        scratch.table[u] = scale * static_cast<float>(weights.background);
        scratch.table[kStep + u] = -scale * static_cast<float>(weights.foreground);
        ahead.foreground += f, ahead.background += g;
    }
}

// Slopes from the table in place of probabilities, 0 for what the cells do not hold.
EVALGRAD_SIMD void look_up(float* p, const int32_t* label, int64_t pixels, int32_t c, const float* __restrict table) {
    for (int64_t i = 0; i < pixels; ++i) {
        const uint32_t foreground = label[i] == c;
        p[i] = table[cell_of(error_of(p[i], foreground), foreground)];
    }
}

// Without foreground the extension is the largest error: the whole weight goes to one pixel.
void weigh_absent(const Problem& maps, float* buffer, float scale, int64_t c) {
    float highest = 0.0f;
    float* top = nullptr;
    for (int64_t image = 0; image < maps.images; ++image) {
        float* p = buffer + (image * maps.classes + c) * maps.pixels;
        for (int64_t i = 0; i < maps.pixels; ++i) {
            if (p[i] > highest) highest = p[i], top = p + i;
        }
    }
    for (int64_t image = 0; image < maps.images; ++image) std::fill_n(buffer + (image * maps.classes + c) * maps.pixels, maps.pixels, 0.0f);
    if (top != nullptr) *top = scale;
}

void weigh_class(const Problem& maps, const PixelNorms& norms, const ClassTotals& totals, int64_t group, int64_t c, ClassScratch& scratch) {
    float* buffer = maps.buffer + group * maps.group_size();
    const float scale = maps.scale[group * maps.classes + c];
    if (totals.foreground == 0) return weigh_absent(maps, buffer, scale, c);
    const auto for_images = [&](const auto& task) {
        for (int64_t image = 0; image < maps.images; ++image)
            task(norms.label + (group * maps.images + image) * maps.pixels, (image * maps.classes + c) * maps.pixels);
    };
    const float threshold = 1.0f - totals.highest;  // background below every foreground error weighs 0
    const auto own = static_cast<int32_t>(c);
    uint64_t* keys = scratch.sorter.room(maps.images * maps.pixels + 1);
    scratch.sorter.start_counting();
    int64_t count = 0;
    if (scale == 0.0f || totals.nan) {
        for_images([&](const int32_t*, int64_t offset) { std::fill_n(buffer + offset, maps.pixels, 0.0f); });
    } else if (units_of(threshold) >= kCells) {
        for_images([&](const int32_t* label, int64_t offset) {
            count += collect(buffer + offset, label, maps.pixels, own, threshold, offset, scratch.sorter, keys + count);
            std::fill_n(buffer + offset, maps.pixels, 0.0f);
        });
    } else {
        std::memset(scratch.cells, 0, sizeof scratch.cells);
        for_images([&](const int32_t* label, int64_t offset) {
            count += collect_and_count(buffer + offset, label, maps.pixels, own, offset, scratch.sorter, keys + count, scratch.cells);
        });
        Ahead ahead;
        for (int64_t i = 0; i < count; ++i) ahead.foreground += key_foreground(keys[i]);
        ahead.background = count - ahead.foreground;
        fill_table(scratch, totals.foreground, ahead, scale);
        for_images([&](const int32_t* label, int64_t offset) { look_up(buffer + offset, label, maps.pixels, own, scratch.table); });
    }
    const uint32_t* sorted = scratch.sorter.sort<uint32_t>(count, key_error);
    const float slopes[2] = {scale, -scale};
    weigh_sorted(sorted, count, totals.foreground, buffer, [=](uint32_t key, double weight) {
        buffer[key_index(key)] = static_cast<float>(weight) * slopes[key_foreground(key)];
    });
}

// ---- pass 3: through the softmax ------------------------------------------------------------------------------------

// Exponentials are recomputed: cheaper than a second buffer of the size of the logits. Returns the tile's part of the value.
EVALGRAD_SIMD double write_gradient(const Problem& maps, const Tile& tile, const PixelNorms& norms, float* __restrict p) {
    const float* x = maps.x + tile.map;
    const float *peak = norms.peak + tile.pixel, *inverse = norms.inverse + tile.pixel;
    for (int64_t c = 0; c < maps.classes; ++c)
        for (int64_t j = 0; j < tile.width; ++j) p[c * kTile + j] = exp_shifted(x[c * maps.pixels + j], peak[j]) * inverse[j];
    return softmax_backward_tile(p, maps.classes, tile.width, maps.label + tile.pixel, maps.buffer + tile.map, maps.pixels);
}

}  // namespace
}  // namespace evalgrad

// value (groups) = sum over classes of scale x loss; gradient (groups, images, classes, pixels) = d value / d x.
EVALGRAD_API void evalgrad_lovasz_softmax(const float* x, const int64_t* label, const float* scale, int64_t groups, int64_t images,
                                          int64_t classes, int64_t pixels, float* value, float* gradient, int64_t threads) {
    using namespace evalgrad;
    const Problem maps{{x, label, groups, images, classes, pixels}, scale, gradient};
    const int64_t tiles = groups * maps.tiles_per_group();
    const int workers = useful_workers(groups * maps.group_size(), static_cast<int>(threads));
    advise_huge_pages(gradient, groups * maps.group_size() * sizeof(float));
    PixelNorms norms(groups * images * pixels);

    std::vector<std::vector<ClassTotals>> totals(workers, std::vector<ClassTotals>(groups * classes));
    parallel_tiles(maps, 0, tiles, workers, [&](const Tile& tile, int worker) {
        write_probabilities(maps, tile, norms);
        total_tile(maps, tile, norms, totals[worker].data());
    });
    for (int worker = 1; worker < workers; ++worker) merge(totals[0], totals[worker]);

    std::vector<ClassScratch> scratch(workers);
    parallel_tasks(groups * classes, workers, [&](int64_t i, int worker) {
        weigh_class(maps, norms, totals[0][i], i / classes, i % classes, scratch[worker]);
    });

    std::vector<std::vector<float>> probabilities(workers, std::vector<float>(classes * kTile));
    std::vector<double> sums(tiles);  // added in a fixed order: the same bits on any number of threads
    parallel_tiles(maps, 0, tiles, workers, [&](const Tile& tile, int worker) {
        sums[tile.index] = write_gradient(maps, tile, norms, probabilities[worker].data());
    });
    for (int64_t group = 0; group < groups; ++group) {
        const auto first = sums.begin() + group * maps.tiles_per_group();
        value[group] = static_cast<float>(std::accumulate(first, first + maps.tiles_per_group(), 0.0));
        for (int64_t c = 0; c < classes; ++c)
            if (totals[0][group * classes + c].nan) value[group] = std::numeric_limits<float>::quiet_NaN();
    }
}
