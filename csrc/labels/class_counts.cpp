// How many items of each row have each label, with a look at all labels on the way.
#include <algorithm>
#include <vector>

#include "common/parallel.h"
#include "labels/kernels.h"

namespace evalgrad::labels {
namespace {

constexpr int64_t kPart = int64_t{1} << 15;

// Adds to the counts of the classes, and behind them to those of ignored and of undeclared labels.
void add_counts(const int64_t* label, int64_t n, int64_t classes, bool ignores, int64_t ignore,
                int64_t* counts) {
    for (int64_t i = 0; i < n; ++i) {
        const int64_t c = label[i];
        const bool declared = static_cast<uint64_t>(c) < static_cast<uint64_t>(classes);
        ++counts[ignores && c == ignore ? classes : declared ? c : classes + 1];
    }
}

}  // namespace

void class_counts(const int64_t* label, int64_t rows, int64_t n, int64_t classes, int64_t ignores,
                  int64_t ignore, int64_t* counts, int64_t* left_out, int64_t threads) {
    const int64_t parts = (n + kPart - 1) / kPart, width = classes + 2;
    const int workers = useful_workers(rows * n, static_cast<int>(threads));
    std::vector<int64_t> own(static_cast<size_t>(workers * rows * width));
    parallel_tasks(rows * parts, workers, [&](int64_t task, int worker) {
        const int64_t row = task / parts, start = task % parts * kPart;
        add_counts(label + row * n + start, std::min(kPart, n - start), classes, ignores != 0,
                   ignore, own.data() + (worker * rows + row) * width);
    });
    std::fill_n(left_out, 2, 0);
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t c = 0; c < width; ++c) {
            int64_t total = 0;
            for (int worker = 0; worker < workers; ++worker)
                total += own[(worker * rows + row) * width + c];
            if (c < classes)
                counts[row * classes + c] = total;
            else
                left_out[c - classes] += total;
        }
    }
}

}  // namespace evalgrad::labels
