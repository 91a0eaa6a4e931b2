// The errors of one class of a softmax, and its weights in place of the probabilities: by a
// histogram, or by a sort.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/simd.h"
#include "common/sort.h"
#include "lovasz/candidates.h"
#include "lovasz/fine_bins.h"
#include "lovasz/histogram.h"
#include "lovasz/weights.h"

namespace evalgrad::lovasz {

constexpr float kIgnored = -1.0f;  // in place of the probability of a pixel that does not count

// Errors are compared in units of 2^-22, about what float32 resolves of a softmax; closer ones
// count as tied, which moves the value by less than a unit. So two radix passes sort exactly, and
// the smallest errors, of which a trained network has most, need no sort at all: they are counted
// in one bin per unit.
constexpr float kUnits = 4194304.0f;
constexpr int kUnitBits = 22;
constexpr int64_t kSmallUnits = 4096;
constexpr float kSmall = kSmallUnits / kUnits;

using WideBins = EqualBins<uint32_t>;
inline WideBins small_bins() {
    return {0.0f, kSmall - 0x1p-34f, kUnits, kSmallUnits};  // up to the number before kSmall
}
inline WideBins class_bins(int64_t bins) { return {0.0f, 1.0f, static_cast<float>(bins), bins}; }

// The pixels of one image, as one class sees them.
struct ClassPixels {
    const float* p;  // kIgnored for what does not count
    const int32_t* label;
    int32_t c;
    int64_t n;

    EVALGRAD_INLINE bool foreground(int64_t i) const { return label[i] == c; }
    EVALGRAD_INLINE float error(int64_t i) const { return foreground(i) ? 1.0f - p[i] : p[i]; }
    EVALGRAD_INLINE void read(int64_t start, int32_t width, Block& block) const {
        for (int32_t j = 0; j < width; ++j) block.foreground[j] = foreground(start + j) ? -1 : 0;
        for (int32_t j = 0; j < width; ++j) block.errors[j] = error(start + j);
    }
};

// Those with an error of at least `lowest`, for a sort. Offset: of the image in its group.
struct ClassCandidates {
    ClassPixels pixels;
    float lowest;
    int64_t offset;

    EVALGRAD_INLINE bool wanted(int64_t i) const { return pixels.error(i) >= lowest; }
    EVALGRAD_INLINE bool foreground(int64_t i) const { return pixels.foreground(i); }
    EVALGRAD_INLINE uint32_t order(int64_t i) const {
        constexpr int32_t last = (1 << kUnitBits) - 1;  // an error of 1 shares it, and so does NaN
        const float units = std::min(static_cast<float>(last), pixels.error(i) * kUnits);
        return static_cast<uint32_t>(last - static_cast<int32_t>(units));  // unwanted: any number
    }
};

struct ClassScratch {
    KeySorter sorter;
    Histogram<OctaveBins> fine;
    Histogram<WideBins> wide;
};

// One class of a group: its images, P, and the factor of its loss. Background with an error below 1
// - highest, which is below every foreground error, weighs 0.
struct ClassTask {
    float* buffer;         // (images, classes, pixels): probabilities, then slopes
    const int32_t* label;  // (images, pixels)
    int64_t images, classes, pixels, c;
    int64_t foreground;
    float highest;  // the largest probability on the class's own pixels
    float factor;

    template <class Visit>
    void for_images(const Visit& visit) const {
        for (int64_t image = 0; image < images; ++image) {
            const int64_t offset = (image * classes + c) * pixels;
            const auto own = static_cast<int32_t>(c);
            visit(ClassPixels{buffer + offset, label + image * pixels, own, pixels}, offset);
        }
    }
    void fill(float value) const {
        for_images([&](const ClassPixels& image, int64_t offset) {
            std::fill_n(buffer + offset, image.n, value);
        });
    }
    double share_from(float lowest) const {
        double sum = 0;
        for_images(
            [&](const ClassPixels& image, int64_t) { sum += lovasz::share_from(image, lowest); });
        return sum / static_cast<double>(images);
    }
    template <class... E>
    void count_in(Histogram<E>&... histograms) const {
        for_images([&](const ClassPixels& image, int64_t) { count(image, histograms...); });
    }
    template <class... E>
    void look_up_in(const Histogram<E>&... histograms) const {
        for_images([&](const ClassPixels& image, int64_t offset) {
            look_up(image, buffer + offset, histograms...);
        });
    }
};

// Candidates for bins instead of a sort.
struct ClassBinned : ClassCandidates {
    WideBins edges;

    EVALGRAD_INLINE uint32_t order(int64_t i) const { return edges.bin(pixels.error(i)); }
};

// With `bins=`. Bins below that of the smallest foreground error
// weigh nothing; where few pixels are above, as in an untrained network, only those are counted.
template <class Metric>
void weigh_in_bins(const Metric& metric, const ClassTask& task, int64_t bins, ClassScratch& s) {
    const WideBins edges = class_bins(bins);
    const float lowest = std::max(0.0f, 1.0f - task.highest - 1.0f / edges.scale);
    const bool few = task.foreground > 0 && task.share_from(lowest) <= 1.0 / 8;
    uint64_t* keys = few ? s.sorter.room(task.images * task.pixels + 1) : nullptr;
    int64_t found = 0;
    s.wide.start(edges, few ? 1 : s.wide.kSets);
    if (few) {
        task.for_images([&](const ClassPixels& image, int64_t offset) {
            const ClassBinned items{{image, lowest, offset}, edges};
            found += collect(items, image.n, keys + found);
        });
        count_keys(keys, found, s.wide);
    } else {
        task.count_in(s.wide);
    }
    Ahead ahead;
    if (task.foreground == 0)
        fill_without_foreground(s.wide, task.factor);
    else
        fill_slopes(metric, s.wide, task.foreground, task.factor, ahead);
    if (!few) return task.look_up_in(s.wide);
    task.fill(0.0f);
    look_up_keys(keys, found, s.wide, task.buffer);
}

// Without foreground the extension is the largest error: the whole weight goes to one pixel.
inline void weigh_absent(const ClassTask& task) {
    float highest = 0.0f;
    int64_t top = -1;
    task.for_images([&](const ClassPixels& image, int64_t offset) {
        for (int64_t i = 0; i < image.n; ++i)
            if (image.p[i] > highest) highest = image.p[i], top = offset + i;
    });
    task.fill(0.0f);
    if (top >= 0) task.buffer[top] = task.factor;
}

// Without a sort. False, and nothing written, where one is better: for few pixels, little
// foreground, few errors to bring into order, or many that are equal or too close for the bins.
template <class Metric>
bool weigh_in_fine_bins(const Metric& metric, const ClassTask& task, float lowest, bool small,
                        ClassScratch& s) {
    const int64_t pixels = task.images * task.pixels;
    if (pixels < kFinePixels || task.foreground < kFineForeground) return false;
    const double share = task.share_from(lowest);
    if (share <= 1.0 / 8) return false;
    // Fewer, rounded up, than for a hinge: bins that are finer for smaller errors are filled more
    // evenly.
    const int64_t first =
        first_bins(static_cast<int64_t>(share * static_cast<double>(pixels)), task.foreground) / 4;
    Ahead ahead;
    const bool done = count_finely(
        metric, s.fine, std::max(kFewestBins / 2, first), task.foreground, task.factor, ahead,
        [&](double wanted) { return OctaveBins(lowest, wanted); },
        [&] {
            if (!small) return task.count_in(s.fine);
            s.wide.start(small_bins());
            task.count_in(s.fine, s.wide);
        });
    if (!done) return false;
    if (!small) return task.look_up_in(s.fine), true;
    fill_slopes(metric, s.wide, task.foreground, task.factor, ahead);
    return task.look_up_in(s.fine, s.wide), true;
}

// By a sort of the errors from `lowest` on; smaller ones, if they have a weight, in a bin per unit.
// Some pixels at a time: of a trained network, most have no error to sort, which their count tells.
template <class Metric>
void weigh_sorted_class(const Metric& metric, const ClassTask& task, float lowest, bool small,
                        ClassScratch& s) {
    constexpr int64_t kTogether = 4 * kBlock;
    uint64_t* keys = s.sorter.room(task.images * task.pixels + 1);
    int64_t found = 0;
    if (small) s.wide.start(small_bins());
    task.for_images([&](const ClassPixels& image, int64_t offset) {
        for (int64_t start = 0; start < image.n; start += kTogether) {
            const ClassPixels part{image.p + start, image.label + start, image.c,
                                   std::min(kTogether, image.n - start)};
            const int64_t before = s.wide.counted;
            if (small) count(part, s.wide);
            if (small && s.wide.counted - before == part.n) continue;
            found += collect(ClassCandidates{part, lowest, offset + start}, part.n, keys + found);
        }
    });
    if (small) {
        Ahead ahead;
        for (int64_t i = 0; i < found; ++i) ahead.foreground += key_foreground(keys[i]);
        ahead.background = found - ahead.foreground;
        fill_slopes(metric, s.wide, task.foreground, task.factor, ahead);
        task.look_up_in(s.wide);
    } else {
        task.fill(0.0f);
    }
    const uint32_t* sorted = s.sorter.sort<uint32_t, kUnitBits>(found);
    const float slopes[2] = {task.factor, -task.factor};
    float* out = task.buffer;
    weigh_sorted(metric, sorted, found, task.foreground, out, [=](uint32_t key, double weight) {
        out[key_index(key)] = static_cast<float>(weight) * slopes[key_foreground(key)];
    });
}

template <class Metric>
void weigh_exactly(const Metric& metric, const ClassTask& task, ClassScratch& scratch) {
    if (task.foreground == 0) return weigh_absent(task);
    const float threshold = 1.0f - task.highest;
    const bool small = threshold < kSmall;
    const float lowest = small ? kSmall : threshold;
    if (!weigh_in_fine_bins(metric, task, lowest, small, scratch))
        weigh_sorted_class(metric, task, lowest, small, scratch);
}

}  // namespace evalgrad::lovasz
