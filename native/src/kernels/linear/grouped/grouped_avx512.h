/*!
 * \file kernels/linear/grouped/grouped_avx512.h
 * \brief The dot products of grouped formats in AVX-512, for that tier and AMX.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_AVX512_H_
#define AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_AVX512_H_

#include "kernels/linear/base/linear_avx512.h"
#include "kernels/linear/grouped/grouped_lanes.h"

namespace aiomlc {

namespace {

struct Avx512GroupedDot {
  using Lanes = Avx512Lanes;
  static constexpr int kMaxRows = 4;
  static constexpr bool kIsBiased = true;

  template <int kRows, int kParts, typename Emit>
  [[gnu::always_inline]] static void ForDots(const UnpackedChunk<kParts>& weights,
                                             const BiasedGroup* x, Emit emit) {
    constexpr int kPartQuads = kQuads / kParts;
    __m512i quads[kQuads];
#pragma GCC unroll 8
    for (int i = 0; i < kQuads; ++i) quads[i] = _mm512_load_si512(weights.quads[i]);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        __m512i dot = _mm512_load_si512(weights.offsets[part]);
#pragma GCC unroll 8
        for (int i = 0; i < kPartQuads; ++i) {
          const int quad = part * kPartQuads + i;
          dot = _mm512_dpbusd_epi32(dot, BroadcastFour(x[r].bytes + 4 * quad), quads[quad]);
        }
        emit(r, part, {dot});
      }
    }
  }

  template <int kParts>
  static void SetOffsets(UnpackedChunk<kParts>& chunk) {
    constexpr int kPartQuads = kQuads / kParts;
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(kByteBias));
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 8
      for (int i = 0; i < kPartQuads; ++i) {
        sum = _mm512_dpbusd_epi32(sum, bias, _mm512_load_si512(chunk.quads[part * kPartQuads + i]));
      }
      _mm512_store_si512(chunk.offsets[part], _mm512_sub_epi32(_mm512_setzero_si512(), sum));
    }
  }

  static void LookUp(const int8_t (&values)[16], int8_t* codes) {
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
    for (int i = 0; i < kQuads; ++i, codes += kQuadBytes) {
      _mm512_storeu_si512(codes, _mm512_shuffle_epi8(table, _mm512_loadu_si512(codes)));
    }
  }
};

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_AVX512_H_
