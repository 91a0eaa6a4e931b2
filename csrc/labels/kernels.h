// Kernels that read labels, for all systems: each label once, where torch would take several
// passes.
#pragma once

#include "common/kernel.h"

namespace evalgrad::labels {

// From labels 0 and 1 (n): foreground (n); mask (n), or null if no label is to be ignored; flags
// (2): whether all that count are 0 or 1, whether any is ignored.
void binary_labels(const int64_t* label, int64_t n, int64_t ignore, uint8_t* foreground,
                   Optional<uint8_t> mask, uint8_t* flags, int64_t threads);

// From labels (rows, n): counts (rows, classes) of each; left_out (2): how many are `ignore`, if
// `ignores` is not 0, and how many of the others are no class.
void class_counts(const int64_t* label, int64_t rows, int64_t n, int64_t classes, int64_t ignores,
                  int64_t ignore, int64_t* counts, int64_t* left_out, int64_t threads);

}  // namespace evalgrad::labels
