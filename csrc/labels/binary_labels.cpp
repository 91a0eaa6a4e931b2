// Labels 0 and 1 as bytes, and which of them count, with a look at all of them on the way. They are
// read once; torch's own passes, one for each of these, take several times as long.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/parallel.h"
#include "common/simd.h"
#include "labels/kernels.h"

namespace evalgrad::labels {
namespace {

struct Found {
    int64_t bits = 0;  // that any label that counts has
    bool ignored = false;
};

// Asked for as read once only, labels leave the caches to the logits, which are read next.
constexpr int64_t kBlock = 256;
EVALGRAD_INLINE void ask_ahead(const int64_t* label) {
    constexpr int64_t kLine = 8;
    for (int64_t i = 0; i < kBlock; i += kLine) __builtin_prefetch(label + i + 2 * kBlock, 0, 0);
}

EVALGRAD_SIMD void narrow(const int64_t* label, int64_t n, uint8_t* foreground, Found& found) {
    int64_t bits = 0;
    for (int64_t start = 0; start < n; start += kBlock) {
        ask_ahead(label + start);
        for (int64_t i = start; i < std::min(n, start + kBlock); ++i) {
            bits |= label[i];
            foreground[i] = static_cast<uint8_t>(label[i] != 0);
        }
    }
    found.bits |= bits;
}

EVALGRAD_SIMD void narrow_and_mask(const int64_t* label, int64_t n, int64_t ignore,
                                   uint8_t* foreground, uint8_t* mask, Found& found) {
    int64_t bits = 0, counted = 0;
    for (int64_t start = 0; start < n; start += kBlock) {
        ask_ahead(label + start);
        for (int64_t i = start; i < std::min(n, start + kBlock); ++i) {
            const int64_t counts = label[i] != ignore;
            bits |= label[i] & -counts;
            counted += counts;
            foreground[i] = static_cast<uint8_t>(label[i] != 0);
            mask[i] = static_cast<uint8_t>(counts);
        }
    }
    found.bits |= bits, found.ignored |= counted < n;
}

}  // namespace

void binary_labels(const int64_t* label, int64_t n, int64_t ignore, uint8_t* foreground,
                   Optional<uint8_t> mask, uint8_t* flags, int64_t threads) {
    constexpr int64_t kPart = int64_t{1} << 15;
    const int64_t parts = (n + kPart - 1) / kPart;
    const int workers = useful_workers(n, static_cast<int>(threads));
    std::vector<Found> found(workers);
    parallel_tasks(parts, workers, [&](int64_t part, int worker) {
        const int64_t start = part * kPart, width = std::min(kPart, n - start);
        if (mask == nullptr) return narrow(label + start, width, foreground + start, found[worker]);
        narrow_and_mask(label + start, width, ignore, foreground + start, mask + start,
                        found[worker]);
    });
    Found all;
    for (const Found& own : found) all.bits |= own.bits, all.ignored |= own.ignored;
    flags[0] = static_cast<uint8_t>((all.bits & ~int64_t{1}) == 0);
    flags[1] = static_cast<uint8_t>(all.ignored);
}

}  // namespace evalgrad::labels
