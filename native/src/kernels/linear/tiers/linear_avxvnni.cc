#include "kernels/linear/base/linear_kernels.h"

#if defined(AIOMLC_AVXVNNI)

#include "kernels/linear/base/linear_avx2.h"

namespace aiomlc {

namespace {

struct AvxVnniDot {
  using Lanes = Avx2Lanes;
  static constexpr int kMaxRows = 4;

  template <int kRows, typename Emit>
  [[gnu::always_inline]] static void ForDots(const uint8_t* weights, const ActivationGroup* x,
                                             Emit emit) {
    __m256i dots[kRows][2];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) dots[r][0] = dots[r][1] = _mm256_set1_epi32(x[r].offset);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const QuadPair quads = LoadQuads(weights, i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256i low_x = BroadcastFour(x[r].values + 4 * i);
        const __m256i high_x = BroadcastFour(x[r].values + 16 + 4 * i);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          __m256i& dot = dots[r][half];
          dot = _mm256_dpbusd_avx_epi32(dot, quads.low.halves[half], low_x);
          dot = _mm256_dpbusd_avx_epi32(dot, quads.high.halves[half], high_x);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) emit(r, {dots[r][0], dots[r][1]});
  }
};

void Q4OnStreams(const LinearBlock& block) { Q4<AvxVnniDot>(Q4Streams<AvxVnniDot, 1>(block)); }

}  // namespace

void (*const kQ4AvxVnni)(const LinearBlock&) = Q4<AvxVnniDot>;
void (*const kQ4StreamsAvxVnni)(const LinearBlock&) = Q4OnStreams;

}  // namespace aiomlc

#else

namespace aiomlc {

void (*const kQ4AvxVnni)(const LinearBlock&) = nullptr;
void (*const kQ4StreamsAvxVnni)(const LinearBlock&) = nullptr;

}  // namespace aiomlc

#endif  // defined(AIOMLC_AVXVNNI)
