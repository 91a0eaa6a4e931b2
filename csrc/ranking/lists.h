// The two sorted lists behind every ranking loss: positives and negatives of one row, both in
// descending order of score.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/simd.h"
#include "common/sort.h"

namespace evalgrad::ranking {

constexpr double kTie =
    1e-13;  // objectives closer than this, relative to their scale, count as equal

// One class of items. `rank[i]` = number of items of the other class that the model puts above item
// i.
struct SortedItems {
    std::vector<int64_t> index, rank;
    std::vector<double> score, z;  // z: scores up to a constant, wide gaps closed (see merge)

    int64_t size() const { return static_cast<int64_t>(index.size()); }
};

// Items by decreasing score; equal scores keep the order of their indices, which arrive in
// increasing order.
class ItemSorter {
public:
    void sort(const double* scores, SortedItems& items) {
        make_room(items);
        std::stable_sort(items.index.begin(), items.index.end(),
                         [=](int64_t a, int64_t b) { return scores[a] > scores[b]; });
        for (int64_t i = 0; i < items.size(); ++i) items.score[i] = scores[items.index[i]];
    }

    void sort(const float* scores, SortedItems& items) {
        make_room(items);
        uint64_t* keys = sorter_.room(items.size());
        for (int64_t i = 0; i < items.size(); ++i) {
            const float score = scores[items.index[i]] + 0.0f;  // adding 0 makes -0 tie with +0
            keys[i] = pack_key(~ordered_bits(score), items.index[i], false);
        }
        const uint64_t* sorted = sorter_.sort<uint64_t, 32>(items.size());
        for (int64_t i = 0; i < items.size(); ++i) {
            items.index[i] = key_index(sorted[i]);
            items.score[i] = ordered_float(~key_order(sorted[i]));
        }
    }

private:
    static void make_room(SortedItems& items) {
        items.score.resize(items.index.size());
        items.z.resize(items.index.size());
        items.rank.resize(items.index.size());
    }

    KeySorter sorter_;
};

// Splits the items that count into the two classes. True if one of their scores is NaN.
template <class Real>
bool split(const Real* scores, const uint8_t* target, const uint8_t* mask, int64_t n,
           SortedItems& positives, SortedItems& negatives) {
    positives.index.resize(n + 1);  // one more: both lists are written to, one of them moves on
    negatives.index.resize(n + 1);
    int64_t p = 0, m = 0;
    bool nan = false;
    for (int64_t i = 0; i < n; ++i) {
        const bool counts = mask == nullptr || mask[i] != 0, positive = target[i] != 0;
        positives.index[p] = negatives.index[m] = i;
        p += counts & positive;
        m += counts & !positive;
        nan |= counts & (scores[i] != scores[i]);
    }
    positives.index.resize(p);
    negatives.index.resize(m);
    return nan;
}

// Walks down the model's ranking; a negative tied with a positive comes first, so that ties count
// against the model. Gaps wider than `widest` are closed to it. A caller that knows that nothing
// ever crosses such a gap loses nothing, and gains that infinite scores act as their limit and that
// an outlier does not swallow the digits of the other scores.
inline void merge(SortedItems& positives, SortedItems& negatives, double widest) {
    double z = 0, previous = 0;
    const int64_t total = positives.size() + negatives.size();
    for (int64_t p = 0, m = 0; p + m < total;) {
        const bool negative_next =
            p == positives.size() ||
            (m < negatives.size() && negatives.score[m] >= positives.score[p]);
        SortedItems& items = negative_next ? negatives : positives;
        const int64_t i = negative_next ? m : p;
        const double score = items.score[i];
        if (p + m > 0 && score != previous) z -= std::min(previous - score, widest);
        previous = score;
        items.z[i] = z;
        items.rank[i] = negative_next ? p : m;
        (negative_next ? m : p) += 1;
    }
}

}  // namespace evalgrad::ranking
