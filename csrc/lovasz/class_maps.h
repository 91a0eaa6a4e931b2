// (groups, images, classes, pixels) logits with their labels, visited a tile of neighbouring pixels
// at a time: every loop runs over contiguous memory, and a tile of all classes stays in the
// first-level cache.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "common/parallel.h"
#include "common/simd.h"

namespace evalgrad::lovasz {

constexpr int64_t kTile = 64;

struct ClassMaps {
    const float* x;
    const int64_t* label;  // (groups, images, pixels), negative = ignored
    int64_t groups, images, classes, pixels;

    int64_t tiles_per_image() const { return (pixels + kTile - 1) / kTile; }
    int64_t tiles_per_group() const { return images * tiles_per_image(); }
    int64_t group_size() const { return images * classes * pixels; }
};

struct Tile {
    int64_t index, group;
    int64_t map, pixel;  // places of its first pixel: in the logits, in the labels
    int64_t width;

    Tile(const ClassMaps& maps, int64_t i) : index(i) {
        const int64_t image = index / maps.tiles_per_image(),
                      start = index % maps.tiles_per_image() * kTile;
        group = image / maps.images;
        map = image * maps.classes * maps.pixels + start;
        pixel = image * maps.pixels + start;
        width = std::min(kTile, maps.pixels - start);
    }
};

// Calls task(tile, worker) for the tiles [begin, end), many at a time.
template <class Task>
void parallel_tiles(const ClassMaps& maps, int64_t begin, int64_t end, int workers,
                    const Task& task) {
    constexpr int64_t kBatch = 64;
    parallel_tasks((end - begin + kBatch - 1) / kBatch, workers, [&](int64_t batch, int worker) {
        const int64_t first = begin + batch * kBatch;
        for (int64_t i = first; i < std::min(end, first + kBatch); ++i) task(Tile(maps, i), worker);
    });
}

// +inf acts as the largest finite logit, which is its limit: the class takes all.
EVALGRAD_INLINE float finite(float x) { return x > FLT_MAX ? FLT_MAX : x; }
EVALGRAD_INLINE float exp_shifted(float x, float peak) { return exp_nonpositive(finite(x) - peak); }

// p = exp(x - peak) * inverse for `width` <= kTile pixels; x and p point at the first class, whose
// rows lie a stride apart.
EVALGRAD_INLINE void softmax_tile(const float* __restrict x, int64_t x_stride, int64_t classes,
                                  int64_t width, float* __restrict p, int64_t p_stride,
                                  float* __restrict peak, float* __restrict inverse) {
    float top[kTile], sum[kTile];
    for (int64_t j = 0; j < width; ++j) top[j] = -INFINITY, sum[j] = 0.0f;
    for (int64_t c = 0; c < classes; ++c)
        for (int64_t j = 0; j < width; ++j) {
            const float logit = finite(x[c * x_stride + j]);
            top[j] = logit > top[j] ? logit : top[j];
        }
    for (int64_t c = 0; c < classes; ++c)
        for (int64_t j = 0; j < width; ++j) {
            const float e = exp_shifted(x[c * x_stride + j], top[j]);
            p[c * p_stride + j] = e;
            sum[j] += e;
        }
    for (int64_t j = 0; j < width; ++j) peak[j] = top[j], inverse[j] = 1.0f / sum[j];
    for (int64_t c = 0; c < classes; ++c)
        for (int64_t j = 0; j < width; ++j) p[c * p_stride + j] *= inverse[j];
}

// Turns slopes g_c = d/dp_c, a stride apart, into d/dx_c = p_c (g_c - sum_k g_k p_k), in place; 0
// where the label is ignored. Returns the tile's part of the value, the sum of |g_c| x error:
// slopes are negative on the foreground, whose error is 1 - p_c, only. Slopes are taken relative to
// that of the likeliest class, which then has no part in the sum: where the network is sure, g_c
// and the mean agree in most digits, and their plain difference would be noise. Top: the largest
// probability, which is softmax_tile's inverse.
EVALGRAD_INLINE double softmax_backward_tile(const float* __restrict p, int64_t classes,
                                             const float* __restrict top, int64_t width,
                                             const int64_t* label, float* __restrict g,
                                             int64_t g_stride) {
    float reference[kTile] = {}, mean[kTile] = {}, value[kTile] = {};
    for (int64_t c = 0; c < classes; ++c)
        for (int64_t j = 0; j < width; ++j) {
            const float slope = g[c * g_stride + j];
            reference[j] = p[c * kTile + j] == top[j] ? slope : reference[j];
            value[j] += slope * (p[c * kTile + j] - (slope < 0.0f ? 1.0f : 0.0f));
        }
    for (int64_t c = 0; c < classes; ++c)
        for (int64_t j = 0; j < width; ++j)
            mean[j] += p[c * kTile + j] * (g[c * g_stride + j] - reference[j]);
    for (int64_t c = 0; c < classes; ++c)
        for (int64_t j = 0; j < width; ++j) {
            const float gradient =
                p[c * kTile + j] * ((g[c * g_stride + j] - reference[j]) - mean[j]);
            g[c * g_stride + j] = label[j] < 0 ? 0.0f : gradient;
        }
    double sum = 0;
    for (int64_t j = 0; j < width; ++j) sum += label[j] < 0 ? 0.0f : value[j];
    return sum;
}

}  // namespace evalgrad::lovasz
