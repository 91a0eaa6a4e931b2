// Direct loss minimisation for the Jaccard index of a binary labelling: two sorted lists and one
// scan.
//
// F(y) = (1/n) sum_i y_i s_i over the n items that count. With b false positives, those of the
// highest scores, a foreground item pays exactly if s_i > theta_b = s eps n/(P + b); so y_direct is
// the best of |N| + 1 thresholds.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/memory.h"
#include "common/parallel.h"
#include "common/simd.h"
#include "ranking/kernels.h"
#include "ranking/lists.h"

namespace evalgrad::ranking {
namespace {

// One row at a time; its buffers live as long as a worker.
template <class Real>
class JaccardRow {
public:
    Real solve(const Real* scores, const uint8_t* target, const uint8_t* mask, int64_t n,
               double epsilon, int64_t sign, Real* gradient) {
        std::fill_n(gradient, n, Real(0));
        const bool nan = split(scores, target, mask, n, foreground_, background_);
        const int64_t P = foreground_.size(), counted = P + background_.size();
        if (nan) return spoil(mask, n, gradient);
        if (counted == 0) return 0;
        reach_ = epsilon * counted;
        sorter_.sort(scores, foreground_);
        sorter_.sort(scores, background_);
        const int64_t false_positives = augment(static_cast<double>(sign));
        const double theta = threshold(false_positives, static_cast<double>(sign)),
                     unit = sign / (epsilon * counted);
        int64_t hits = 0, predicted = 0;
        for (int64_t i = 0; i < P; ++i) {
            const bool now = foreground_.score[i] > 0;
            hits += now;
            gradient[foreground_.index[i]] =
                static_cast<Real>(unit * ((within(foreground_.score[i]) > theta) - now) + 0.0);
        }
        for (int64_t j = 0; j < background_.size(); ++j) {
            const bool now = background_.score[j] > 0;
            predicted += now;
            gradient[background_.index[j]] =
                static_cast<Real>(unit * ((j < false_positives) - now) + 0.0);
        }
        const int64_t all = P + predicted;  // the union
        return all == 0 ? Real(0) : static_cast<Real>(static_cast<double>(all - hits) / all);
    }

private:
    // An item beyond eps n never flips (it would cost more than eps): closing the range makes
    // infinities act as their limit.
    double within(double score) const { return std::clamp(score, -2 * reach_, 2 * reach_); }

    double threshold(int64_t b, double sign) const {
        return sign * reach_ / std::max<int64_t>(foreground_.size() + b, 1);
    }

    // The number of false positives of the maximiser of F + sign eps Delta; of equal ones the
    // smallest.
    int64_t augment(double sign) {
        const int64_t P = foreground_.size(), N = background_.size();
        above_.assign(1, 0.0);  // sums of the highest foreground scores
        for (int64_t i = 0; i < P; ++i) above_.push_back(above_[i] + within(foreground_.score[i]));
        gained_.resize(N + 1);
        double taken = 0, top = -std::numeric_limits<double>::infinity();
        int64_t k = sign > 0 ? 0 : P;  // foreground above the threshold, which falls with b if sign
                                       // > 0 and rises otherwise
        for (int64_t b = 0; b <= N; ++b) {
            const double theta = threshold(b, sign);
            while (k < P && within(foreground_.score[k]) > theta) ++k;
            while (k > 0 && !(within(foreground_.score[k - 1]) > theta)) --k;
            const double of_empty =
                P == 0 && b > 0 ? sign * reach_ : 0.0;  // without foreground Delta = [b > 0]
            gained_[b] = taken + (above_[k] - k * theta) + of_empty;
            top = std::max(top, gained_[b]);
            if (b < N) taken += within(background_.score[b]);
        }
        return std::find_if(gained_.begin(), gained_.end(),
                            [&](double g) { return g >= top - kTie * reach_; }) -
               gained_.begin();
    }

    static Real spoil(const uint8_t* mask, int64_t n, Real* gradient) {
        for (int64_t i = 0; i < n; ++i)
            if (mask[i]) gradient[i] = std::numeric_limits<Real>::quiet_NaN();
        return std::numeric_limits<Real>::quiet_NaN();
    }

    ItemSorter sorter_;
    SortedItems foreground_, background_;
    std::vector<double> above_, gained_;
    double reach_ = 0;
};

}  // namespace

template <class Real>
void direct_jaccard(const Real* scores, const uint8_t* target, const uint8_t* mask, int64_t rows,
                    int64_t n, double epsilon, int64_t sign, Real* value, Real* gradient,
                    int64_t threads) {
    advise_huge_pages(gradient, rows * n * sizeof(Real));
    const int workers = useful_workers(
        rows * n * 16, static_cast<int>(std::min(threads, std::max<int64_t>(rows, 1))));
    std::vector<JaccardRow<Real>> row(workers);
    parallel_tasks(rows, workers, [&](int64_t r, int worker) {
        const int64_t at = r * n;
        value[r] =
            row[worker].solve(scores + at, target + at, mask + at, n, epsilon, sign, gradient + at);
    });
}
EVALGRAD_FLOAT_AND_DOUBLE(direct_jaccard)

}  // namespace evalgrad::ranking
