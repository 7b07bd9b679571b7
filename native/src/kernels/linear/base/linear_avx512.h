/*!
 * \file kernels/linear/base/linear_avx512.h
 * \brief Functions of the AVX-512 and AMX kernels of linear layers.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_BASE_LINEAR_AVX512_H_
#define AIOMLC_KERNELS_LINEAR_BASE_LINEAR_AVX512_H_

// GCC 12 warns about its own header, which creates undefined values by self-initialization.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include "kernels/linear/base/linear_lanes.h"
#include "kernels/simd/simd_avx512.h"

namespace aiomlc {

namespace {

/*! \param four_values Four bytes. */
[[gnu::always_inline]] inline __m512i BroadcastFour(const void* four_values) {
  int32_t bits;
  __builtin_memcpy(&bits, four_values, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

inline void StoreSums(const LinearBlock& block, int64_t row, int64_t tile, __m512 sums) {
  StoreOutputs<Avx512Lanes>(block, row, tile, {sums});
}

[[gnu::always_inline]] inline __m512 AddScaledDot(__m512i dot, __m512 weight_scales,
                                                  const ActivationGroup& x, __m512 sums) {
  return AddScaled<Avx512Lanes>({dot}, {weight_scales}, x.scale, {sums}).all;
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_BASE_LINEAR_AVX512_H_
