#if defined(__x86_64__)

#include "kernels/linear/linear_avx2.h"

namespace aiomlc {

namespace {

struct Avx2Dot {
  using Lanes = Avx2Lanes;
  static constexpr int kMaxRows = 4;

  template <int kRows, typename Emit>
  [[gnu::always_inline]] static void ForDots(const uint8_t* weights, const ActivationGroup* x,
                                             Emit emit) {
    // A pair of products is at most 2 * 15 * 127, so the sum of all eight pairs fits in 16 bits.
    __m256i pairs[kRows][2];
    for (int r = 0; r < kRows; ++r) pairs[r][0] = pairs[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const QuadPair quads = LoadQuads(weights, i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256i low_x = BroadcastFour(x[r].values + 4 * i);
        const __m256i high_x = BroadcastFour(x[r].values + 16 + 4 * i);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const __m256i low = _mm256_maddubs_epi16(quads.low.halves[half], low_x);
          const __m256i high = _mm256_maddubs_epi16(quads.high.halves[half], high_x);
          pairs[r][half] = _mm256_add_epi16(pairs[r][half], _mm256_add_epi16(low, high));
        }
      }
    }
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256i offset = _mm256_set1_epi32(x[r].offset);
      emit(r, {_mm256_add_epi32(_mm256_madd_epi16(pairs[r][0], ones), offset),
               _mm256_add_epi32(_mm256_madd_epi16(pairs[r][1], ones), offset)});
    }
  }
};

}  // namespace

constinit const LinearKernels kLinearAvx2 = KernelsOf<Avx2Dot>(GroupedAvx2);

}  // namespace aiomlc

#endif  // defined(__x86_64__)
