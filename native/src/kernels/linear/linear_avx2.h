/*!
 * \file kernels/linear/linear_avx2.h
 * \brief What the kernels of linear layers in registers of 256 bits share.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_LINEAR_AVX2_H_
#define AIOMLC_KERNELS_LINEAR_LINEAR_AVX2_H_

#include <immintrin.h>

#include "kernels/linear/linear_chunks.h"
#include "kernels/linear/linear_kernels.h"

namespace aiomlc {

namespace {

constexpr int kRows = 16;  // Of a tile: two registers of floats.
constexpr int kGroup = 32;
constexpr int kGroupStride = 288;
constexpr int kNibbleBytes = 256;
constexpr int kAhead = 4096;  // Bytes between what is fetched and what is used.

inline void StoreHalf(const LinearBlock& block, int64_t at, int64_t count, __m256 sums) {
  if (block.out_type == FloatType::kF32) {
    float* out = static_cast<float*>(block.out) + at;
    if (count >= 8) {
      _mm256_storeu_ps(out, sums);
      return;
    }
    float values[8];
    _mm256_storeu_ps(values, sums);
    for (int64_t n = 0; n < count; ++n) out[n] = values[n];
    return;
  }
  uint16_t* out = static_cast<uint16_t*>(block.out) + at;
  const __m128i halves = _mm256_cvtps_ph(sums, _MM_FROUND_TO_NEAREST_INT);
  if (count >= 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), halves);
    return;
  }
  uint16_t values[8];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(values), halves);
  for (int64_t n = 0; n < count; ++n) out[n] = values[n];
}

inline __m256 LoadUpTo8(const float* from, int64_t count) {
  if (count >= 8) return _mm256_loadu_ps(from);
  float values[8] = {};
  for (int64_t n = 0; n < count; ++n) values[n] = from[n];
  return _mm256_loadu_ps(values);
}

inline void Store(const LinearBlock& block, int64_t row, int64_t tile, const __m256* sums) {
  for (int half = 0; half < 2; ++half) {
    const int64_t first = tile * kRows + 8 * half;
    const int64_t count = block.rows_n - first;
    if (count <= 0) return;
    __m256 values = sums[half];
    if (block.bias != nullptr) {
      values = _mm256_add_ps(values, LoadUpTo8(block.bias + first, count));
    }
    StoreHalf(block, row * block.rows_n + first, count, values);
  }
}

inline __m256i BroadcastFour(const int8_t* four_values) {
  int32_t bits;
  __builtin_memcpy(&bits, four_values, sizeof(bits));
  return _mm256_set1_epi32(bits);
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_LINEAR_AVX2_H_
