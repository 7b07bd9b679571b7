/*!
 * \file kernels/linear/channel/channel_avx2.h
 * \brief The sums of int8 with one scale per output in 256-bit registers.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_AVX2_H_
#define AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_AVX2_H_

#include "kernels/linear/base/linear_avx2.h"
#include "kernels/linear/channel/channel_lanes.h"

namespace aiomlc {

namespace {

/*! \brief A `Dot` of channel_lanes.h. \tparam Products Adds four products to each sum. */
template <typename Products>
struct ChannelDotOf256 {
  using Lanes = Avx2Lanes;
  static constexpr int kMaxRows = 4;
  static constexpr int kTiles = 1;
  static constexpr uint8_t kBias = Products::kBias;

  template <int kRows, int kTileCount>
  static void AddProducts(const ChannelStep& step, int32_t (*sums)[kTileCount][kTileRows]) {
    __m256i dots[kRows][2];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      dots[r][0] = _mm256_load_si256(reinterpret_cast<const __m256i*>(sums[r][0]));
      dots[r][1] = _mm256_load_si256(reinterpret_cast<const __m256i*>(sums[r][0] + 8));
    }
    const int8_t* weights = step.weights;
    const uint8_t* x = step.x;
    for (int g = 0; g < step.groups; ++g, x += step.stride) {
#pragma GCC unroll 2
      for (int q = 0; q < kChannelQuads; ++q, weights += kChannelQuadBytes) {
        __builtin_prefetch(weights + kPrefetchDistance);
        const auto* quad = reinterpret_cast<const __m256i*>(weights);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const Products products(_mm256_loadu_si256(quad + half));
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            const __m256i four = BroadcastFour(x + r * kChannelGroup + 4 * q);
            dots[r][half] = products.Add(dots[r][half], four);
          }
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(sums[r][0]), dots[r][0]);
      _mm256_store_si256(reinterpret_cast<__m256i*>(sums[r][0] + 8), dots[r][1]);
    }
  }
};

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_AVX2_H_
