// The exact mode's histogram: bins as fine as it takes. histogram.h says why that is exact enough;
// here is how many bins to begin with, and what tells that they were too few.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/simd.h"
#include "lovasz/histogram.h"
#include "lovasz/weights.h"

namespace evalgrad::lovasz {

// Fewer pixels are sorted in less time than bins take to clear and to fill; with less foreground,
// ties would show.
constexpr int64_t kFinePixels = int64_t{1} << 16, kFineForeground = int64_t{1} << 12;
// Fewer bins take no less time to visit; more leave the caches, and a sort is better.
constexpr int64_t kFewestBins = int64_t{1} << 17, kMostBins = int64_t{1} << 20;

// Which share of the pixels has an error of at least `lowest`, from one block of 17 (odd: not the
// same columns of every image).
template <class Pixels>
EVALGRAD_SIMD static double share_from(const Pixels& pixels, float lowest) {
    Block block;
    int64_t seen = 0, ranked = 0;
    for (int64_t start = 0; start < pixels.n; start += 17 * kBlock) {
        const auto width = static_cast<int32_t>(std::min(kBlock, pixels.n - start));
        pixels.read(start, width, block);
        int32_t own = 0;
        for (int32_t j = 0; j < width; ++j) own += block.errors[j] >= lowest;
        seen += width, ranked += own;
    }
    return static_cast<double>(ranked) / static_cast<double>(seen);
}

// How many bins to begin with for `ranked` pixels: the ranks of a bin are off by about the root of
// the pixels in it. `bins_needed` tells how good that was.
inline int64_t first_bins(int64_t ranked, int64_t foreground_total) {
    const double ratio = 3e4 / static_cast<double>(std::max<int64_t>(foreground_total, 1)),
                 fine = static_cast<double>(ranked) * ratio * ratio;
    return std::max(
        {kFewestBins, static_cast<int64_t>(std::min<double>(fine, kMostBins)), ranked / 2});
}

// With how many bins the slopes would be within kClose of those of a sort, relative and as a norm;
// no more than there are if they are that close already. From what is expected of one in 16 of the
// bins: of g items in any order the number ahead of another has the variance (g^2 + 2g)/12, of one
// of themselves (g^2 - 1)/12. One more of the background moves, with the Jaccard index, a weight w
// = 1/(P+b) of the foreground by w^2 and one v of the background by 2vw; one more of the foreground
// moves v by w^2.
template <class Metric, class E>
EVALGRAD_SIMD static double bins_needed(const Metric& metric, const Histogram<E>& h, float slope) {
    constexpr double kClose = 3e-5;
    EightFloats squares{}, differences{};
    for (int64_t bin = 0; bin < h.bins; bin += 16 * 8) {
        EightInts back, front, sums;
        EightFloats v, w;
        read_counts(h.counts + bin, 0, back, sums);
        read_counts(h.counts + h.bins + bin, 0, front, sums);
        std::memcpy(&v, h.slopes + bin, sizeof v);
        std::memcpy(&w, h.slopes + h.bins + bin, sizeof w);
        const EightFloats g = __builtin_convertvector(back, EightFloats),
                          f = __builtin_convertvector(front, EightFloats);
        v /= slope, w /= -slope;
        squares += f * w * w + g * v * v;
        metric.differences(f, g, w, v, differences);
    }
    double square = 0, difference = 0;
    for (int k = 0; k < 8; ++k) square += squares[k], difference += differences[k];
    // The difference, a square, falls with the number of bins, and faster where they are full.
    return static_cast<double>(h.bins) * difference /
           (12 * kClose * kClose * std::max(square, 1e-30));
}

// Counts in more and more bins until ties do not show: `edges(wanted)` has at least so many,
// `count_all` counts in them. False where a sort is better.
template <class Metric, class E, class Make, class CountAll>
bool count_finely(const Metric& metric, Histogram<E>& h, int64_t first, int64_t foreground_total,
                  float slope, Ahead& ahead, const Make& edges, const CountAll& count_all) {
    const double most = static_cast<double>(std::max(kMostBins, first));
    for (double wanted = static_cast<double>(first); wanted <= most;) {
        h.start(edges(wanted));
        count_all();
        ahead = {};
        if (!fill_slopes(metric, h, foreground_total, slope, ahead)) return false;
        const double needed = bins_needed(metric, h, slope);
        if (h.edges.finest || needed <= static_cast<double>(h.bins)) return true;
        wanted = 1.125 * needed;  // some to spare: once more is enough
    }
    return false;
}

}  // namespace evalgrad::lovasz
