// Loss-augmented inference for rankings (docs/direct_loss.md): the maximiser of F + s eps Delta,
// Delta = 1 - AP or 1 - NDCG.
//
// A ranking is described by n_i = number of negatives above positive i (or by o_j = number of
// positives above negative j); both metrics are  (1/ideal) sum_i a_i T(i + n_i):  AP has a_i = i,
// T(r) = 1/r, NDCG has a_i = 1, T(r) = 1/log2(1 + r) up to the cutoff. Times |P||N|/2 and up to a
// constant, F + s eps Delta is  sum_i H_i(n_i)  under n_1 <= n_2 <= ..., with
//     H_i(n) = S(n) - n phi_i - s c a_i T(i + n),   S(n) = psi_1 + .. + psi_n,   c = eps |P||N| /
//     (2 ideal).
// Among equally good rankings the one with the most negatives above is taken, as in y_w; equally
// good means up to kTie c, so that rounding does not choose where scores are few-valued (half
// precision) and exact ties do occur.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ranking/chain.h"
#include "ranking/lists.h"

namespace evalgrad::ranking {

// T and its drops T(r-1) - T(r), in a form without cancellation, up to the last rank that counts in
// a row of n items.
struct RankingMetric {
    bool average_precision;
    int64_t cutoff;  // n if there is none
    std::vector<double> gain, drop;

    RankingMetric(bool average_precision, int64_t k, int64_t n)
        : average_precision(average_precision),
          cutoff(k > 0 ? std::min(k, n) : n),
          gain(n + kLanes + 1, 0.0),
          drop(n + kLanes + 1, 0.0) {
        for (int64_t r = 1; r <= cutoff; ++r) {
            gain[r] = 1.0 / (average_precision ? r : std::log2(1.0 + r));
            if (r > 1)
                drop[r] = gain[r - 1] * gain[r] *
                          (average_precision ? 1.0 : std::log1p(1.0 / r) / std::log(2.0));
        }
    }
    double factor(int64_t i) const { return average_precision ? static_cast<double>(i) : 1.0; }
    double ideal(int64_t positives) const {
        if (average_precision) return static_cast<double>(positives);
        double sum = 0;
        for (int64_t i = 1; i <= std::min(positives, cutoff); ++i) sum += gain[i];
        return sum;
    }
};

// A row with a positive and a negative, and the ranking n_i of it: the model's own until `augment`
// moves it. Its buffers live as long as a worker.
class RankedRow {
public:
    explicit RankedRow(const RankingMetric& metric) : metric_(metric) {}

    // False if the row is void. `nan` reports a NaN among the items that count; such a row cannot
    // be ranked.
    template <class Real>
    bool load(const Real* scores, const uint8_t* target, const uint8_t* mask, int64_t n,
              double epsilon, bool& nan) {
        nan = split(scores, target, mask, n, positives_, negatives_);
        P_ = positives_.size();
        N_ = negatives_.size();
        if (P_ == 0 || N_ == 0 || nan) return P_ > 0 && N_ > 0;
        sorter_.sort(scores, positives_);
        sorter_.sort(scores, negatives_);
        ideal_ = metric_.ideal(P_);
        merge(positives_, negatives_,
              epsilon * pairs());  // crossing such a gap costs 2 eps of F, and Delta <= 1
        scale_ = epsilon * pairs() / (2 * ideal_);
        n_.assign(positives_.rank.begin(), positives_.rank.end());
        return true;
    }

    // n_i <- the maximiser of F + sign eps Delta.
    void augment(int sign) {
        weight_.assign(P_ + kLanes, 0.0);
        for (int64_t i = 0; i < P_; ++i) weight_[i] = -sign * scale_ * metric_.factor(i + 1);
        if (cutoff() < P_ + N_) return chain_to_cutoff(sign);
        if (sign > 0) return divide_and_conquer();
        run_chain(P_, sign);
        trace_back(P_, sign);
    }

    // Delta of the ranking n_i.
    double task_loss() const {
        double sum = 0;
        for (int64_t i = 0; i < P_; ++i)
            if (n_[i] > 0)
                sum += metric_.factor(i + 1) * (metric_.gain[i + 1] - metric_.gain[i + 1 + n_[i]]);
        return sum / ideal_;
    }

    // F(y) - F(all positives first) of the ranking n_i = -(2/|P||N|) sum_i sum_{j <= n_i} (phi_i -
    // psi_j), infinities apart.
    double score_above_perfect() const {
        const double top = negatives_.score[0], bottom = positives_.score[P_ - 1];
        if (top > bottom && (std::isinf(top) || std::isinf(bottom)))
            return std::numeric_limits<double>::infinity();
        double sum = 0, S = 0;
        for (int64_t i = 0, j = 0; i < P_; ++i) {
            for (; j < n_[i]; ++j) S += from_top(negatives_.score[j]);
            sum += S - n_[i] * from_top(positives_.score[i]);
        }
        return 2 * sum / pairs();
    }

    // factor * (dF(y) - dF(y_reference)); the reference is y_w or all positives first. Adding 0
    // leaves no -0.
    template <class Real>
    void write_gradient(double factor, bool reference_is_model, Real* gradient) const {
        const double unit = -2 * factor / pairs();
        for (int64_t i = 0; i < P_; ++i) {
            const int64_t moved = n_[i] - (reference_is_model ? positives_.rank[i] : 0);
            gradient[positives_.index[i]] = static_cast<Real>(unit * moved + 0.0);
        }
        for (int64_t j = 0, o = 0; j < N_; ++j) {
            while (o < P_ && n_[o] <= j) ++o;  // o_j
            const int64_t moved = o - (reference_is_model ? negatives_.rank[j] : P_);
            gradient[negatives_.index[j]] = static_cast<Real>(unit * moved + 0.0);
        }
    }

private:
    double pairs() const { return static_cast<double>(P_) * N_; }

    // A score relative to the largest finite one. An infinite score in an inverted pair has met its
    // like (see above), and the two cancel: both may count as 0.
    double from_top(double score) const {
        const double top = std::max(positives_.score[0], negatives_.score[0]);
        return std::isinf(score) ? 0.0 : score - (std::isinf(top) ? 0.0 : top);
    }

    // Positive direction. Negative j chooses o_j to maximise  sum_{i > o} m(i, j),  m(i, j) = psi_j
    // - phi_i + c a_i drop(i + j). Every m falls with j (1/r and 1/log2(1 + r) are convex), so the
    // best o_j rise with j, and the negatives decouple.
    void divide_and_conquer() {
        o_.resize(N_);
        place_negatives(0, N_, 0, P_);
        for (int64_t i = 0, j = 0; i < P_; n_[i++] = j)
            while (j < N_ && o_[j] <= i) ++j;
    }

    // o_j for first <= j < end, known to lie between low and high.
    void place_negatives(int64_t first, int64_t end, int64_t low, int64_t high) {
        if (low == high) std::fill(o_.begin() + first, o_.begin() + end, low), first = end;
        if (first >= end) return;
        const int64_t middle = first + (end - first) / 2;
        const double psi = negatives_.z[middle], tie = kTie * scale_;
        const double* drop = &metric_.drop[middle + 1];
        double sum = 0, best = 0;
        int64_t choice = std::min(
            high, negatives_.rank[middle]);  // never below its place in the model's ranking
        for (int64_t i = choice; i > low; --i) {
            sum += (psi - positives_.z[i - 1]) - weight_[i - 1] * drop[i];
            if (sum >= best - tie) choice = i - 1;
            best = std::max(best, sum);
        }
        o_[middle] = choice;
        place_negatives(first, middle, low, choice);
        place_negatives(middle + 1, end, choice, high);
    }

    // With a cutoff k a positive is inside (i + n_i <= k) or outside, where T = 0 and only F
    // counts; all after an outside one are outside. So: the chain over at most k positives and k
    // ranks, and for each possible first positive outside the best of F from it on, in closed form:
    // the model's own places or, if lower, that of the first one outside, m negatives down.
    void chain_to_cutoff(int sign) {
        const int64_t k = metric_.cutoff, inside = std::min(P_, k);
        const std::vector<int64_t>& rank = positives_.rank;
        run_chain(inside, sign);
        int64_t outside = 0;  // number of positives the model has inside the cutoff; the next one
                              // is its first outside
        while (outside < P_ && outside + 1 + rank[outside] <= k) ++outside;
        std::vector<double> phi(P_ + 1, 0.0),
            base(P_ + 1, 0.0);  // prefix sums of phi and of F's part at the model's places
        for (int64_t i = 0; i < P_; ++i) {
            phi[i + 1] = phi[i] + positives_.z[i];
            base[i + 1] = base[i] + (chain_.sum(rank[i]) - rank[i] * positives_.z[i]);
        }
        double best = kNever;
        int64_t kept = 0, place = 0;
        for (int64_t i = sign < 0 ? outside : 0;
             i <= (sign < 0 ? inside : std::min(outside, inside)); ++i) {  // i stay inside
            double total = (i > 0 ? chain_.best(i - 1) : 0.0) - base[i];
            int64_t m = 0;
            if (i < P_) m = std::max(rank[i], sign < 0 ? 0 : k - i);
            if (m > N_) continue;
            if (m > 0 && i < P_) {
                const int64_t pushed = std::max(
                    i, negatives_.rank[m - 1]);  // positives i .. pushed-1 stand above negative m
                total += ((pushed - i) * chain_.sum(m) - m * (phi[pushed] - phi[i])) -
                         (base[pushed] - base[i]);
            }
            if (total > best + kTie * scale_) best = total, kept = i, place = m;
        }
        for (int64_t i = kept; i < P_; ++i) n_[i] = std::max(rank[i], place);
        trace_back(kept, sign);
    }

    // The chain over the first `rows` positives. In the negative direction n_i <= rank of i,
    // because every step further down loses in F and in Delta.
    void run_chain(int64_t rows, int sign) {
        const auto end = [&](int64_t i) { return (sign < 0 ? positives_.rank[i] : N_) + 1; };
        chain_.run(positives_.z, negatives_.z, weight_.data(), metric_.gain.data(), kTie * scale_,
                   rows, cutoff(), end);
    }

    // n_i of the first `rows` positives: from the last one up, the last record not beyond its
    // successor and its band.
    void trace_back(int64_t rows, int sign) {
        int64_t n = N_;
        for (int64_t i = rows - 1; i >= 0; --i) {
            n = std::min({n, cutoff() - (i + 1), sign < 0 ? positives_.rank[i] : N_});
            n = chain_.last_record(i, n);
            n_[i] = sign < 0 ? n : std::max(n, positives_.rank[i]);
        }
    }

    // A cutoff that no item of this row is beyond is none.
    int64_t cutoff() const {
        return metric_.cutoff < P_ + N_ ? metric_.cutoff : std::numeric_limits<int64_t>::max();
    }

    const RankingMetric& metric_;
    ItemSorter sorter_;
    SortedItems positives_, negatives_;
    Chain chain_;
    int64_t P_ = 0, N_ = 0;
    double ideal_ = 0, scale_ = 0;
    std::vector<int64_t> n_, o_;
    std::vector<double> weight_;
};

}  // namespace evalgrad::ranking
