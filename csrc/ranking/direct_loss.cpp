// Direct loss minimisation for rankings: 1 - AP and 1 - NDCG with their direct loss gradients, and
// the AP hinge and perceptron.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/memory.h"
#include "common/parallel.h"
#include "common/simd.h"
#include "ranking/inference.h"
#include "ranking/kernels.h"

namespace evalgrad::ranking {
namespace {

template <class Real>
struct Lists {
    const Real* scores;
    const uint8_t *target, *mask;  // mask may be null
    int64_t rows, n;
};

// Calls work(row, r, gradient of r) on every row r that can be ranked. A void row has value and
// gradient 0; a NaN among the items that count makes both NaN there.
template <class Real, class Work>
void for_rows(const Lists<Real>& lists, const RankingMetric& metric, double epsilon, int64_t steps,
              int64_t threads, Real* value, Real* gradient, const Work& work) {
    const int64_t n = lists.n;
    advise_huge_pages(gradient, lists.rows * n * sizeof(Real));
    const int workers = useful_workers(
        steps, static_cast<int>(std::min(threads, std::max<int64_t>(lists.rows, 1))));
    std::vector<RankedRow> ranked;
    for (int worker = 0; worker < workers; ++worker) ranked.emplace_back(metric);
    parallel_tasks(lists.rows, workers, [&](int64_t r, int worker) {
        Real* row_gradient = gradient + r * n;
        const uint8_t* mask = lists.mask == nullptr ? nullptr : lists.mask + r * n;
        std::fill_n(row_gradient, n, Real(0));
        value[r] = 0;
        bool nan;
        if (!ranked[worker].load(lists.scores + r * n, lists.target + r * n, mask, n, epsilon, nan))
            return;
        if (!nan) return work(ranked[worker], r, row_gradient);
        value[r] = std::numeric_limits<Real>::quiet_NaN();
        for (int64_t i = 0; i < n; ++i)
            if (mask == nullptr || mask[i]) row_gradient[i] = value[r];
    });
}

}  // namespace

template <class Real>
void direct_ranking(const Real* scores, const uint8_t* target, Optional<const uint8_t> mask,
                    int64_t rows, int64_t n, double epsilon, int64_t sign, int64_t ndcg,
                    int64_t cutoff, Real* value, Real* reached, Real* gradient, int64_t threads) {
    const RankingMetric metric(ndcg == 0, ndcg == 0 ? 0 : cutoff, n);
    const Lists<Real> lists{scores, target, mask, rows, n};
    const int64_t steps = rows * n * (sign > 0 ? 32 : std::max<int64_t>(n / 8, 32));
    std::fill_n(reached, rows, Real(0));
    for_rows(lists, metric, epsilon, steps, threads, value, gradient,
             [&](RankedRow& row, int64_t r, Real* row_gradient) {
                 value[r] = static_cast<Real>(row.task_loss());
                 row.augment(static_cast<int>(sign));
                 reached[r] = static_cast<Real>(row.task_loss());
                 row.write_gradient(sign / epsilon, true, row_gradient);
             });
    for (int64_t r = 0; r < rows; ++r)
        reached[r] = value[r] == value[r] ? reached[r] : value[r];  // NaN
}
EVALGRAD_FLOAT_AND_DOUBLE(direct_ranking)

template <class Real>
void ap_structured(const Real* scores, const uint8_t* target, Optional<const uint8_t> mask,
                   int64_t rows, int64_t n, int64_t augmented, Real* value, Real* gradient,
                   int64_t threads) {
    const RankingMetric metric(true, 0, n);
    const Lists<Real> lists{scores, target, mask, rows, n};
    for_rows(lists, metric, 1.0, rows * n * 32, threads, value, gradient,
             [&](RankedRow& row, int64_t r, Real* row_gradient) {
                 if (augmented) row.augment(1);
                 value[r] = static_cast<Real>(row.score_above_perfect() +
                                              (augmented ? row.task_loss() : 0.0));
                 row.write_gradient(1.0, false, row_gradient);
             });
}
EVALGRAD_FLOAT_AND_DOUBLE(ap_structured)

}  // namespace evalgrad::ranking
