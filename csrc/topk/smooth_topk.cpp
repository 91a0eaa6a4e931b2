// The smooth top-k loss, its limit the top-k hinge, and their gradients, row by row
// (docs/maths.md).
#include <algorithm>

#include "common/memory.h"
#include "common/parallel.h"
#include "topk/kernels.h"
#include "topk/symmetric_polynomials.h"

namespace evalgrad::topk {
namespace {

template <class T>
struct Problem {
    Split split;
    double temperature, margin;
    const T* scores;
    const int64_t* target;
    const T* factor;  // of each row in the result; 0 = the row does not count, whatever it holds
    T *value, *gradient;
};

// The scores of row r in the place of its gradient, the label's own ruled out, and the largest of
// them in w.top. False if the row is done: it does not count, or has a NaN or a label that does not
// exist.
template <class T>
EVALGRAD_INLINE bool begin_row(const Problem<T>& p, int64_t r, int64_t wanted, Worker<T>& w) {
    const int64_t classes = p.split.classes, y = p.target[r];
    T* row = p.gradient + r * classes;
    p.value[r] = T(0);
    if (p.factor[r] != T(0)) {
        if (y >= 0 && y < classes) {
            const T score = p.scores[r * classes + y];
            std::copy_n(p.scores + r * classes, classes, row);
            row[y] = -std::numeric_limits<T>::infinity();
            if (score == score && select_top(row, classes, wanted, w.top)) return true;
        }
        p.value[r] = std::numeric_limits<T>::quiet_NaN();
    }
    std::fill_n(row, classes, p.value[r]);
    return false;
}

// margin + (s_[k] - s_y)/k: z tau of docs/maths.md in the limit tau -> 0. Both at +inf count as
// tied; both at -inf, where nothing is left to compare, give NaN as cross-entropy does.
template <class T>
EVALGRAD_INLINE double hinge_argument(const Problem<T>& p, int64_t r, const Worker<T>& w) {
    const double kth = w.top.items[p.split.k - 1].score,
                 own = p.scores[r * p.split.classes + p.target[r]];
    return p.margin + (kth == own && kth > 0.0 ? 0.0 : kth - own) / static_cast<double>(p.split.k);
}

template <class T>
EVALGRAD_SIMD void smooth_row(const Problem<T>& p, int64_t r, Worker<T>& w) {
    if (!begin_row(p, r, p.split.head(), w)) return;
    const double tau = p.temperature, k = static_cast<double>(p.split.k), factor = p.factor[r];
    T* row = p.gradient + r * p.split.classes;  // scores, then u, then the gradient
    const double inverse = std::min(1.0 / (k * tau), std::numeric_limits<double>::max());
    const double z = hinge_argument(p, r, w) + tau * log_ratio(p.split, inverse, row, w);
    const double tail = std::exp(-std::abs(z) / tau);
    p.value[r] = static_cast<T>(factor * ((z < 0.0 ? 0.0 : z) + tau * std::log1p(tail)));
    const double coefficient =
        factor * (z < 0.0 ? tail : 1.0) / (1.0 + tail) / k;  // dL/d(z tau) / k
    ratio_gradient(p.split, coefficient, row, w);
    row[p.target[r]] = static_cast<T>(-coefficient);
}

// The k-th largest of the others may be tied: the slope is shared by all that are, as it is in the
// limit of the smooth loss.
template <class T>
EVALGRAD_SIMD void hinge_row(const Problem<T>& p, int64_t r, Worker<T>& w) {
    if (!begin_row(p, r, p.split.k, w)) return;
    const int64_t classes = p.split.classes;
    T* row = p.gradient + r * classes;
    const double z = hinge_argument(p, r, w), factor = p.factor[r];
    const double slope = z != z ? z : z > 0.0 ? factor / static_cast<double>(p.split.k) : 0.0;
    p.value[r] = static_cast<T>(z < 0.0 ? 0.0 : factor * z);
    const T kth = w.top.items[p.split.k - 1].score;
    int64_t tied = 0;
    for (int64_t i = 0; i < classes; ++i) tied += row[i] == kth;
    const T share = static_cast<T>(slope / static_cast<double>(tied));
    for (int64_t i = 0; i < classes; ++i) row[i] = row[i] == kth ? share : T(0);
    row[p.target[r]] = static_cast<T>(-slope);
}

template <class T, class Row>
void all_rows(const Problem<T>& p, int64_t rows, int64_t steps_per_class, int64_t threads,
              const Row& row) {
    constexpr int64_t steps_per_row = 256;  // what even a row of two classes costs
    advise_huge_pages(p.gradient, rows * p.split.classes * sizeof(T));
    const int workers = useful_workers(rows * (p.split.classes * steps_per_class + steps_per_row),
                                       static_cast<int>(threads));
    std::vector<Worker<T>> scratch(workers, Worker<T>{{}, Workspace<T>(p.split)});
    // Neighbouring rows share pages, and workers that touch a fresh page together wait for each
    // other: some rows at a time.
    const int64_t together = std::clamp<int64_t>(rows / (4 * workers), 1, 16);
    parallel_tasks((rows + together - 1) / together, workers, [&](int64_t block, int worker) {
        const int64_t end = std::min(rows, (block + 1) * together);
        for (int64_t r = block * together; r < end; ++r) row(p, r, scratch[worker]);
    });
}

}  // namespace

template <class T>
void smooth_topk(const T* scores, const int64_t* target, const T* factor, int64_t rows,
                 int64_t classes, int64_t k, double temperature, double margin, T* value,
                 T* gradient, int64_t threads) {
    all_rows<T>({{classes, k}, temperature, margin, scores, target, factor, value, gradient}, rows,
                k, threads, smooth_row<T>);
}
EVALGRAD_FLOAT_AND_DOUBLE(smooth_topk)

template <class T>
void topk_hinge(const T* scores, const int64_t* target, const T* factor, int64_t rows,
                int64_t classes, int64_t k, double margin, T* value, T* gradient, int64_t threads) {
    all_rows<T>({{classes, k}, 0.0, margin, scores, target, factor, value, gradient}, rows, 1,
                threads, hinge_row<T>);
}
EVALGRAD_FLOAT_AND_DOUBLE(topk_hinge)

}  // namespace evalgrad::topk
