// Direct loss minimisation for NDCG of graded relevance: y_w and y_direct are sorts.
//
// F(y) = (1/ideal) sum_i s_i T(rank of i) is largest for the items by s_i, F + s eps Delta for the
// items by s_i - s eps g_i; g_i: the gain over the largest of the row.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/parallel.h"
#include "ranking/kernels.h"

namespace evalgrad::ranking {
namespace {

struct Item {
    double score, key, gain;  // key: the score as y_direct sees it
    int64_t index;
};

// y_w: the lower gain first where scores tie.
bool model_before(const Item& a, const Item& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.gain != b.gain ? a.gain < b.gain : a.index < b.index;
}

// y_direct: of equally good orders the one that gains less. Keys tie in both directions where the
// gains differ by as much as the scores; where a score is too large for the shift to show, equal
// scores still shift by their gains.
bool worse_before(const Item& a, const Item& b) {
    if (a.key != b.key) return a.key > b.key;
    return a.gain != b.gain ? a.gain < b.gain : a.index < b.index;
}

bool better_before(const Item& a, const Item& b) {
    if (a.key != b.key) return a.key > b.key;
    if (a.score != b.score) return a.score > b.score;
    return a.gain != b.gain ? a.gain > b.gain : a.index < b.index;
}

// One row at a time; its buffers live as long as a worker. `discount`: T of the places.
template <class Real>
class GradedRow {
public:
    void solve(const Real* scores, const double* gain, const uint8_t* mask, int64_t n,
               double epsilon, int64_t sign, const std::vector<double>& discount, Real* value,
               Real* reached, Real* gradient) {
        std::fill_n(gradient, n, Real(0));
        *value = *reached = Real(0);
        const bool nan = collect(scores, gain, mask, n);
        if (best_.empty() || best_.front() == best_.back()) return;  // no order is better
        if (nan) {
            *value = *reached = std::numeric_limits<Real>::quiet_NaN();
            for (const Item& item : items_) gradient[item.index] = *value;
            return;
        }
        const double top = best_.front();
        for (double& g : best_) g /= top;
        for (Item& item : items_) {
            item.gain /= top;
            item.key = item.score - sign * epsilon * item.gain;
        }
        double ideal = 0;
        for (size_t r = 0; r < best_.size(); ++r) ideal += best_[r] * discount[r];
        slope_.assign(n, 0.0);
        std::sort(items_.begin(), items_.end(), model_before);
        *value = static_cast<Real>(place(discount, -1.0) / ideal);
        std::sort(items_.begin(), items_.end(), sign > 0 ? worse_before : better_before);
        *reached = static_cast<Real>(place(discount, 1.0) / ideal);
        const double unit = sign / epsilon / ideal;
        for (const Item& item : items_)
            gradient[item.index] = static_cast<Real>(unit * slope_[item.index] + 0.0);  // no -0
    }

private:
    // The items that count, and their gains in decreasing order. True if one of the scores is NaN
    // or a gain is not finite.
    bool collect(const Real* scores, const double* gain, const uint8_t* mask, int64_t n) {
        items_.clear();
        best_.clear();
        bool nan = false;
        for (int64_t i = 0; i < n; ++i) {
            if (mask != nullptr && mask[i] == 0) continue;
            items_.push_back({static_cast<double>(scores[i]), 0.0, gain[i], i});
            // a product of gain and weight may overflow, and no sort takes what is not a number
            const bool gains = gain[i] >= 0 && gain[i] <= DBL_MAX;
            best_.push_back(gains ? gain[i] : DBL_MAX);
            nan |= scores[i] != scores[i] || !gains;
        }
        std::sort(best_.begin(), best_.end(), std::greater<double>());
        return nan;
    }

    // What this order of the items gains less than the best, and `sign` T(rank) to every slope.
    // Term by term, so that the best order loses exactly 0.
    double place(const std::vector<double>& discount, double sign) {
        double lost = 0;
        for (size_t r = 0; r < items_.size(); ++r) {
            lost += (best_[r] - items_[r].gain) * discount[r];
            slope_[items_[r].index] += sign * discount[r];
        }
        return lost;
    }

    std::vector<Item> items_;
    std::vector<double> best_, slope_;
};

}  // namespace

template <class Real>
void direct_graded(const Real* scores, const double* gain, Optional<const uint8_t> mask,
                   int64_t rows, int64_t n, double epsilon, int64_t sign, int64_t cutoff,
                   Real* value, Real* reached, Real* gradient, int64_t threads) {
    std::vector<double> discount(n, 0.0);
    const int64_t places = cutoff > 0 ? std::min(cutoff, n) : n;
    for (int64_t r = 0; r < places; ++r) discount[r] = 1 / std::log2(2.0 + r);
    const int workers = useful_workers(
        rows * n * 64, static_cast<int>(std::min(threads, std::max<int64_t>(rows, 1))));
    std::vector<GradedRow<Real>> row(workers);
    const uint8_t* counts = mask;
    parallel_tasks(rows, workers, [&](int64_t r, int worker) {
        const int64_t at = r * n;
        row[worker].solve(scores + at, gain + at, counts == nullptr ? nullptr : counts + at, n,
                          epsilon, sign, discount, value + r, reached + r, gradient + at);
    });
}
EVALGRAD_FLOAT_AND_DOUBLE(direct_graded)

}  // namespace evalgrad::ranking
