// The one histogram of the Lovász losses: count -> slopes -> look up. A sort of many pixels
// scatters each of them several times over the memory. Here the pixels are read twice, in the order
// they have, and only bins are visited at random:
//
//   count        the errors of a class, or of a row, in bins, background and foreground apart;
//   fill_slopes  walks the bins from the largest errors down. It then knows how many items of
//                either kind are ahead of a bin, and hence what a pixel of it weighs;
//   look_up      finds the slope of each pixel in its bin.
//
// Bins are numbered from the largest errors down. The errors of one bin count as tied. How bins
// divide the errors and how wide their counters are is the policy (edges.h):
//
//   EqualBins<uint32_t>  bins of one width: `bins=` of both losses, and the smallest errors of a
//                        softmax, of which a trained network has heaps;
//   EqualBins<uint8_t>   the same, so many that they hold a few pixels each: the exact hinge;
//   OctaveBins           of equal width within an octave, as many: the exact softmax, whose errors
//                        spread over many octaves.
//
// A counter of one byte may overflow, where many errors are equal. Then the sum of all counters is
// not the number of pixels counted; fill_slopes says so, and the caller sorts.
//
// Why ties are exact enough. Each item of a bin is given the mean of its weights in "foreground
// first" and "background first" (docs/maths.md). With f foreground and g background items in a bin
// and a, b of them ahead of it, and the Jaccard index,
//
//     foreground  1/2 (1/(P+b) + 1/(P+b+g))        background  (P - a - f/2) / ((P+b) (P+b+g))
//
// f times the one plus g times the other is exactly the step of the loss across the bin. So ties
// move weight within a bin only, and as all steps add up to at most 1:
//
//   The value is within the width of a bin of that of a sort, whatever the data. With `bins=K` of
//   errors up to 1 that is 1/K. In the exact mode it is 2^-22 for errors of a softmax that a sort
//   or the smallest bins compare, about what float32 resolves of them. In fine bins the
//   differences have both signs and average: tests hold 5e-7 of the value.
//
//   The gradient has no such bound, because a weight depends on the ranks ahead, and a rank that
//   is off by one moves it by about 1/P of itself. With `bins=` this is accepted, and documented:
//   some percent for a few dozen pixels, 1e-4 for many. The exact mode wants 3e-5 of the
//   gradient's norm. It counts only where there are 2^16 pixels and 2^12 of foreground or more,
//   and `bins_needed` (fine_bins.h) then computes from the counts what the ties are expected to
//   cost. If that is too much, it counts once more in as many bins as are needed, and if those do
//   not fit in the caches, it sorts. The estimate takes the order within a bin for random. It holds
//   where errors within a bin do not depend on the kind of pixel, which is so for bins as narrow as
//   these; the tests (test_lovasz_many_pixels.py) hold 3.5e-5 over heaps, ramps, few and many of
//   foreground.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/memory.h"
#include "common/simd.h"
#include "common/sort.h"
#include "lovasz/edges.h"
#include "lovasz/weights.h"

namespace evalgrad::lovasz {

constexpr int64_t kBlock = 256;  // pixels at a time

// Some pixels of one row, all numbers of one width: the compiler's vectors need that.
struct Block {
    float errors[kBlock];
    int32_t foreground[kBlock];  // 0 or -1: no bits or all
};

// ---- the memory

// A worker's bins, reused from row to row. A pixel has a place among them: the number of its bin,
// `bins` more for foreground; what is not held one of kBlock places behind those, by its own in its
// block, so that their increments do not wait for each other.
template <class E>
struct Histogram {
    using Count = typename E::Count;
    // Neighbouring pixels are often of one bin where bins are wide: two sets of counters, so that
    // their increments need not wait either.
    static constexpr int kSets = sizeof(Count) == 1 ? 1 : 2;
    E edges;
    int64_t bins;         // a multiple of 8
    int64_t counted = 0;  // pixels
    int64_t next_set;     // where it begins; 0 if there is one only
    Count* counts;
    float* slopes;

    int64_t places() const { return 2 * bins + kBlock; }
    void start(const E& chosen, int sets = kSets) {
        edges = chosen, counted = 0;
        bins = (edges.bins() + 7) / 8 * 8;
        next_set = sets == 1 ? 0 : places();
        counts = count_memory.reserve(sets * places());
        slopes = slope_memory.reserve(places());
        std::fill_n(counts, sets * places(), Count{0});
        std::fill_n(slopes + 2 * bins, kBlock, 0.0f);
    }

private:
    Scratch<Count> count_memory;
    Scratch<float> slope_memory;
};

// ---- count

// Returns how many pixels are held.
template <class E>
EVALGRAD_INLINE int32_t find_places(const Block& block, int32_t width, const Histogram<E>& h,
                                    uint32_t* places) {
    const E edges = h.edges;
    const auto bins = static_cast<uint32_t>(h.bins);
    int32_t held = 0;
    for (int32_t j = 0; j < width; ++j) {
        const bool holds = edges.holds(block.errors[j]);
        const uint32_t shift = static_cast<uint32_t>(block.foreground[j]) & bins,
                       place = edges.bin(block.errors[j]) + shift;
        places[j] = holds ? place : 2 * bins + static_cast<uint32_t>(j);
        held += holds;
    }
    return held;
}

template <class E>
EVALGRAD_INLINE void count_block(const Block& block, int32_t width, Histogram<E>& h) {
    uint32_t places[kBlock];
    const int32_t held = find_places(block, width, h, places);
    h.counted += held;
    if (held == 0) return;
    typename E::Count* __restrict counts = h.counts;
    const int64_t set = Histogram<E>::kSets == 1 ? 0 : h.next_set;
    int32_t j = 0;
    for (; j + 4 <= width; j += 4)
        for (int32_t k = 0; k < 4; ++k) ++counts[(k & 1) * set + places[j + k]];
    for (; j < width; ++j) ++counts[places[j]];
}

// Pixels: read(start, width, block), and how many, n. An error is counted in the histograms that
// hold it.
template <class Pixels, class... E>
EVALGRAD_SIMD static void count(const Pixels& pixels, Histogram<E>&... histograms) {
    Block block;
    for (int64_t start = 0; start < pixels.n; start += kBlock) {
        const auto width = static_cast<int32_t>(std::min(kBlock, pixels.n - start));
        pixels.read(start, width, block);
        (count_block(block, width, histograms), ...);
    }
}

// ---- slopes

// Eight counts, and the sums of each and those before it. By reference: passed by value, vectors
// wider than the baseline's registers depend on the instruction set.
EVALGRAD_INLINE bool read_counts(const uint8_t* counts, int64_t, EightInts& own, EightInts& sums) {
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first is the lowest byte");
    uint64_t bytes;
    std::memcpy(&bytes, counts, sizeof bytes);
    const uint64_t added = bytes * 0x0101010101010101u;  // may overflow, which the total shows
    uint8_t each[8], each_sum[8];
    std::memcpy(each, &bytes, sizeof each), std::memcpy(each_sum, &added, sizeof each_sum);
    int32_t wide[8], wide_sums[8];
    for (int k = 0; k < 8; ++k) wide[k] = each[k], wide_sums[k] = each_sum[k];
    std::memcpy(&own, wide, sizeof own), std::memcpy(&sums, wide_sums, sizeof sums);
    return true;
}
EVALGRAD_INLINE bool read_counts(const uint32_t* counts, int64_t set, EightInts& own,
                                 EightInts& sums) {
    std::memcpy(&own, counts, sizeof own);
    if (set != 0) {
        EightInts other;
        std::memcpy(&other, counts + set, sizeof other);
        own += other;
    }
    int32_t sum = 0, any = 0;
    for (int k = 0; k < 8; ++k) any |= own[k], sums[k] = sum += own[k];
    return any != 0;
}

// Slope x weight of the pixels of each bin: positive on the background, negative on the foreground.
// `ahead` moves past them all. False if a counter has overflowed. Empty bins may be left without:
// nobody looks them up. P must be positive.
template <class Metric, class E>
EVALGRAD_SIMD static bool fill_slopes(const Metric& metric, Histogram<E>& h,
                                      int64_t foreground_total, float slope, Ahead& ahead) {
    const typename E::Count *back_counts = h.counts, *front_counts = h.counts + h.bins;
    float* __restrict back_slopes = h.slopes, * __restrict front_slopes = h.slopes + h.bins;
    const auto total = static_cast<int32_t>(foreground_total);
    // P + b and P - a, ahead of the next bin
    auto size = static_cast<int32_t>(foreground_total + ahead.background),
         rest = static_cast<int32_t>(foreground_total - ahead.foreground);
    const int32_t first_size = size, first_rest = rest;
    for (int64_t bin = 0, end = h.bins, set = h.next_set; bin < end; bin += 8) {
        EightBins bins;
        EightInts back_sums, front_sums;
        const bool any_back = read_counts(back_counts + bin, set, bins.back, back_sums),
                   any_front = read_counts(front_counts + bin, set, bins.front, front_sums);
        if (!(any_back | any_front)) continue;
        bins.left = rest - front_sums, bins.size = size + back_sums;
        EightFloats of_front, of_back;
        metric.tied(bins, total, of_front, of_back);
        of_front *= -slope, of_back *= slope;
        std::memcpy(back_slopes + bin, &of_back, sizeof of_back);
        std::memcpy(front_slopes + bin, &of_front, sizeof of_front);
        size += back_sums[7], rest -= front_sums[7];
    }
    ahead.background += size - first_size, ahead.foreground += first_rest - rest;
    return int64_t{size} - first_size + first_rest - rest == h.counted;
}

// Without foreground the extension is the largest error: all the weight on the topmost bin.
template <class E>
void fill_without_foreground(Histogram<E>& h, float slope) {
    std::fill_n(h.slopes, h.bins, 0.0f);
    for (int64_t bin = 0; bin < h.bins; ++bin) {
        const int64_t tied = int64_t{h.counts[bin]} + h.counts[h.next_set + bin];
        if (tied == 0) continue;
        h.slopes[bin] = slope / static_cast<float>(tied);
        return;
    }
}

// ---- look up

template <class E, class... More>
EVALGRAD_INLINE void find_slopes(const Block& block, int32_t width, float* slopes,
                                 const Histogram<E>& h, const More&... more) {
    uint32_t places[kBlock];
    if (find_places(block, width, h, places) == 0)
        std::fill_n(slopes, width, 0.0f);
    else {
        int32_t j = 0;
        const float* __restrict table = h.slopes;
        for (; j + 4 <= width; j += 4)
            for (int32_t k = 0; k < 4; ++k) slopes[j + k] = table[places[j + k]];
        for (; j < width; ++j) slopes[j] = table[places[j]];
    }
    if constexpr (sizeof...(more) > 0) {
        float others[kBlock];
        find_slopes(block, width, others, more...);
        for (int32_t j = 0; j < width; ++j) slopes[j] += others[j];
    }
}

// Writes the slopes, 0 for what no histogram holds; `out` may be where the pixels are read from.
// Returns the value, the sum of error x |slope|.
template <class Pixels, class... E>
EVALGRAD_SIMD static double look_up(const Pixels& pixels, float* out,
                                    const Histogram<E>&... histograms) {
    constexpr int32_t kLanes = 16;  // sums that do not wait for each other
    double lanes[kLanes] = {};
    Block block;
    for (int64_t start = 0; start < pixels.n; start += kBlock) {
        const auto width = static_cast<int32_t>(std::min(kBlock, pixels.n - start));
        float sums[kLanes] = {}, *slopes = out + start;
        pixels.read(start, width, block);
        find_slopes(block, width, slopes, histograms...);
        int32_t j = 0;
        for (; j + kLanes <= width; j += kLanes)
            for (int32_t k = 0; k < kLanes; ++k)
                sums[k] += block.errors[j + k] * std::fabs(slopes[j + k]);
        for (; j < width; ++j) sums[0] += block.errors[j] * std::fabs(slopes[j]);
        for (int32_t k = 0; k < kLanes; ++k) lanes[k] += sums[k];
    }
    double total = 0;
    for (const double lane : lanes) total += lane;
    return total;
}

// ---- keys of some pixels instead of all: their order is the number of their bin

template <class E>
EVALGRAD_INLINE int64_t key_place(const Histogram<E>& h, uint64_t key) {
    return int64_t{key_order(key)} + (key_foreground(key) ? h.bins : 0);
}

template <class E>
void count_keys(const uint64_t* keys, int64_t n, Histogram<E>& h) {
    h.counted += n;
    for (int64_t i = 0; i < n; ++i) ++h.counts[key_place(h, keys[i])];
}

template <class E>
void look_up_keys(const uint64_t* keys, int64_t n, const Histogram<E>& h, float* out) {
    for (int64_t i = 0; i < n; ++i) out[key_index(keys[i])] = h.slopes[key_place(h, keys[i])];
}

}  // namespace evalgrad::lovasz
