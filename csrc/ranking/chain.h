// The chain D_i(n) = H_i(n) + max_{m <= n} D_{i-1}(m) over the positives of one row, for any
// direction and metric:
//     H_i(n) = S(n) - n phi_i + weight_i T(i + n),   S(n) = psi_1 + .. + psi_n.
// It keeps one bit per cell, so that 20,000 positives x 200,000 negatives need 0.5 GB at most.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common/memory.h"
#include "common/simd.h"

// The last of `before` and the first three of `now`.
#if defined(__clang__)
#define EVALGRAD_SHIFT_IN(before, now) __builtin_shufflevector(before, now, 3, 4, 5, 6)
#else
#define EVALGRAD_SHIFT_IN(before, now) __builtin_shuffle(before, now, Bits{3, 4, 5, 6})
#endif

namespace evalgrad::ranking {

constexpr int kLanes = 16;  // positives advanced together
constexpr double kNever = -std::numeric_limits<double>::infinity();

// Running maxima of D for kLanes consecutive positives. Lane l works at n = t - l in step t: it
// then needs what lane l-1 had one step before, and all lanes share the rank i + n, hence T.
//   sums[l - t] = S(t - l), kNever outside [0, |N|];  gain[t] = T;  running[n] = max_{m <= n} D(m)
//   of the positive before the lanes on entry, of the last lane on exit;  last[l] = the maximum
//   lane l ends with;  a bit of `records` per cell is set where D reaches the maximum so far up to
//   `tie`: bit 63 - t % 64 of records[t / 64 * kLanes + l].
EVALGRAD_SIMD inline void chain_lanes(const double* sums, const double* gain, const double* phi,
                                      const double* weight, double tie, double* running,
                                      int64_t steps, uint64_t* records, double* last) {
    typedef double Reals __attribute__((vector_size(32)));
    typedef uint64_t Bits __attribute__((vector_size(32)));
    constexpr int kParts = kLanes / 4;
    Reals best[kParts], n[kParts], slope[kParts], factor[kParts], sum;
    for (int p = 0; p < kParts; ++p) {
        std::memcpy(&slope[p], phi + 4 * p, sizeof sum);
        std::memcpy(&factor[p], weight + 4 * p, sizeof sum);
        best[p] = Reals{kNever, kNever, kNever, kNever};
        n[p] = Reals{0, -1, -2, -3} - 4.0 * p;
    }
    for (int64_t t = 0; t < steps;) {
        const int64_t end = std::min(t + 64, steps), unused = 64 - (end - t);
        Bits bits[kParts] = {};
        for (; t < end; ++t) {
            Reals before = Reals{} + running[t];
            for (int p = 0; p < kParts; ++p) {
                const Reals shifted = EVALGRAD_SHIFT_IN(before, best[p]);
                before = best[p];
                std::memcpy(&sum, sums + 4 * p - t, sizeof sum);
                const Reals d = ((sum - n[p] * slope[p]) + factor[p] * gain[t]) + shifted;
                const Bits is_record = (Bits)(d + tie >= best[p]);  // all ones where true
                bits[p] = bits[p] + bits[p] - is_record;
                best[p] = d > best[p] ? d : best[p];
                n[p] += 1.0;
            }
            if (t >= kLanes - 1) running[t - (kLanes - 1)] = best[kParts - 1][3];
        }
        for (int p = 0; p < kParts; ++p) bits[p] <<= unused;
        std::memcpy(records + (end - 1) / 64 * kLanes, bits, sizeof bits);
    }
    std::memcpy(last, best, sizeof best);
}

class Chain {
public:
    // `end(i)`: the largest n + 1 that positive i (from 0) may take; `cutoff`: cells of a rank i +
    // 1 + n above it do not exist. `weight` and `gain` are readable kLanes beyond the end. `tie`:
    // what rounding may separate and yet counts as equal.
    template <class End>
    void run(const std::vector<double>& phi, const std::vector<double>& psi, const double* weight,
             const double* gain, double tie, int64_t rows, int64_t cutoff, const End& end) {
        add_up(psi);
        const int64_t blocks = (rows + kLanes - 1) / kLanes;
        const auto steps_of = [&](int64_t block) {
            const int64_t band = end(std::min((block + 1) * kLanes, rows) - 1) + kLanes - 1;
            return std::min(band, cutoff - block * kLanes);
        };
        offsets_.assign(1, 0);
        for (int64_t block = 0; block < blocks; ++block)
            offsets_.push_back(offsets_[block] + (steps_of(block) + 63) / 64 * kLanes);
        uint64_t* records =
            records_.reserve(offsets_[blocks]);  // not initialised: every word in use is written
        running_.assign(psi.size() + kLanes + 1, 0.0);
        last_.resize(blocks * kLanes);
        double slope[kLanes] = {};
        int64_t known =
            static_cast<int64_t>(running_.size());  // running_ holds the running maxima below it
        for (int64_t block = 0; block < blocks; ++block) {
            const int64_t first = block * kLanes, steps = steps_of(block);
            // Beyond the band of the positive before nothing exceeds its maximum.
            if (known < steps)
                std::fill(running_.begin() + known, running_.begin() + steps, last_[first - 1]);
            std::copy_n(&phi[first],
                        std::min<int64_t>(kLanes, static_cast<int64_t>(phi.size()) - first), slope);
            chain_lanes(&sums_[zero_], gain + first + 1, slope, weight + first, tie,
                        running_.data(), steps, records + offsets_[block], &last_[first]);
            known = std::max<int64_t>(steps - (kLanes - 1), 0);
        }
    }

    double sum(int64_t n) const { return sums_[zero_ - n]; }
    double best(int64_t i) const { return last_[i]; }  // max D_i

    // The last record of positive i at or before n. There is one: n = 0.
    int64_t last_record(int64_t i, int64_t n) const {
        const int64_t lane = i % kLanes;
        const uint64_t* words = records_.data() + offsets_[i / kLanes] + lane;
        int64_t t = n + lane;
        uint64_t bits = words[t / 64 * kLanes] >> (63 - t % 64);
        while (bits == 0) {
            t -= t % 64 + 1;
            bits = words[t / 64 * kLanes];
        }
        return t - __builtin_ctzll(bits) - lane;
    }

private:
    // S backwards, so that the lanes of a step are neighbours in memory.
    void add_up(const std::vector<double>& psi) {
        zero_ = static_cast<int64_t>(psi.size()) + kLanes;
        sums_.assign(zero_ + kLanes + 1, kNever);
        sums_[zero_] = 0;
        for (int64_t j = 0; j < zero_ - kLanes; ++j)
            sums_[zero_ - j - 1] = sums_[zero_ - j] + psi[j];
    }

    int64_t zero_ = 0;
    std::vector<double> sums_, running_, last_;
    std::vector<int64_t> offsets_;
    Scratch<uint64_t> records_;
};

}  // namespace evalgrad::ranking
