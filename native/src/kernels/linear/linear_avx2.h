/*!
 * \file kernels/linear/linear_avx2.h
 * \brief Loads of q4 weights and activations into 256-bit registers.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_LINEAR_AVX2_H_
#define AIOMLC_KERNELS_LINEAR_LINEAR_AVX2_H_

#include <immintrin.h>

#include "kernels/linear/linear_lanes.h"
#include "kernels/simd/simd_avx2.h"

namespace aiomlc {

namespace {

/*! \brief Four inputs of the 16 outputs of a tile, in two halves of 8 outputs, as 0 to 15. */
struct Quads {
  __m256i halves[2];
};

/*! \brief Inputs [4i, 4i + 4) and [4i + 16, 4i + 20) of a group. */
struct QuadPair {
  Quads low, high;
};

[[gnu::always_inline]] inline QuadPair LoadQuads(const uint8_t* weights, int i) {
  const __m256i low_nibbles = _mm256_set1_epi8(15);
  QuadPair quads;
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m256i bytes =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 64 * i + 32 * half));
    quads.low.halves[half] = _mm256_and_si256(bytes, low_nibbles);
    quads.high.halves[half] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low_nibbles);
  }
  return quads;
}

/*! \param four_values Four bytes. */
[[gnu::always_inline]] inline __m256i BroadcastFour(const void* four_values) {
  int32_t bits;
  __builtin_memcpy(&bits, four_values, sizeof(bits));
  return _mm256_set1_epi32(bits);
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_LINEAR_AVX2_H_
