// Lovász-Softmax without a sort: errors counted in `bins` equal bins per class, then weights looked up per bin. Two calls,
// because the counts of several ranks may be added in between.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "class_maps.h"
#include "memory.h"
#include "parallel.h"
#include "simd.h"

namespace evalgrad {
namespace {

// Background bins of a class first, then its foreground bins; `slot` is their position in (classes, 2, bins).
EVALGRAD_INLINE int32_t slot_of(float p, bool foreground, int64_t c, int32_t bins) {
    const float error = foreground ? 1.0f - p : p;
    const auto bin = static_cast<int32_t>(error * static_cast<float>(bins));
    return static_cast<int32_t>(c * 2 + foreground) * bins + (bin < bins ? bin : bins - 1);
}

// Probabilities of a tile and where each falls; ignored pixels fall on the slot behind the last.
struct TileBins {
    std::vector<float> p;
    std::vector<int32_t> slot;
    float peak[kTile], inverse[kTile];
    explicit TileBins(int64_t classes) : p(classes * kTile), slot(classes * kTile) {}
};

EVALGRAD_SIMD void bin_tile(const ClassMaps& maps, const Tile& tile, int32_t bins, TileBins& out) {
    softmax_tile(maps.x + tile.map, maps.pixels, maps.classes, tile.width, out.p.data(), kTile, out.peak, out.inverse);
    const auto behind = static_cast<int32_t>(maps.classes * 2 * bins);
    const int64_t* label = maps.label + tile.pixel;
    for (int64_t c = 0; c < maps.classes; ++c)
        for (int64_t j = 0; j < tile.width; ++j) {
            const float p = out.p[c * kTile + j];
            const int32_t slot = slot_of(p, label[j] == c, c, bins);
            out.slot[c * kTile + j] = (label[j] < 0) | (p != p) ? behind : slot;
        }
}

void count_tile(const ClassMaps& maps, const Tile& tile, const TileBins& tile_bins, uint32_t* counts) {
    for (int64_t c = 0; c < maps.classes; ++c)
        for (int64_t j = 0; j < tile.width; ++j) ++counts[tile_bins.slot[c * kTile + j]];
}

// Slopes from the table, then through the softmax. Returns the tile's part of the value.
EVALGRAD_SIMD double gradient_tile(const ClassMaps& maps, const Tile& tile, const TileBins& tile_bins, const float* table, float* gradient) {
    float value[kTile] = {};
    const int64_t* label = maps.label + tile.pixel;
    for (int64_t c = 0; c < maps.classes; ++c)
        for (int64_t j = 0; j < tile.width; ++j) {
            const float p = tile_bins.p[c * kTile + j], g = table[tile_bins.slot[c * kTile + j]];
            gradient[c * maps.pixels + j] = g;
            value[j] += g < 0.0f ? (p - 1.0f) * g : p * g;  // slopes are negative on the foreground only
        }
    softmax_backward_tile(tile_bins.p.data(), maps.classes, tile.width, label, gradient, maps.pixels);
    double sum = 0;
    for (int64_t j = 0; j < tile.width; ++j) sum += label[j] < 0 ? 0.0f : value[j];
    return sum;
}

}  // namespace
}  // namespace evalgrad

// counts: (groups, classes, 2, bins), background then foreground.
EVALGRAD_API void evalgrad_lovasz_bin_counts(const float* x, const int64_t* label, int64_t groups, int64_t images, int64_t classes,
                                             int64_t pixels, int64_t bins, int64_t* counts, int64_t threads) {
    using namespace evalgrad;
    const ClassMaps maps{x, label, groups, images, classes, pixels};
    const int64_t slots = classes * 2 * bins;
    const int workers = useful_workers(maps.group_size(), static_cast<int>(threads));
    std::vector<TileBins> tile_bins(workers, TileBins(classes));
    for (int64_t group = 0; group < groups; ++group) {
        std::vector<std::vector<uint32_t>> counted(workers, std::vector<uint32_t>(slots + 1));
        const int64_t first = group * maps.tiles_per_group();
        parallel_tiles(maps, first, first + maps.tiles_per_group(), workers, [&](const Tile& tile, int worker) {
            bin_tile(maps, tile, static_cast<int32_t>(bins), tile_bins[worker]);
            count_tile(maps, tile, tile_bins[worker], counted[worker].data());
        });
        std::fill_n(counts + group * slots, slots, int64_t{0});
        for (const auto& own : counted)
            for (int64_t slot = 0; slot < slots; ++slot) counts[group * slots + slot] += own[slot];
    }
}

// table: (groups, classes, 2, bins), the slope of the value in the probability of a pixel of that bin.
EVALGRAD_API void evalgrad_lovasz_bin_gradient(const float* x, const int64_t* label, const float* table, int64_t groups, int64_t images,
                                               int64_t classes, int64_t pixels, int64_t bins, float* value, float* gradient, int64_t threads) {
    using namespace evalgrad;
    const ClassMaps maps{x, label, groups, images, classes, pixels};
    const int64_t slots = classes * 2 * bins;
    const int workers = useful_workers(maps.group_size(), static_cast<int>(threads));
    advise_huge_pages(gradient, groups * maps.group_size() * sizeof(float));
    std::vector<TileBins> tile_bins(workers, TileBins(classes));
    std::vector<float> slopes(slots + 1);
    for (int64_t group = 0; group < groups; ++group) {
        std::copy_n(table + group * slots, slots, slopes.begin());
        slopes[slots] = 0.0f;
        std::vector<double> sums(maps.tiles_per_group());  // added in a fixed order: the same bits on any number of threads
        const int64_t first = group * maps.tiles_per_group();
        parallel_tiles(maps, first, first + maps.tiles_per_group(), workers, [&](const Tile& tile, int worker) {
            bin_tile(maps, tile, static_cast<int32_t>(bins), tile_bins[worker]);
            sums[tile.index - first] = gradient_tile(maps, tile, tile_bins[worker], slopes.data(), gradient + tile.map);
        });
        value[group] = static_cast<float>(std::accumulate(sums.begin(), sums.end(), 0.0));
    }
}
