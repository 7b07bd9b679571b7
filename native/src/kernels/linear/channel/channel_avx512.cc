#if defined(__x86_64__)

#include "kernels/linear/base/linear_avx512.h"
#include "kernels/linear/channel/channel_lanes.h"

namespace aiomlc {

namespace {

struct Avx512ChannelDot {
  using Lanes = Avx512Lanes;
  // 24 sums, three quads of weights and an activation: each loaded activation is used three times.
  static constexpr int kMaxRows = 8;
  static constexpr int kTiles = 3;
  static constexpr int kTilesOfOneRow = 1;
  static constexpr uint8_t kBias = kByteBias;

  template <int kRows, int kTileCount>
  static void AddProducts(const ChannelStep& step, int32_t (*sums)[kTileCount][kTileRows]) {
    constexpr int kDistance = kTileCount == 1 ? kPrefetchDistance : kPrefetchDistancePerStream;
    __m512i dots[kRows][kTileCount];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
      for (int t = 0; t < kTileCount; ++t) dots[r][t] = _mm512_load_si512(sums[r][t]);
    }
    const int8_t* weights = step.weights;
    const uint8_t* x = step.x;
    for (int g = 0; g < step.groups; ++g, x += step.stride) {
#pragma GCC unroll 1
      for (int q = 0; q < kChannelQuads; ++q, weights += kChannelQuadBytes) {
        __m512i quads[kTileCount];
#pragma GCC unroll 3
        for (int t = 0; t < kTileCount; ++t) {
          const int8_t* quad = weights + t * step.tile_bytes;
          // More rows read the weights from the first-level cache, but for the first of them.
          if constexpr (kRows < kMaxRows) __builtin_prefetch(quad + kDistance);
          quads[t] = _mm512_loadu_si512(quad);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const __m512i four = BroadcastFour(x + r * kChannelGroup + 4 * q);
#pragma GCC unroll 3
          for (int t = 0; t < kTileCount; ++t) {
            dots[r][t] = _mm512_dpbusd_epi32(dots[r][t], four, quads[t]);
            // Without this, the compiler copies all sums to the stack in each iteration.
            asm("" : "+v"(dots[r][t]));
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
      for (int t = 0; t < kTileCount; ++t) _mm512_store_si512(sums[r][t], dots[r][t]);
    }
  }
};

/*! \brief The same with several streams of weights for one row, whose limit is memory. */
struct Avx512StreamsDot : Avx512ChannelDot {
  static constexpr int kTilesOfOneRow = 3;
};

void MultiplyProgressive(const LinearBlock& block) {
  const int64_t rows = block.row_end - block.row_begin;
  if (rows <= 0) return;
  if (rows <= kPanelRows) return FewProgressiveRowsAvx512(block);
  ChannelKernel<Avx512ChannelDot, ProgressiveMatrix>::Run(block);
}

}  // namespace

void ChannelStreamsAvx512(const LinearBlock& block) {
  ChannelKernel<Avx512StreamsDot, Int8Matrix>::Run(block);
}

constinit const ChannelKernels kChannelAvx512 = {
    QuantizeChannelRow<Avx512Lanes, Avx512ChannelDot::kBias>,
    ChannelKernel<Avx512ChannelDot, Int8Matrix>::Run, RotateRow<Avx512Lanes>, MultiplyProgressive};

}  // namespace aiomlc

#endif  // defined(__x86_64__)
