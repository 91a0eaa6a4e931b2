// Proximal operator of the Lovász extension of the Jaccard loss, by divide and conquer over its
// level sets (docs/maths.md). In double throughout: differences of long sums decide where a segment
// is split.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "common/parallel.h"
#include "common/simd.h"
#include "lovasz/kernels.h"

namespace evalgrad::lovasz {
namespace {

// Items of one kind in decreasing order of x, with the sums of every prefix.
struct Prefix {
    std::vector<int64_t> index;
    std::vector<double> x, sums;

    void sort(const double* values) {
        std::sort(index.begin(), index.end(),
                  [=](int64_t i, int64_t j) { return values[i] > values[j]; });
        x.clear(), sums.assign(1, 0.0);
        for (const int64_t i : index)
            x.push_back(values[i]), sums.push_back(sums.back() + values[i]);
    }
    int64_t size() const { return static_cast<int64_t>(index.size()); }
    double between(int64_t start, int64_t end) const { return sums[end] - sums[start]; }
    void paint(int64_t start, int64_t end, double level, double* u) const {
        for (int64_t i = start; i < end; ++i) u[index[i]] = level;
    }
};

// A range [a0, a1) of the sorted foreground with a range [b0, b1) of the sorted background.
struct Segment {
    int64_t a0, a1, b0, b1;
    int64_t size() const { return a1 - a0 + b1 - b0; }
};

struct Row {
    Prefix front, back;
    double lam;

    // F: the Jaccard loss when a foreground and b background items are wrong.
    double jaccard(int64_t a, int64_t b) const {
        if (front.size() == 0) return b > 0 ? 1.0 : 0.0;
        return static_cast<double>(a + b) / static_cast<double>(front.size() + b);
    }

    // The value at which the segment would be constant.
    double level(const Segment& s) const {
        const double rise = jaccard(s.a1, s.b1) - jaccard(s.a0, s.b0);
        return (front.between(s.a0, s.a1) + back.between(s.b0, s.b1) - rise / lam) /
               static_cast<double>(s.size());
    }

    // The set that does better than the whole segment at its level, as the end of its two prefixes;
    // the segment's start if none does. For each b the best a takes what exceeds the level by F's
    // slope in a, which falls with b: two pointers, one scan.
    Segment better(const Segment& s, double t) const {
        const double base = jaccard(s.a0, s.b0),
                     rounding = 1e-15 * (1.0 + lam * static_cast<double>(s.size()) * std::fabs(t));
        double best = -rounding;
        Segment set{s.a0, s.a0, s.b0, s.b0};
        for (int64_t a = s.a0, b = s.b0; b <= s.b1; ++b) {
            const double bound =
                t + 1.0 / (lam * static_cast<double>(std::max<int64_t>(front.size() + b, 1)));
            while (a < s.a1 && front.x[a] > bound) ++a;
            const double gain = front.between(s.a0, a) + back.between(s.b0, b) -
                                t * static_cast<double>(a - s.a0 + b - s.b0);
            const double cost = jaccard(a, b) - base - lam * gain;
            if (cost < best) best = cost, set = {s.a0, a, s.b0, b};
        }
        return set;
    }

    void solve(double* u) const {
        std::vector<Segment> todo{{0, front.size(), 0, back.size()}};
        while (!todo.empty()) {
            const Segment s = todo.back();
            todo.pop_back();
            const double t = level(s);
            const Segment upper = better(s, t);
            if (upper.size() == 0 || upper.size() == s.size()) {
                front.paint(s.a0, s.a1, t, u);
                back.paint(s.b0, s.b1, t, u);
            } else {
                todo.push_back(upper);
                todo.push_back({upper.a1, s.a1, upper.b1, s.b1});
            }
        }
    }
};

}  // namespace

void prox(const double* x, const uint8_t* foreground, const uint8_t* mask, int64_t rows, int64_t n,
          double lam, double* u, int64_t threads) {
    parallel_tasks(
        rows, useful_workers(rows * n, static_cast<int>(threads)), [&](int64_t row, int) {
            const int64_t start = row * n;
            Row problem{{}, {}, lam};
            bool nan = false;
            for (int64_t i = 0; i < n; ++i) {
                u[start + i] = x[start + i];
                if (!mask[start + i]) continue;
                (foreground[start + i] ? problem.front : problem.back).index.push_back(i);
                nan |= std::isnan(x[start + i]);
            }
            if (nan) {
                problem.front.paint(0, problem.front.size(), std::nan(""), u + start);
                problem.back.paint(0, problem.back.size(), std::nan(""), u + start);
            } else if (problem.front.size() + problem.back.size() > 0) {
                problem.front.sort(x + start);
                problem.back.sort(x + start);
                problem.solve(u + start);
            }
        });
}

}  // namespace evalgrad::lovasz
