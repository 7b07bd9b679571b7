/*!
 * \file kernels/linear/grouped_avx2.h
 * \brief The lookup of codes in 256-bit registers.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_GROUPED_AVX2_H_
#define AIOMLC_KERNELS_LINEAR_GROUPED_AVX2_H_

#include "kernels/linear/grouped_lanes.h"
#include "kernels/linear/linear_avx2.h"

namespace aiomlc {

namespace {

[[gnu::always_inline]] inline __m256i LoadHalf(const void* quad, int half) {
  return _mm256_load_si256(static_cast<const __m256i*>(quad) + half);
}

inline void LookUpCodes(const int8_t (&values)[16], int8_t* codes) {
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
  for (int i = 0; i < 2 * kQuads; ++i) {
    auto* half = reinterpret_cast<__m256i*>(codes) + i;
    _mm256_storeu_si256(half, _mm256_shuffle_epi8(table, _mm256_loadu_si256(half)));
  }
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_GROUPED_AVX2_H_
