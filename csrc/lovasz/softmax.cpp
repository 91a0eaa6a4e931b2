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
#include "lovasz/class_maps.h"
#include "lovasz/kernels.h"
#include "lovasz/softmax_errors.h"
#include "lovasz/softmax_slots.h"
#include "lovasz/weights.h"

namespace evalgrad::lovasz {
namespace {

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
// --------------------------------------------------------------------------

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

// ---- pass 2: weights of one class of one group in place of its probabilities
// ----------------------------------------

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
    for (int64_t image = 0; image < maps.images; ++image)
        std::fill_n(buffer + (image * maps.classes + c) * maps.pixels, maps.pixels, 0.0f);
    if (top != nullptr) *top = scale;
}

// Weights in place of probabilities without a sort. False, and nothing written, where a sort is
// better: for few pixels, little foreground, few errors to bring into order, or many that are equal
// or too close for the slots.
template <class ForImages>
bool weigh_by_slots(const Problem& maps, float* buffer, int64_t foreground_total, int32_t c,
                    float threshold, float scale, ClassScratch& scratch,
                    const ForImages& for_images) {
    const int64_t pixels = maps.images * maps.pixels;
    if (pixels < kSlotPixels || foreground_total < kSlotForeground) return false;
    const bool tiny = units_of(threshold) < kCells;
    const float lowest = tiny ? kCells / kUnits : threshold;
    ErrorSample sample;
    for_images([&](const int32_t* label, int64_t offset) {
        sample_errors(buffer + offset, label, maps.pixels, c, lowest, sample);
    });
    if (!sample.many()) return false;
    // Fewer, rounded up, than for a hinge: slots that are finer for smaller errors are filled more
    // evenly.
    const int64_t first = first_slots(sample.ranked * pixels / sample.seen, foreground_total);
    double needed = static_cast<double>(std::max(kFewestSlots / 2, first / 4));
    const double most = std::max<double>(kMostSlots, needed);
    while (needed <= most) {
        const ErrorSlots slots(lowest, needed);
        scratch.slots.clear(int64_t{slots.last} + 1);
        if (tiny) std::memset(scratch.cells, 0, sizeof scratch.cells);
        int64_t ranked = 0;
        for_images([&](const int32_t* label, int64_t offset) {
            ranked += count_in_slots(buffer + offset, label, maps.pixels, c, slots, scratch.slots,
                                     tiny ? scratch.cells : nullptr);
        });
        const auto ahead = fill_slopes(scratch.slots, ranked, foreground_total, scale);
        if (!ahead) return false;
        needed = slots_needed(scratch.slots, scale);
        if (needed > static_cast<double>(scratch.slots.slots) && slots.shift > 0)
            continue;  // of single values, there are no more
        if (tiny) fill_table(scratch, foreground_total, *ahead, scale);
        for_images([&](const int32_t* label, int64_t offset) {
            look_up_in_slots(buffer + offset, label, maps.pixels, c, slots, scratch.slots,
                             tiny ? scratch.table : nullptr);
        });
        return true;
    }
    return false;
}

void weigh_class(const Problem& maps, const PixelNorms& norms, const ClassTotals& totals,
                 int64_t group, int64_t c, ClassScratch& scratch) {
    float* buffer = maps.buffer + group * maps.group_size();
    const float scale = maps.scale[group * maps.classes + c];
    if (totals.foreground == 0) return weigh_absent(maps, buffer, scale, c);
    const auto for_images = [&](const auto& task) {
        for (int64_t image = 0; image < maps.images; ++image)
            task(norms.label + (group * maps.images + image) * maps.pixels,
                 (image * maps.classes + c) * maps.pixels);
    };
    const float threshold =
        1.0f - totals.highest;  // background below every foreground error weighs 0
    const auto own = static_cast<int32_t>(c);
    const bool counts = scale != 0.0f && !totals.nan;
    if (counts &&
        weigh_by_slots(maps, buffer, totals.foreground, own, threshold, scale, scratch, for_images))
        return;
    uint64_t* keys = scratch.sorter.room(maps.images * maps.pixels + 1);
    scratch.sorter.start_counting();
    int64_t count = 0;
    if (!counts) {
        for_images([&](const int32_t*, int64_t offset) {
            std::fill_n(buffer + offset, maps.pixels, 0.0f);
        });
    } else if (units_of(threshold) >= kCells) {
        for_images([&](const int32_t* label, int64_t offset) {
            count += collect(buffer + offset, label, maps.pixels, own, threshold, offset,
                             scratch.sorter, keys + count);
            std::fill_n(buffer + offset, maps.pixels, 0.0f);
        });
    } else {
        std::memset(scratch.cells, 0, sizeof scratch.cells);
        for_images([&](const int32_t* label, int64_t offset) {
            count += collect_and_count(buffer + offset, label, maps.pixels, own, offset,
                                       scratch.sorter, keys + count, scratch.cells);
        });
        Ahead ahead;
        for (int64_t i = 0; i < count; ++i) ahead.foreground += key_foreground(keys[i]);
        ahead.background = count - ahead.foreground;
        fill_table(scratch, totals.foreground, ahead, scale);
        for_images([&](const int32_t* label, int64_t offset) {
            look_up(buffer + offset, label, maps.pixels, own, scratch.table);
        });
    }
    const uint32_t* sorted = scratch.sorter.sort<uint32_t>(count, key_error);
    const float slopes[2] = {scale, -scale};
    weigh_sorted(sorted, count, totals.foreground, buffer, [=](uint32_t key, double weight) {
        buffer[key_index(key)] = static_cast<float>(weight) * slopes[key_foreground(key)];
    });
}

// ---- pass 3: through the softmax
// ------------------------------------------------------------------------------------

// Exponentials are recomputed: cheaper than a second buffer of the size of the logits. Returns the
// tile's part of the value.
EVALGRAD_SIMD double write_gradient(const Problem& maps, const Tile& tile, const PixelNorms& norms,
                                    float* __restrict p) {
    const float* x = maps.x + tile.map;
    const float *peak = norms.peak + tile.pixel, *inverse = norms.inverse + tile.pixel;
    for (int64_t c = 0; c < maps.classes; ++c)
        for (int64_t j = 0; j < tile.width; ++j)
            p[c * kTile + j] = exp_shifted(x[c * maps.pixels + j], peak[j]) * inverse[j];
    return softmax_backward_tile(p, maps.classes, tile.width, maps.label + tile.pixel,
                                 maps.buffer + tile.map, maps.pixels);
}

}  // namespace

void softmax(const float* x, const int64_t* label, const float* scale, int64_t groups,
             int64_t images, int64_t classes, int64_t pixels, float* value, float* gradient,
             int64_t threads) {
    const Problem maps{{x, label, groups, images, classes, pixels}, scale, gradient};
    const int64_t tiles = groups * maps.tiles_per_group();
    const int workers = useful_workers(groups * maps.group_size(), static_cast<int>(threads));
    advise_huge_pages(gradient, groups * maps.group_size() * sizeof(float));
    PixelNorms norms(groups * images * pixels);

    std::vector<std::vector<ClassTotals>> totals(workers,
                                                 std::vector<ClassTotals>(groups * classes));
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
    std::vector<double> sums(
        tiles);  // added in a fixed order: the same bits on any number of threads
    parallel_tiles(maps, 0, tiles, workers, [&](const Tile& tile, int worker) {
        sums[tile.index] = write_gradient(maps, tile, norms, probabilities[worker].data());
    });
    for (int64_t group = 0; group < groups; ++group) {
        const auto first = sums.begin() + group * maps.tiles_per_group();
        value[group] =
            static_cast<float>(std::accumulate(first, first + maps.tiles_per_group(), 0.0));
        for (int64_t c = 0; c < classes; ++c)
            if (totals[0][group * classes + c].nan)
                value[group] = std::numeric_limits<float>::quiet_NaN();
    }
}

}  // namespace evalgrad::lovasz
