/*!
 * \file kernels/linear/linear_avx512.h
 * \brief What the kernels of linear layers in AVX-512 registers share, with tiles or without.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_LINEAR_AVX512_H_
#define AIOMLC_KERNELS_LINEAR_LINEAR_AVX512_H_

// GCC 12 warns about its own header, where "undefined" values are made by self-initialisation.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include "kernels/linear/linear_kernels.h"

namespace aiomlc {

namespace {

constexpr int kRows = 16;  // Of a tile: one register of floats.
constexpr int kGroup = 32;
constexpr int kGroupStride = 288;
constexpr int kNibbleBytes = 256;
// Bytes between what is fetched and what is used, of float weights, which come in several streams.
constexpr int kAheadPerStream = 1536;

inline __mmask16 MaskOf(int64_t count) {
  return count >= kRows ? 0xffff : static_cast<__mmask16>((1u << count) - 1);
}

inline void Store(const LinearBlock& block, int64_t row, int64_t tile, __m512 sums) {
  const int64_t first = tile * kRows;
  const __mmask16 mask = MaskOf(block.rows_n - first);
  if (block.bias != nullptr) {
    sums = _mm512_add_ps(sums, _mm512_maskz_loadu_ps(mask, block.bias + first));
  }
  const int64_t at = row * block.rows_n + first;
  if (block.out_type == FloatType::kF32) {
    _mm512_mask_storeu_ps(static_cast<float*>(block.out) + at, mask, sums);
  } else {
    const __m256i halves = _mm512_cvtps_ph(sums, _MM_FROUND_TO_NEAREST_INT);
    _mm256_mask_storeu_epi16(static_cast<uint16_t*>(block.out) + at, mask, halves);
  }
}

inline __attribute__((always_inline)) __m512 AddScaled(__m512i dot, __m512 weight_scales,
                                                       const ActivationGroup& x, __m512 sums) {
  const __m512 scale = _mm512_mul_ps(weight_scales, _mm512_set1_ps(x.scale));
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sums);
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_LINEAR_AVX512_H_
