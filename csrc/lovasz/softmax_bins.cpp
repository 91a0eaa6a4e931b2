// Lovász-Softmax without a sort: errors counted in `bins` equal bins per class, then weights looked
// up per bin. Two calls, because the counts of several ranks may be added in between.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/memory.h"
#include "common/parallel.h"
#include "common/simd.h"
#include "lovasz/class_maps.h"
#include "lovasz/kernels.h"

namespace evalgrad::lovasz {
namespace {

// Entries of one class: background bins, then foreground bins, then a cache line of nothing.
// Without it the same bin of all classes would fall on the same few lines of the first-level cache.
int64_t class_stride(int64_t bins) { return 2 * bins + 16; }

// Probabilities of a tile and the slot of each among the entries of all classes; what does not
// count, and NaN, falls on the slot behind the last.
struct TileBins {
    Scratch<float> p_memory;
    Scratch<int32_t> slot_memory;
    float* p;
    int32_t* slot;
    float peak[kTile], inverse[kTile];

    explicit TileBins(int64_t classes)
        : p(p_memory.reserve(classes * kTile)), slot(slot_memory.reserve(classes * kTile)) {}
};

EVALGRAD_SIMD void bin_tile(const ClassMaps& maps, const Tile& tile, int32_t bins, TileBins& out) {
    softmax_tile(maps.x + tile.map, maps.pixels, maps.classes, tile.width, out.p, kTile, out.peak,
                 out.inverse);
    const auto stride = static_cast<int32_t>(class_stride(bins)),
               behind = static_cast<int32_t>(maps.classes) * stride;
    const float factor = static_cast<float>(bins);
    int32_t label[kTile];
    for (int64_t j = 0; j < tile.width; ++j)
        label[j] = static_cast<int32_t>(maps.label[tile.pixel + j]);
    for (int64_t c = 0; c < maps.classes; ++c) {
        const float* __restrict p = out.p + c * kTile;
        int32_t* __restrict slot = out.slot + c * kTile;
        const auto own = static_cast<int32_t>(c), background = own * stride;
        for (int64_t j = 0; j < tile.width; ++j) {
            const bool foreground = label[j] == own;
            const float error = foreground ? 1.0f - p[j] : p[j];
            const auto bin = static_cast<int32_t>(error * factor);
            const int32_t inside =
                background + (foreground ? bins : 0) + (bin < bins ? bin : bins - 1);
            const bool nothing = (label[j] < 0) | (p[j] != p[j]);
            slot[j] = nothing ? behind : inside;
        }
    }
}

// Pixel by pixel, so that neighbouring increments go to different classes and need not wait for
// each other.
void count_tile(const ClassMaps& maps, const Tile& tile, const TileBins& tile_bins,
                uint32_t* counts) {
    for (int64_t j = 0; j < tile.width; ++j)
        for (int64_t c = 0; c < maps.classes; ++c) ++counts[tile_bins.slot[c * kTile + j]];
}

// Slopes from the table, then through the softmax. Returns the tile's part of the value.
EVALGRAD_SIMD double gradient_tile(const ClassMaps& maps, const Tile& tile,
                                   const TileBins& tile_bins, const float* table, float* gradient) {
    for (int64_t c = 0; c < maps.classes; ++c) {
        const int32_t* __restrict slot = tile_bins.slot + c * kTile;
        float* __restrict slope = gradient + c * maps.pixels;
        for (int64_t j = 0; j < tile.width; ++j) slope[j] = table[slot[j]];
    }
    return softmax_backward_tile(tile_bins.p, maps.classes, tile.width, maps.label + tile.pixel,
                                 gradient, maps.pixels);
}

}  // namespace

void softmax_bin_counts(const float* x, const int64_t* label, int64_t groups, int64_t images,
                        int64_t classes, int64_t pixels, int64_t bins, int64_t* counts,
                        int64_t threads) {
    const ClassMaps maps{x, label, groups, images, classes, pixels};
    const int64_t stride = class_stride(bins);
    const int workers = useful_workers(maps.group_size(), static_cast<int>(threads));
    std::vector<TileBins> tile_bins;
    for (int worker = 0; worker < workers; ++worker) tile_bins.emplace_back(classes);
    for (int64_t group = 0; group < groups; ++group) {
        std::vector<std::vector<uint32_t>> counted(workers,
                                                   std::vector<uint32_t>(classes * stride + 1));
        const int64_t first = group * maps.tiles_per_group();
        parallel_tiles(maps, first, first + maps.tiles_per_group(), workers,
                       [&](const Tile& tile, int worker) {
                           bin_tile(maps, tile, static_cast<int32_t>(bins), tile_bins[worker]);
                           count_tile(maps, tile, tile_bins[worker], counted[worker].data());
                       });
        for (int64_t c = 0; c < classes; ++c) {
            int64_t* row = counts + (group * classes + c) * 2 * bins;
            std::fill_n(row, 2 * bins, int64_t{0});
            for (const auto& own : counted)
                for (int64_t i = 0; i < 2 * bins; ++i) row[i] += own[c * stride + i];
        }
    }
}

void softmax_bin_gradient(const float* x, const int64_t* label, const float* table, int64_t groups,
                          int64_t images, int64_t classes, int64_t pixels, int64_t bins,
                          float* value, float* gradient, int64_t threads) {
    const ClassMaps maps{x, label, groups, images, classes, pixels};
    const int64_t stride = class_stride(bins);
    const int workers = useful_workers(maps.group_size(), static_cast<int>(threads));
    advise_huge_pages(gradient, groups * maps.group_size() * sizeof(float));
    std::vector<TileBins> tile_bins;
    for (int worker = 0; worker < workers; ++worker) tile_bins.emplace_back(classes);
    std::vector<float> slopes(classes * stride + 1);  // the entry behind the last stays 0
    for (int64_t group = 0; group < groups; ++group) {
        for (int64_t c = 0; c < classes; ++c)
            std::copy_n(table + (group * classes + c) * 2 * bins, 2 * bins, &slopes[c * stride]);
        std::vector<double> sums(maps.tiles_per_group());  // added in a fixed order: the same bits
                                                           // on any number of threads
        const int64_t first = group * maps.tiles_per_group();
        parallel_tiles(maps, first, first + maps.tiles_per_group(), workers,
                       [&](const Tile& tile, int worker) {
                           bin_tile(maps, tile, static_cast<int32_t>(bins), tile_bins[worker]);
                           sums[tile.index - first] = gradient_tile(
                               maps, tile, tile_bins[worker], slopes.data(), gradient + tile.map);
                       });
        value[group] = static_cast<float>(std::accumulate(sums.begin(), sums.end(), 0.0));
    }
}

}  // namespace evalgrad::lovasz
