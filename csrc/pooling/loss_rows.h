// A row of nonnegative losses, read block by block as sortable keys: sums, histograms and selection
// over it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>

#include "common/memory.h"
#include "common/parallel.h"
#include "common/simd.h"
#include "pooling/powers.h"

namespace evalgrad::pooling {

constexpr int64_t kChunk =
    1 << 15;  // task of a thread; sums are kept per chunk, so results ignore the thread count
constexpr int kDigit = 13;  // bits of a key that one histogram looks at
constexpr int32_t kBins = 1 << kDigit, kElsewhere = kBins, kStride = kBins + 16;

// A key is the bits of a nonnegative float, which order like integers. What is masked, negative or
// subnormal (below 1.2e-38) acts as a loss of 0; NaN as more than infinity, which is as good as
// anything: it shows in the value.
EVALGRAD_SIMD static void load_keys(const float* losses, const uint8_t* mask, int64_t n,
                                    int32_t* keys) {
    for (int64_t i = 0; i < n; ++i)
        keys[i] = float_bits(losses[i]) >= kNormal ? float_bits(losses[i]) : 0;
    if (!mask) return;
    for (int64_t i = 0; i < n; ++i) keys[i] = mask[i] ? keys[i] : 0;
}

EVALGRAD_SIMD static int64_t count_keys(const int32_t* keys, int64_t n, int32_t low) {
    int32_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += keys[i] >= low;
    return count;
}

// The only positive key of a block (0 if there is none), or -1 if it has several: equal losses need
// no work of their own.
EVALGRAD_SIMD static int32_t single_key(const int32_t* keys, int64_t n) {
    int32_t top = 0, others = 0;
    for (int64_t i = 0; i < n; ++i) top = keys[i] > top ? keys[i] : top;
    for (int64_t i = 0; i < n; ++i) others |= (keys[i] != 0) & (keys[i] != top);
    return others ? -1 : top;
}

// Keys -> their `width` bits from `shift` on, or kElsewhere if the bits above are not `prefix`.
EVALGRAD_SIMD static void take_digits(int32_t* keys, int64_t n, int shift, int width,
                                      int32_t prefix) {
    const int32_t ones = (1 << width) - 1;
    for (int64_t i = 0; i < n; ++i) {
        const int32_t head = keys[i] >> shift;
        keys[i] = (head >> width) == prefix ? head & ones : kElsewhere;
    }
}

// Moves the keys in [low, high), low > 0, of a block to its front and returns their number. Few
// are: look at 32 at a time.
EVALGRAD_SIMD static int64_t keep_keys(int32_t* keys, int64_t n, int32_t low, int32_t high) {
    for (int64_t i = n; i % 32; ++i) keys[i] = 0;
    int64_t kept = 0;
    for (int64_t begin = 0; begin < n; begin += 32) {
        int32_t any = 0;
        for (int64_t i = begin; i < begin + 32; ++i) any |= (keys[i] >= low) & (keys[i] < high);
        for (int64_t i = begin; any && i < begin + 32; ++i) {
            const int32_t key = keys[i];
            keys[kept] = key;
            kept += (key >= low) & (key < high);
        }
    }
    return kept;
}

// Counts the digits of a block (see Row::histogram), four in turn in tables that are `step` apart.
inline void count_digits(int32_t* keys, int64_t n, int shift, int width, int32_t prefix,
                         int32_t* table, int64_t step) {
    int32_t single[2] = {0, single_key(keys, n)};
    if (single[1] >= 0) {
        const int32_t positive = static_cast<int32_t>(count_keys(keys, n, 1));
        take_digits(single, 2, shift, width, prefix);
        table[single[0]] += static_cast<int32_t>(n) - positive, table[single[1]] += positive;
        return;
    }
    take_digits(keys, n, shift, width, prefix);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        ++table[keys[i]], ++table[step + keys[i + 1]], ++table[2 * step + keys[i + 2]],
            ++table[3 * step + keys[i + 3]];
    }
    for (; i < n; ++i) ++table[keys[i]];
}

// What a pass over a row adds up: a sum over some losses, the number of some others.
struct Sums {
    double sum = 0.0;
    int64_t from_low = 0, beyond_low = 0, above = 0;  // keys >= low, > low, >= high

    void operator+=(const Sums& other) {
        sum += other.sum, from_low += other.from_low, beyond_low += other.beyond_low,
            above += other.above;
    }
};

// Memory that serves one row after the other.
struct RowScratch {
    Scratch<int32_t> counts, keys;
    Scratch<float> powers;
    Scratch<int64_t> sizes;
    Scratch<Sums> sums;
};

struct Row {
    const float* losses;
    const uint8_t* mask;  // null: everything counts
    int64_t n;
    float* weights;
    int workers;
    RowScratch& scratch;

    const uint8_t* mask_at(int64_t i) const { return mask ? mask + i : nullptr; }
    int64_t chunks() const { return (n + kChunk - 1) / kChunk; }

    // work(begin, count, chunk, worker) for all blocks, chunks in parallel.
    template <class Work>
    void for_blocks(const Work& work) const {
        parallel_tasks(chunks(), workers, [&](int64_t chunk, int worker) {
            const int64_t end = std::min(n, (chunk + 1) * kChunk);
            for (int64_t i = chunk * kChunk; i < end; i += kBlock)
                work(i, std::min(kBlock, end - i), chunk, worker);
        });
    }

    // work(keys, begin, count, chunk, worker) likewise.
    template <class Work>
    void for_keys(const Work& work) const {
        for_blocks([&](int64_t begin, int64_t count, int64_t chunk, int worker) {
            int32_t keys[kBlock];
            load_keys(losses + begin, mask_at(begin), count, keys);
            work(keys, begin, count, chunk, worker);
        });
    }

    // Adds up work(begin, count).
    template <class Work>
    Sums sum_blocks(const Work& work) const {
        Sums *sums = scratch.sums.reserve(chunks()), total;
        std::fill_n(sums, chunks(), Sums{});
        for_blocks([&](int64_t begin, int64_t count, int64_t chunk, int) {
            sums[chunk] += work(begin, count);
        });
        for (int64_t i = 0; i < chunks(); ++i) total += sums[i];
        return total;
    }

    // Adds up work(keys, begin, count).
    template <class Work>
    Sums sum_keys(const Work& work) const {
        return sum_blocks([&](int64_t begin, int64_t count) {
            int32_t keys[kBlock];
            load_keys(losses + begin, mask_at(begin), count, keys);
            return work(keys, begin, count);
        });
    }

    // Number of losses per value of their key's `width` bits from `shift` on, among those whose
    // bits above are `prefix`. Four tables in turn, because equal digits that follow one another
    // would wait for each other.
    const int32_t* histogram(int shift, int width, int32_t prefix) const {
        const int64_t tables = n < kChunk ? 1 : 4, size = tables * kStride;
        int32_t* counts = scratch.counts.reserve(size * workers);
        std::fill_n(counts, size * workers, 0);
        for_keys([&](int32_t* keys, int64_t, int64_t count, int64_t, int worker) {
            count_digits(keys, count, shift, width, prefix, counts + size * worker,
                         tables == 4 ? kStride : 0);
        });
        for (int64_t t = 1; t < tables * workers; ++t) {
            for (int64_t i = 0; i < kBins; ++i) counts[i] += counts[t * kStride + i];
        }
        return counts;
    }

    // The keys in [low, high), in the order of the row; returns their number.
    int64_t gather(int32_t low, int32_t high) const {
        int32_t* kept = scratch.keys.reserve(chunks() * kChunk);
        int64_t *sizes = scratch.sizes.reserve(chunks()), total = 0;
        std::fill_n(sizes, chunks(), 0);
        for_keys([&](int32_t* keys, int64_t, int64_t count, int64_t chunk, int) {
            const int64_t size = keep_keys(keys, count, low, high);
            std::memcpy(kept + chunk * kChunk + sizes[chunk], keys, size * sizeof *keys);
            sizes[chunk] += size;
        });
        for (int64_t i = 0; i < chunks(); total += sizes[i++])
            std::memmove(kept + total, kept + i * kChunk, sizes[i] * sizeof *kept);
        return total;
    }
};

// The bin of the rank-th largest of counted digits; `rank` becomes its rank in the bin. 0 if there
// are fewer.
inline int32_t find_bin(const int32_t* counts, int64_t& rank) {
    int32_t bin = kBins - 1;
    for (; bin > 0 && counts[bin] < rank; --bin) rank -= counts[bin];
    return bin;
}

// The rank-th largest key of a row, the leading bits of which and the rank among keys with the same
// are known (radix select).
inline int32_t select_key(const Row& row, int32_t head, int known_from, int64_t rank) {
    while (known_from > 0) {
        const int width = std::min(kDigit, known_from);
        known_from -= width;
        head = (head << width) | find_bin(row.histogram(known_from, width, head), rank);
    }
    return head;
}

// The same for a short row: clearing and reading a histogram would cost more.
inline int32_t select_key_of_few(const Row& row, int64_t rank) {
    const int64_t size = row.gather(kNormal, 0x7FFFFFFF);
    int32_t* keys = row.scratch.keys.data();
    if (size < rank) return 0;
    std::nth_element(keys, keys + (rank - 1), keys + size, std::greater<int32_t>());
    return keys[rank - 1];
}

}  // namespace evalgrad::pooling
