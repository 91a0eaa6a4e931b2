// Plain loops that the compiler vectorises, compiled once per instruction set and chosen when the
// library is loaded.
#pragma once

#include <cstdint>
#include <cstring>

// A function that is compiled for several instruction sets needs gcc and a loader that knows ifunc
// (glibc); elsewhere the baseline is built. The levels of x86-64 have names since gcc 12. All give
// the same bits: no contraction.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(EVALGRAD_ONE_INSTRUCTION_SET)
#if __GNUC__ >= 12
#define EVALGRAD_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVALGRAD_SIMD __attribute__((target_clones("avx2", "default")))
#endif
#else
#define EVALGRAD_SIMD
#endif

#define EVALGRAD_INLINE inline __attribute__((always_inline))

namespace evalgrad {

EVALGRAD_INLINE int32_t float_bits(float x) {
    int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

EVALGRAD_INLINE float bits_float(int32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// exp(x) for x <= 0 to 1 ulp or so; 0 below -87.3, where float32 leaves its normal range; NaN stays
// NaN. x = n log 2 + r, |r| <= log(2)/2, and a polynomial for exp(r); no branches, so that a loop
// of it becomes SIMD.
EVALGRAD_INLINE float exp_nonpositive(float x) {
    const float magic =
        12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer kept in the low bits
    const float shifted = x * 1.44269504f + magic;
    const float n = shifted - magic;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float poly = 1.9875691500e-4f;
    poly = poly * r + 1.3981999507e-3f;
    poly = poly * r + 8.3334519073e-3f;
    poly = poly * r + 4.1665795894e-2f;
    poly = poly * r + 1.6666665459e-1f;
    poly = poly * r + 5.0000001201e-1f;
    poly = poly * r * r + r + 1.0f;
    const uint32_t exponent = static_cast<uint32_t>(float_bits(shifted)) + (127u - 0x4B400000u);
    const float scale = bits_float(static_cast<int32_t>(exponent << 23));
    return x < -87.3f ? 0.0f : poly * scale;
}

// The same in double: 0 below -708.
EVALGRAD_INLINE double exp_nonpositive(double x) {
    const double magic = 6755399441055744.0;  // 1.5 * 2^52
    const double shifted = x * 1.4426950408889634 + magic;
    const double n = shifted - magic;
    const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double poly = 1.0 / 6227020800;  // Taylor, 1/13! first
    poly = poly * r + 1.0 / 479001600;
    poly = poly * r + 1.0 / 39916800;
    poly = poly * r + 1.0 / 3628800;
    poly = poly * r + 1.0 / 362880;
    poly = poly * r + 1.0 / 40320;
    poly = poly * r + 1.0 / 5040;
    poly = poly * r + 1.0 / 720;
    poly = poly * r + 1.0 / 120;
    poly = poly * r + 1.0 / 24;
    poly = poly * r + 1.0 / 6;
    poly = poly * r + 0.5;
    poly = poly * r * r + r + 1.0;
    uint64_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;  // the low bits of shifted hold n; the others leave on the left
    double scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return x < -708.0 ? 0.0 : poly * scale;
}

// A bit for each of 64 bytes of 0 or 1.
EVALGRAD_INLINE uint64_t pack_bits(const uint8_t* bytes) {
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) {
        uint64_t eight;
        std::memcpy(&eight, bytes + 8 * i, sizeof eight);
        bits |= (eight * 0x0102040810204080u >> 56) << (8 * i);  // gathers the eight in one byte
    }
    return bits;
}

}  // namespace evalgrad
