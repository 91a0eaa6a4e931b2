// The smooth top-k loss, its limit the top-k hinge, and their gradients, row by row
// (docs/maths.md).
#include <algorithm>

#include "common/memory.h"
#include "common/parallel.h"
#include "topk/kernels.h"
#include "topk/symmetric_polynomials.h"
#include "topk/top_items.h"

namespace evalgrad::topk {
namespace {

template <class T>
struct Worker {
    TopItems<T> top;
    Workspace<T> space;
};

template <class T>
struct Problem {
    Split split;
    double temperature, margin;
    const T* scores;
    const int64_t* target;
    const T* factor;  // of each row in the result; 0 = the row does not count, whatever it holds
    T *value, *gradient;
};

// The scores of row r in the memory of a lane, the label's own ruled out, and the largest of them
// in w.top. False if the row is done: it does not count, or has a NaN or a label that does not
// exist.
template <class T>
EVALGRAD_INLINE bool begin_row(const Problem<T>& p, int64_t r, int64_t wanted, int64_t lane,
                               Worker<T>& w) {
    const int64_t classes = p.split.classes, y = p.target[r];
    p.value[r] = T(0);
    if (p.factor[r] != T(0)) {
        if (y >= 0 && y < classes) {
            T* row = w.space.row(p.split, lane);
            const T *scores = p.scores + r * classes, own = scores[y];
            std::copy_n(scores, classes, row);
            std::fill(row + classes, row + p.split.padded(), -std::numeric_limits<T>::infinity());
            row[y] = -std::numeric_limits<T>::infinity();
            if (own == own && select_top(row, classes, wanted, w.top)) return true;
        }
        p.value[r] = std::numeric_limits<T>::quiet_NaN();
    }
    std::fill_n(p.gradient + r * classes, classes, p.value[r]);
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

// Factor x loss; z is that argument plus tau x the log of the ratio.
struct Smooth {
    double value, slope;  // in z

    Smooth(double z, double tau, double factor) {
        const double tail = std::exp(-std::abs(z) / tau);
        value = factor * ((z < 0.0 ? 0.0 : z) + tau * std::log1p(tail));
        slope = factor * (z < 0.0 ? tail : 1.0) / (1.0 + tail);
    }
};

// Up to kRows rows.
template <class T>
EVALGRAD_SIMD void smooth_rows(const Problem<T>& p, int64_t first, int64_t rows, Worker<T>& w) {
    const int64_t classes = p.split.classes;
    const double tau = p.temperature, k = static_cast<double>(p.split.k);
    const double inverse = std::min(1.0 / (k * tau), std::numeric_limits<double>::max());
    bool counts[kRows];
    double hinge[kRows], ratios[kRows];
    clear_rows(w.space);
    for (int64_t lane = 0; lane < rows; ++lane) {
        counts[lane] = begin_row(p, first + lane, p.split.head(), lane, w);
        if (!counts[lane]) continue;
        hinge[lane] = hinge_argument(p, first + lane, w);
        take_row(p.split, inverse, w.top.items.data(), lane, w.space);
    }
    log_ratios(p.split, w.space, ratios);
    head_backward(p.split, w.space);
    for (int64_t lane = 0; lane < rows; ++lane) {
        if (!counts[lane]) continue;
        const Smooth loss(hinge[lane] + tau * ratios[lane], tau, p.factor[first + lane]);
        const double coefficient = loss.slope / k;  // dL/d(z tau) / k
        T* gradient = p.gradient + (first + lane) * classes;
        p.value[first + lane] = static_cast<T>(loss.value);
        ratio_gradient(p.split, coefficient, lane, w.space, gradient);
        gradient[p.target[first + lane]] = static_cast<T>(-coefficient);
    }
}

// The k-th largest of the others may be tied: the slope is shared by all that are, as it is in the
// limit of the smooth loss.
template <class T>
EVALGRAD_SIMD void hinge_row(const Problem<T>& p, int64_t r, Worker<T>& w) {
    if (!begin_row(p, r, p.split.k, 0, w)) return;
    const int64_t classes = p.split.classes;
    const T* row = w.space.row(p.split, 0);
    T* gradient = p.gradient + r * classes;
    const double z = hinge_argument(p, r, w), factor = p.factor[r];
    const double slope = z != z ? z : z > 0.0 ? factor / static_cast<double>(p.split.k) : 0.0;
    p.value[r] = static_cast<T>(z < 0.0 ? 0.0 : factor * z);
    const T kth = w.top.items[p.split.k - 1].score;
    int64_t tied = 0;
    for (int64_t i = 0; i < classes; ++i) tied += row[i] == kth;
    const T share = static_cast<T>(slope / static_cast<double>(tied));
    for (int64_t i = 0; i < classes; ++i) gradient[i] = row[i] == kth ? share : T(0);
    gradient[p.target[r]] = static_cast<T>(-slope);
}

template <class T>
void hinge_rows(const Problem<T>& p, int64_t first, int64_t rows, Worker<T>& w) {
    for (int64_t r = first; r < first + rows; ++r) hinge_row(p, r, w);
}

// Calls block(first row, number of rows, worker).
template <class T, class Block>
void all_rows(const Problem<T>& p, int64_t rows, int64_t steps_per_class, int64_t threads,
              const Block& block) {
    constexpr int64_t steps_per_row = 256;  // what even a row of two classes costs
    advise_huge_pages(p.gradient, rows * p.split.classes * sizeof(T));
    const int workers = useful_workers(rows * (p.split.classes * steps_per_class + steps_per_row),
                                       static_cast<int>(threads));
    std::vector<Worker<T>> scratch(workers, Worker<T>{{}, Workspace<T>(p.split)});
    // Neighbouring rows share pages, and workers that touch a fresh page together wait for each
    // other: some rows at a time.
    const int64_t together = std::clamp<int64_t>(rows / (4 * workers), 1, 16);
    parallel_tasks((rows + together - 1) / together, workers, [&](int64_t task, int worker) {
        const int64_t end = std::min(rows, (task + 1) * together);
        for (int64_t r = task * together; r < end; r += kRows)
            block(p, r, std::min(kRows, end - r), scratch[worker]);
    });
}

}  // namespace

template <class T>
void smooth_topk(const T* scores, const int64_t* target, const T* factor, int64_t rows,
                 int64_t classes, int64_t k, double temperature, double margin, T* value,
                 T* gradient, int64_t threads) {
    all_rows<T>({{classes, k}, temperature, margin, scores, target, factor, value, gradient}, rows,
                k, threads, smooth_rows<T>);
}
EVALGRAD_FLOAT_AND_DOUBLE(smooth_topk)

template <class T>
void topk_hinge(const T* scores, const int64_t* target, const T* factor, int64_t rows,
                int64_t classes, int64_t k, double margin, T* value, T* gradient, int64_t threads) {
    all_rows<T>({{classes, k}, 0.0, margin, scores, target, factor, value, gradient}, rows, 1,
                threads, hinge_rows<T>);
}
EVALGRAD_FLOAT_AND_DOUBLE(topk_hinge)

}  // namespace evalgrad::topk
