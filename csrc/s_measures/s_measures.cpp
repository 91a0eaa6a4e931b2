// S-measures: surrogate errors by rows, and a whole training batch of one row with all it does to
// the state of the measure.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/simd.h"
#include "s_measures/kernels.h"
#include "s_measures/rows.h"

namespace evalgrad::s_measures {
namespace {

// What a measure keeps of the data; `Counts` in counts.py says what each is.
template <class T>
struct Memory {
    const uint8_t* labels;
    T* cache;
    int64_t items;
    T* totals;
    double momentum;
    int64_t* progress;
    uint8_t* indexed;
};

// False, with nothing stored, where a position or, if asked for, a label does not fit.
template <class T>
EVALGRAD_INLINE bool store(const Memory<T>& memory, const T* score, const uint8_t* positive,
                           const int64_t* index, int64_t items, bool check_labels) {
    bool fits = true;
    for (int64_t i = 0; i < items; ++i) fits &= index[i] >= 0 && index[i] < memory.items;
    if (!fits) return false;
    if (check_labels)
        for (int64_t i = 0; i < items; ++i) fits &= memory.labels[index[i]] == positive[i];
    if (!fits) return false;
    for (int64_t i = 0; i < items; ++i) memory.cache[index[i]] = score[i];
    return true;
}

// An overflowed batch stays out of the average.
template <class T>
EVALGRAD_INLINE void average(const T* batch, double momentum, T* totals) {
    for (int i = 0; i < 6; ++i)
        if (!std::isfinite(batch[i])) return;
    for (int i = 0; i < 6; ++i)
        totals[i] = static_cast<T>(batch[i] + momentum * (totals[i] - batch[i]));
}

// One batch enters the memory. Reports 1 when the totals are new, -1 when `index` does not fit.
template <class Surrogate, class T>
EVALGRAD_INLINE int64_t learn(const Memory<T>& memory, const T* score, const uint8_t* positive,
                              const int64_t* index, int64_t items, const T* batch, int64_t cycle) {
    const int64_t progress = *memory.progress + (index ? items : 1);
    const bool due = progress >= cycle;
    if (index && !store(memory, score, positive, index, items, due)) return -1;
    *memory.indexed = index != nullptr;
    *memory.progress = due ? 0 : progress;
    if (!due) return 0;
    if (index)
        totals_row<Surrogate>(memory.cache, memory.labels, memory.items, T(1), T(0), memory.totals);
    else
        average(batch, memory.momentum, memory.totals);
    return 1;
}

template <class T>
EVALGRAD_SIMD void learn_batch(const T* score, const uint8_t* positive, const int64_t* index,
                               int64_t items, const T* weight, int64_t surrogate, T* value,
                               T* gradient, const Memory<T>& memory, int64_t cycle,
                               int64_t* report) {
    with_surrogate<T>(surrogate, [&](auto kind) __attribute__((always_inline)) {
        T found[6];
        weighted_row<decltype(kind)>(score, positive, items, weight, value, gradient, found);
        if (report)
            *report = learn<decltype(kind)>(memory, score, positive, index, items, found, cycle);
    });
}

template <class T>
EVALGRAD_SIMD void weighted_rows(const T* scores, const uint8_t* positive, const T* weight,
                                 int64_t rows, int64_t items, int64_t surrogate, T* value,
                                 T* gradient, T* totals) {
    for (int64_t r = 0; r < rows; ++r)
        with_surrogate<T>(surrogate, [&](auto kind) __attribute__((always_inline)) {
            weighted_row<decltype(kind)>(scores + r * items, positive + r * items, items,
                                         weight + 2 * r, value + r, gradient + r * items,
                                         totals + 6 * r);
        });
}

template <class T>
EVALGRAD_SIMD void totals_rows(const T* scores, const uint8_t* positive, const T* scale,
                               const T* threshold, int64_t rows, int64_t items, int64_t surrogate,
                               T* totals) {
    for (int64_t r = 0; r < rows; ++r)
        with_surrogate<T>(surrogate, [&](auto kind) __attribute__((always_inline)) {
            totals_row<decltype(kind)>(scores, positive, items, scale[r], threshold[r],
                                       totals + 6 * r);
        });
}

// How totals move the multipliers; `multipliers.py` says what each is.
struct Rule {
    double prior, worst, worst_per_prior, step, ceiling, damped_step;
    bool fractional, hard;
};

// One row of (2, 3) totals: the rates (T, F, R, 1), the multipliers by ratio or residual, the
// weights of the classes by these.
template <class T>
void renew_row(const T* totals, const T* objective, const T* constraints, double share,
               int64_t count, const Rule& rule, T* mu, T* weight) {
    const double positives = totals[2], negatives = totals[5],
                 prior = rule.prior != 0.0 ? rule.prior : negatives / positives;
    const double alarm = totals[rule.hard ? 4 : 3] / negatives;
    const double found[4] = {1.0 - totals[rule.hard ? 1 : 0] / positives, prior * alarm, alarm,
                             1.0};
    if (!(positives > 0.0 && negatives > 0.0 && std::isfinite(found[0]) && std::isfinite(found[1])))
        return;
    const auto dot = [&](const T* a) {
        return a[0] * found[0] + a[1] * found[1] + a[2] * found[2] + a[3];
    };
    double row[4] = {objective[0], objective[1], objective[2], objective[3]};
    for (int64_t j = 0; j < count; ++j) {
        const T* constraint = constraints + 4 * j;
        double largest = 0.0;  // residual of hard counts
        for (int i = 0; i < 4; ++i)
            largest += std::max(constraint[i], T(0)) * (i == 1 ? prior : 1.0);
        const double residual = dot(constraint) / std::max(largest, 1.0),
                     highest = rule.worst + rule.worst_per_prior * prior;
        const double ratio =
            found[0] > 0.0 ? std::min(dot(objective) / found[0], highest) : highest;
        const double moved =
            rule.fractional ? -ratio : std::clamp(mu[j] + rule.step * residual, 0.0, rule.ceiling);
        const double pressed =
            rule.fractional ? moved
                            : std::clamp(moved + rule.damped_step * residual, 0.0, rule.ceiling);
        mu[j] = static_cast<T>(moved);
        for (int i = 0; i < 4; ++i) row[i] += pressed * constraint[i];
    }
    weight[0] = static_cast<T>(-share * row[0]);
    weight[1] = static_cast<T>(share * (prior * row[1] + row[2]));
}

}  // namespace

template <class T>
void weighted_errors(const T* scores, const uint8_t* positive, const T* weight, int64_t rows,
                     int64_t items, int64_t surrogate, T* value, T* gradient, T* totals, int64_t) {
    weighted_rows(scores, positive, weight, rows, items, surrogate, value, gradient, totals);
}
EVALGRAD_FLOAT_AND_DOUBLE(weighted_errors)

template <class T>
void error_totals(const T* scores, const uint8_t* positive, const T* scale, const T* threshold,
                  int64_t rows, int64_t items, int64_t surrogate, T* totals, int64_t) {
    totals_rows(scores, positive, scale, threshold, rows, items, surrogate, totals);
}
EVALGRAD_FLOAT_AND_DOUBLE(error_totals)

template <class T>
void batch(const T* scores, const uint8_t* positive, Optional<const int64_t> index, int64_t items,
           const T* weight, int64_t surrogate, T* value, T* gradient, const uint8_t* labels,
           T* cache, int64_t size, T* totals, double momentum, int64_t* progress, uint8_t* indexed,
           int64_t cycle, Optional<int64_t> report, int64_t) {
    const Memory<T> memory{labels, cache, size, totals, momentum, progress, indexed};
    learn_batch<T>(scores, positive, index, items, weight, surrogate, value, gradient, memory,
                   cycle, report);
}
EVALGRAD_FLOAT_AND_DOUBLE(batch)

template <class T>
void renewed_multipliers(const T* totals, const T* objective, const T* constraints, const T* share,
                         int64_t rows, int64_t count, double prior, double worst,
                         double worst_per_prior, double step, double ceiling, double damped_step,
                         int64_t fractional, int64_t hard, T* mu, T* weight, int64_t) {
    const Rule rule{prior,   worst,       worst_per_prior, step,
                    ceiling, damped_step, fractional != 0, hard != 0};
    for (int64_t r = 0; r < rows; ++r)
        renew_row(totals + 6 * r, objective + 4 * r, constraints + 4 * count * r, share[r], count,
                  rule, mu + count * r, weight + 2 * r);
}
EVALGRAD_FLOAT_AND_DOUBLE(renewed_multipliers)

}  // namespace evalgrad::s_measures
