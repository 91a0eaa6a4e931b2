// Loss max-pooling: per row of n losses l >= 0 the value and the maximiser w* of
//     max { w.l : ||w||_p <= gamma, ||w||_inf <= tau },   w* = tau min(1, l/alpha)^(q-1),   q =
//     p/(p-1),
// where alpha is the largest root of sum min(l, alpha)^q = m alpha^q. No sort, a few passes over
// the losses:
//   1. histogram: bins of the float's leading bits bracket alpha (alpha grows with every loss and
//   scales with them, so the
//      losses rounded down and up to the edges of their bins give a lower and an upper bound);
//   2. powers: y = (l/A)^(q-1), A = the lower bound, the only pow of each loss, and the sum of
//   (l/A)^q over l < A;
//   3. Newton's iteration finds s = (alpha/A)^q: on a list of what lies in the bracket or, if that
//   is a good part of the row
//      (many equal or nearly equal losses), in passes over the row;
//   4. weights: w = tau min(1, y s^(-1/p)) and the value w.l.
// Short rows and large q take A = rho, the ceil(m)-th largest loss, and a bracket that follows from
// it instead of 1.
#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "pooling/kernels.h"
#include "pooling/loss_rows.h"

namespace evalgrad::pooling {
namespace {

constexpr int64_t kShortRow = 1024;
constexpr double kBracketableQ =
    128.0;  // beyond, (l/A)^q inside a bracket of some bins might leave float32
constexpr int kShift = 31 - kDigit;  // a bin = exponent and 5 bits of the mantissa
constexpr int32_t kInfinityBin = kInfinity >> kShift;
constexpr double kSame =
    1.0 + 1e-9;  // rounding must not part z from an equal s; distinct float32 differ by more

EVALGRAD_SIMD int64_t count_true(const uint8_t* mask, int64_t n) {
    int64_t count = 0;
    for (int64_t begin = 0; begin < n;
         begin += kBlock) {  // 32-bit sums, of which a register holds more
        const int64_t end = n < begin + kBlock ? n : begin + kBlock;
        uint32_t part = 0;
        for (int64_t i = begin; i < end; ++i) part += mask[i] != 0;
        count += part;
    }
    return count;
}

// Sum of x y over the x that are not at or above the limit (NaN: over all), in eight lanes of
// double.
EVALGRAD_SIMD double sum_products(const float* x, const float* y, int64_t n, float limit) {
    double lanes[8] = {};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; ++j)
            lanes[j] += x[i + j] >= limit ? 0.0 : static_cast<double>(x[i + j]) * y[i + j];
    }
    for (; i < n; ++i) lanes[0] += x[i] >= limit ? 0.0 : static_cast<double>(x[i]) * y[i];
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// Sum of the products x y up to the limit and the number of those above, NaN included.
EVALGRAD_SIMD Sums split_products(const float* x, const float* y, int64_t n, double limit) {
    double lanes[8] = {};
    int64_t below[8] = {}, i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; ++j) {
            const double product = static_cast<double>(x[i + j]) * y[i + j];
            lanes[j] += product <= limit ? product : 0.0;
            below[j] += product <= limit;
        }
    }
    for (; i < n; ++i) {
        const double product = static_cast<double>(x[i]) * y[i];
        lanes[0] += product <= limit ? product : 0.0;
        below[0] += product <= limit;
    }
    Sums sums;
    sums.sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
               ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
    sums.above = n;
    for (int j = 0; j < 8; ++j) sums.above -= below[j];
    return sums;
}

// In place: powers y -> weights tau min(1, scale y); returns their product with the losses that
// count.
EVALGRAD_SIMD double finish_weights(const float* losses, const uint8_t* mask, int64_t n,
                                    float scale, float tau, float* y) {
    for (int64_t i = 0; i < n; ++i) y[i] = tau * (scale * y[i] < 1.0f ? scale * y[i] : 1.0f);
    if (!mask) return sum_products(losses, y, n, NAN);
    float counted[kBlock];
    for (int64_t i = 0; i < n; ++i) counted[i] = mask[i] ? losses[i] : 0.0f;
    return sum_products(counted, y, n, NAN);
}

// Keys with low <= alpha < high; low = 0 or infinity: the limits of solve_limit.
struct Bracket {
    int32_t low, high;
};

// At an edge e, h(e) = sum min(l/e, 1)^q lies between its values for losses rounded down and
// rounded up to the edges of their bins: alpha >= e if the former is >= m, alpha < e if the latter
// is < m. The former holds at rho's bin: go up.
Bracket bracket_bins(const int32_t* counts, int32_t rho_bin, int64_t above, double m, double q) {
    int32_t first = 0, low = rho_bin, edges[kBlock];
    while (counts[first] == 0 || first == 0) ++first;  // bin 0 has zeros only
    const double unit = bits_float(rho_bin << kShift);
    double power_before = 0.0, down = 0.0,
           up = 0.0;  // (edge/unit)^q and its sums over the losses below the edge
    int64_t at_or_above = above;
    for (int32_t b = first; b <= rho_bin; ++b) at_or_above += counts[b];
    for (int32_t start = first; start < kInfinityBin; start += kBlock) {
        const int32_t size = std::min<int32_t>(kBlock, kInfinityBin - start);
        float y[kBlock];
        for (int32_t i = 0; i < size; ++i) edges[i] = (start + i) << kShift;
        powers(edges, size, bits_float(rho_bin << kShift), q - 1.0, y);
        for (int32_t i = 0; i < size; ++i) {
            const int32_t bin = start + i;
            const double power = y[i] * (bits_float(edges[i]) / unit);
            const int64_t passed = bin > first ? counts[bin - 1] : 0;
            at_or_above -= passed, down += passed * power_before, up += passed * power,
                power_before = power;
            if (bin <= rho_bin) continue;
            if (low == bin - 1 && at_or_above + down / power >= m) low = bin;
            if (at_or_above + up / power < m) return {low << kShift, edges[i]};
        }
    }
    return {low << kShift, kInfinity};
}

// From A = rho itself: a Newton step from s = 1 overshoots, so that (alpha/rho)^q <= (sum of z <=
// 1) / (m - #{z > 1})
// <= n / (m - ceil(m) + 1).
Bracket bracket_rho(int32_t rho, int64_t n, double m, double q) {
    const double most = bits_float(rho) * std::pow(n / (m - std::ceil(m) + 1.0), 1.0 / q);
    const float rounded = static_cast<float>(most);
    return {rho, std::min(float_bits(rounded) + (rounded <= most),
                          kInfinity)};  // the next float32 after `most`
}

Bracket find_bracket(const Row& row, double m, double q) {
    int64_t rank = static_cast<int64_t>(std::ceil(m));
    if (row.n < kShortRow) return bracket_rho(select_key_of_few(row, rank), row.n, m, q);
    const int32_t* counts = row.histogram(kShift, kDigit, 0);
    const int64_t all = rank;
    const int32_t bin = find_bin(counts, rank);
    if (bin == 0 || bin >= kInfinityBin) return {bin << kShift, bin << kShift};
    if (q <= kBracketableQ) return bracket_bins(counts, bin, all - rank, m, q);
    return bracket_rho(select_key(row, bin, kShift, rank), row.n, m, q);
}

// Root s >= 1 of the convex m s = sum min(z, s), z = (l/A)^q, from the listed z, the sum of those
// below the list and slope = m - #{above it}. Newton's iteration from the right end of the bracket:
// s falls, and a z above s stays above.
double newton_on_list(float* list, int64_t size, double below, double slope) {
    double s = std::numeric_limits<double>::infinity();
    for (bool first = true;; first = false) {
        int64_t kept = 0;
        double sum = below;
        for (int64_t i = 0; i < size; ++i) {
            const float z = list[i];
            list[kept] = z;
            kept += z <= s * kSame;
            sum += z <= s * kSame ? z : 0.0;
        }
        const int64_t dropped = size - kept;
        size = kept;
        slope -= dropped;
        s = sum / slope;
        if (!dropped && !first) return std::max(s, 1.0);
    }
}

// The same from s >= the root, all z taken from the row and its powers y as l y / A.
double newton_on_row(const Row& row, float pivot, double s, double m) {
    for (int64_t above = -1;;) {
        const double limit = std::min(s * pivot * kSame, DBL_MAX);
        const Sums sums = row.sum_keys([&](const int32_t* keys, int64_t begin, int64_t count) {
            float x[kBlock];
            std::memcpy(x, keys, count * sizeof *x);
            return split_products(x, row.weights + begin, count, limit);
        });
        s = sums.sum / pivot / (m - sums.above);
        if (sums.above <= above) return std::max(s, 1.0);
        above = sums.above;
    }
}

// powers() of a block of keys, computed once if they are all the same.
void block_powers(const int32_t* keys, int64_t n, float pivot, double exponent, float* y) {
    const int32_t single = single_key(keys, n);
    if (single < 0) return powers(keys, n, pivot, exponent, y);
    float power;
    powers(&single, 1, pivot, exponent, &power);
    for (int64_t i = 0; i < n; ++i) y[i] = keys[i] ? power : 0.0f;
}

// Powers y = (l/A)^(q-1) into the row's weights; returns s = (alpha/A)^q.
double solve(const Row& row, const Bracket& bracket, double m, double q) {
    const float pivot = bits_float(bracket.low);
    const Sums sums = row.sum_keys([&](const int32_t* keys, int64_t begin, int64_t count) {
        float x[kBlock];
        std::memcpy(x, keys, count * sizeof *x);
        block_powers(keys, count, pivot, q - 1.0, row.weights + begin);
        const double below = sum_products(x, row.weights + begin, count, pivot);
        const int64_t from_low = count_keys(keys, count, bracket.low),
                      beyond_low = count_keys(keys, count, bracket.low + 1);
        return Sums{below, from_low, beyond_low, count_keys(keys, count, bracket.high)};
    });
    if (std::isnan(sums.sum)) return NAN;  // a loss is: no z would compare, and the slope become 0
    const int64_t inside = sums.from_low - sums.above;
    if (sums.beyond_low ==
        sums.above) {  // nothing inside but ties with A, as always at p = 1: one step
        return std::max((sums.sum / pivot + inside) / (m - sums.above), 1.0);
    }
    if (inside * 16 > row.n && row.n >= kShortRow) {
        return newton_on_row(row, pivot,
                             std::pow(static_cast<double>(bits_float(bracket.high)) / pivot, q), m);
    }
    const int64_t size = row.gather(bracket.low, bracket.high);
    const int32_t* keys = row.scratch.keys.data();
    float* list = row.scratch.powers.reserve(size);
    for (int64_t begin = 0; begin < size; begin += kBlock) {
        const int64_t end = std::min(size, begin + kBlock);
        powers(keys + begin, end - begin, pivot, q - 1.0, list + begin);
        for (int64_t i = begin; i < end; ++i) list[i] *= bits_float(keys[i]) / pivot;
    }
    return newton_on_list(list, size, sums.sum / pivot, m - sums.above);
}

// The limits rho = 0 (fewer positive losses than m: all are saturated, s = 1) and rho = inf (only
// infinite losses share).
double solve_limit(const Row& row, int32_t threshold, double m) {
    const Sums sums = row.sum_keys([&](const int32_t* keys, int64_t begin, int64_t count) {
        for (int64_t i = 0; i < count; ++i) row.weights[begin + i] = keys[i] >= threshold;
        return Sums{0.0, 0, 0, count_keys(keys, count, threshold)};
    });
    return std::max(sums.above / m, 1.0);
}

float pool_row(Row row, double p, double support) {
    const int64_t valid = row.mask ? count_true(row.mask, row.n) : row.n;
    if (valid == row.n) row.mask = nullptr;
    const double m = std::clamp(support * valid, 1.0, std::max<double>(valid, 1.0));
    // q = 1e20 at p = 1 is exact: any two float32 have a ratio whose power is 0, 1 or inf.
    const double q = std::isinf(p) ? 1.0 : p / std::max(p - 1.0, 1e-20), inverse_p = 1.0 - 1.0 / q;
    double s = 1.0;
    if (valid == 0 || q == 1.0) {  // nothing, or the plain mean
        for (int64_t i = 0; i < row.n; ++i) row.weights[i] = !row.mask || row.mask[i];
    } else {
        const Bracket bracket = find_bracket(row, m, q);
        const bool limit = bracket.low == 0 || bracket.low >= kInfinity;
        s = limit ? solve_limit(row, std::max(bracket.low, kNormal), m) : solve(row, bracket, m, q);
    }
    const float tau = static_cast<float>(
        std::exp(-std::log(std::max<double>(valid, 1.0)) / q - std::log(m) * inverse_p));
    const float scale = static_cast<float>(std::pow(s, -inverse_p));
    const double value = row.sum_blocks([&](int64_t begin, int64_t count) {
                                return Sums{finish_weights(row.losses + begin, row.mask_at(begin),
                                                           count, scale, tau, row.weights + begin),
                                            0, 0, 0};
                            })
                             .sum;
    if (std::isnan(value)) {  // a loss that counts is NaN: so is every weight that counts
        for (int64_t i = 0; i < row.n; ++i) row.weights[i] = row.mask && !row.mask[i] ? 0.0f : NAN;
    }
    return static_cast<float>(value);
}

}  // namespace

void loss_max_pooling(const float* losses, Optional<const uint8_t> mask, int64_t rows, int64_t n,
                      double p, double support, float* value, float* weights, int64_t threads) {
    advise_huge_pages(weights, rows * n * sizeof(float));
    const int workers = useful_workers(rows * n, static_cast<int>(threads));
    const bool by_row = rows >= workers;  // few rows: the threads share each of them
    std::vector<RowScratch> scratch(by_row ? workers : 1);
    parallel_tasks(rows, by_row ? workers : 1, [&](int64_t r, int worker) {
        const int64_t start = r * n;
        const uint8_t* row_mask = mask ? mask + start : nullptr;
        value[r] = pool_row(
            {losses + start, row_mask, n, weights + start, by_row ? 1 : workers, scratch[worker]},
            p, support);
    });
}

}  // namespace evalgrad::pooling
