#if defined(__x86_64__)

#include "kernels/linear/base/bf16_lanes.h"
#include "kernels/linear/base/linear_avx512.h"

namespace aiomlc {

#if defined(AIOMLC_AVX512BF16)

namespace {

/*! \brief `vdpbf16ps` flushes denormals by itself. */
struct NoScope {};

struct Avx512BF16Dot {
  using Lanes = Avx512Lanes;
  using Scope = NoScope;
  // 24 sums, three vectors of weights and a pair of activations, which is used three times.
  static constexpr int kMaxRows = 8;
  static constexpr int kTiles = 3;
  static constexpr int kTilesOfOneRow = 4;

  template <int kRows, int kTileCount>
  static void AddProducts(const BF16Step& step, float (*sums)[kTileCount][kTileRows]) {
    __m512 dots[kRows][kTileCount];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int t = 0; t < kTileCount; ++t) dots[r][t] = _mm512_load_ps(sums[r][t]);
    }
    const BF16Tile* weights = step.weights;
    const BF16Group* x = step.x;
    for (int g = 0; g < step.groups; ++g, ++weights, x += step.stride) {
#pragma GCC unroll 1
      for (int i = 0; i < kPairs; ++i) {
        __m512i pairs[kTileCount];
#pragma GCC unroll 4
        for (int t = 0; t < kTileCount; ++t) {
          const uint16_t* of_tile = weights[t * step.tile_stride].pairs[i];
          __builtin_prefetch(reinterpret_cast<const char*>(of_tile) + kPrefetchDistancePerStream);
          pairs[t] = _mm512_loadu_si512(of_tile);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const __m512i two = BroadcastFour(x[r].values + 2 * i);
#pragma GCC unroll 4
          for (int t = 0; t < kTileCount; ++t) AddPairs(pairs[t], two, dots[r][t]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int t = 0; t < kTileCount; ++t) _mm512_store_ps(sums[r][t], dots[r][t]);
    }
  }

 private:
  /*! \brief As an assembler statement, which also keeps the sums in registers. */
  [[gnu::always_inline]] static void AddPairs(__m512i weights, __m512i x, __m512& sums) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(x));
  }
};

}  // namespace

void (*const kBF16Avx512BF16)(const LinearBlock&) = BF16Kernel<Avx512BF16Dot>::Run;

#else

void (*const kBF16Avx512BF16)(const LinearBlock&) = nullptr;

#endif  // defined(AIOMLC_AVX512BF16)

}  // namespace aiomlc

#endif  // defined(__x86_64__)
