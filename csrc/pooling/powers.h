// Powers of positive float32 relative to a pivot, given by their bits, which order like integers
// ("keys").
#pragma once

#include <limits>

#include "common/simd.h"

namespace evalgrad::pooling {

constexpr int64_t kBlock = 1024;  // numbers handled at a time, in the first cache
constexpr int32_t kNormal = 0x00800000,
                  kInfinity = 0x7F800000;  // keys of the smallest normal float32 and of infinity

// out = (x/pivot)^exponent for the keys of n <= kBlock numbers x and a normal pivot, to about 1e-7
// of each result: exponent * log2(x/pivot) is in double, as an exponent of 1000 multiplies the
// error of a logarithm. Exactly 1 at the pivot; 0 if below 2^-126, inf if above 2^127. Three loops:
// in one, the chain of operations is too long for the processor to overlap its iterations.
EVALGRAD_SIMD static void powers(const int32_t* keys, int64_t n, float pivot, double exponent,
                                 float* out) {
    // pivot = a 2^ea with a in [1/sqrt 2, sqrt 2); x = f 2^e with f/a in the same interval, so that
    // near the pivot e = ea.
    const float root = 1.41421356f,
                mantissa_of_pivot = bits_float((float_bits(pivot) & 0x007FFFFF) | 0x3F800000);
    const float a = mantissa_of_pivot > root ? 0.5f * mantissa_of_pivot : mantissa_of_pivot,
                limit = a * root;
    const int32_t ea = (float_bits(pivot) >> 23) + (mantissa_of_pivot > root);
    double log2_power[kBlock];
    for (int64_t i = 0; i < n; ++i) {
        const float mantissa = bits_float((keys[i] & 0x007FFFFF) | 0x3F800000);
        const int32_t halve = mantissa > limit;
        const float f = halve ? 0.5f * mantissa : mantissa;
        const double e = (keys[i] >> 23) - ea + halve;
        // log2(f/a) = 2/log(2) artanh(s), |s| <= 0.172, relative error 7e-10; f - a is exact.
        const double s = static_cast<double>(f - a) / (static_cast<double>(f) + a), z = s * s;
        const double high = 0.57671451016643471 + z * 0.43173301976281686;
        const double series = (2.8853900797912013 + z * 0.9617988462496978) + (z * z) * high;
        log2_power[i] = exponent * (e + s * series);
    }
    float whole[kBlock], rest[kBlock];
    for (int64_t i = 0; i < n; ++i) {
        const double magic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
        double t = log2_power[i] < -127.0 ? -127.0 : log2_power[i];
        t = t > 128.0 ? 128.0 : t;
        const double integer = (t + magic) - magic;
        whole[i] = static_cast<float>(integer);
        rest[i] = static_cast<float>(t - integer);
    }
    for (int64_t i = 0; i < n; ++i) {  // 2^(whole + r) = scale (1 + r poly(r)), poly to 2e-9
        const float r = rest[i], r2 = r * r,
                    scale = bits_float((static_cast<int32_t>(whole[i]) + 127) << 23);
        const float high = (5.5503290352e-2f + 9.6183732514e-3f * r) +
                           r2 * (1.3399848291e-3f + 1.5370704814e-4f * r);
        const float y =
            scale + (scale * r) * ((6.9314720558e-1f + 2.4022648462e-1f * r) + r2 * high);
        const float reached = keys[i] >= kInfinity ? std::numeric_limits<float>::infinity() : y;
        out[i] = keys[i] >= kNormal ? reached : 0.0f;
    }
}

}  // namespace evalgrad::pooling
