/*!
 * \file kernels/linear/base/linear_avx2.h
 * \brief Loads of q4 weights and activations into 256-bit registers.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_BASE_LINEAR_AVX2_H_
#define AIOMLC_KERNELS_LINEAR_BASE_LINEAR_AVX2_H_

#include <immintrin.h>

#include "kernels/linear/base/linear_lanes.h"
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

/*!
 * \brief Have a sum computed here. GCC would reorder integer additions, and keep all products until
 * then, for which there are not enough registers.
 */
[[gnu::always_inline]] inline void ComputeHere(__m256i& sum) { asm("" : "+x"(sum)); }

/*!
 * \brief Set the products of 32 inputs of 4-bit codes and some rows, as pairs of 16 bits.
 *
 * A pair of products is at most 2 * 15 * 127, so the sum of all eight pairs fits in 16 bits.
 *
 * \param values `values(r)` are the 32 activations of a row, from -127 to 127.
 */
template <int kRows, typename Values>
[[gnu::always_inline]] inline void MultiplyNibbles(const uint8_t* weights, Values values,
                                                   __m256i (&pairs)[kRows][2]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const QuadPair quads = LoadQuads(weights, i);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256i low_x = BroadcastFour(values(r) + 4 * i);
      const __m256i high_x = BroadcastFour(values(r) + 16 + 4 * i);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256i low = _mm256_maddubs_epi16(quads.low.halves[half], low_x);
        const __m256i high = _mm256_maddubs_epi16(quads.high.halves[half], high_x);
        const __m256i sum = _mm256_add_epi16(low, high);
        pairs[r][half] = i == 0 ? sum : _mm256_add_epi16(pairs[r][half], sum);
        ComputeHere(pairs[r][half]);
      }
    }
  }
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_BASE_LINEAR_AVX2_H_
