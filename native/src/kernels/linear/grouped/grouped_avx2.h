/*!
 * \file kernels/linear/grouped/grouped_avx2.h
 * \brief Functions of grouped formats for 256-bit registers.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_AVX2_H_
#define AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_AVX2_H_

#include "kernels/linear/base/linear_avx2.h"
#include "kernels/linear/grouped/grouped_lanes.h"

namespace aiomlc {

namespace {

[[gnu::always_inline]] inline __m256i LoadHalf(const void* quad, int half) {
  return _mm256_load_si256(static_cast<const __m256i*>(quad) + half);
}

template <int kParts>
inline void SetChunkOffsets(UnpackedChunk<kParts>& chunk) {
  constexpr int kPartQuads = kQuads / kParts;
  const __m256i ones = _mm256_set1_epi8(1);
  const __m256i bias = _mm256_set1_epi16(-kByteBias);
  for (int part = 0; part < kParts; ++part) {
    for (int half = 0; half < 2; ++half) {
      __m256i pairs = _mm256_setzero_si256();
#pragma GCC unroll 8
      for (int i = 0; i < kPartQuads; ++i) {
        const __m256i quad = LoadHalf(chunk.quads[part * kPartQuads + i], half);
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(ones, quad));
      }
      _mm256_store_si256(reinterpret_cast<__m256i*>(chunk.offsets[part]) + half,
                         _mm256_madd_epi16(pairs, bias));
    }
  }
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

#endif  // AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_AVX2_H_
