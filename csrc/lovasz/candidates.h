// Keys for a sort of those items, of many, that can have a weight.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/simd.h"
#include "common/sort.h"

namespace evalgrad::lovasz {

// Keys of the items for which items.wanted(i) holds, in their sequence, made of items.order(i) and
// items.foreground(i). There must be room for one more.
template <class Items>
EVALGRAD_SIMD static int64_t collect(const Items& items, int64_t n, uint64_t* keys) {
    constexpr int64_t kTogether = 64;
    int64_t count = 0;
    for (int64_t start = 0; start < n; start += kTogether) {
        const int64_t width = std::min(kTogether, n - start);
        uint8_t wanted[kTogether] = {};
        for (int64_t j = 0; j < width; ++j) wanted[j] = items.wanted(start + j);
        uint64_t bits = pack_bits(wanted);
        if (__builtin_popcountll(bits) > kTogether / 4) {
            uint32_t order[kTogether];
            for (int64_t j = 0; j < width; ++j) order[j] = items.order(start + j);
            for (int64_t j = 0; j < width; ++j) {
                keys[count] =
                    pack_key(order[j], items.offset + start + j, items.foreground(start + j));
                count += wanted[j];  // no branch to mispredict
            }
        } else {
            for (; bits != 0; bits &= bits - 1) {
                const int64_t i = start + __builtin_ctzll(bits);
                keys[count++] = pack_key(items.order(i), items.offset + i, items.foreground(i));
            }
        }
    }
    return count;
}

}  // namespace evalgrad::lovasz
