#if defined(__x86_64__)

#include "kernels/linear/base/linear_avx2.h"

#include "kernels/linear/base/bf16_lanes.h"

namespace aiomlc {

namespace {

struct Avx2Dot {
  using Lanes = Avx2Lanes;
  static constexpr int kMaxRows = 8;

  template <int kRows, typename Emit>
  [[gnu::always_inline]] static void ForDots(const uint8_t* weights, const ActivationGroup* x,
                                             Emit emit) {
    __m256i pairs[kRows][2];
    MultiplyNibbles<kRows>(
        weights, [&](int r) __attribute__((always_inline)) { return x[r].values; }, pairs);
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256i offset = _mm256_set1_epi32(x[r].offset);
      emit(r, {_mm256_add_epi32(_mm256_madd_epi16(pairs[r][0], ones), offset),
               _mm256_add_epi32(_mm256_madd_epi16(pairs[r][1], ones), offset)});
    }
  }
};

}  // namespace

void Q4StreamsAvx2(const LinearBlock& block) { Q4<Avx2Dot>(Q4Streams<Avx2Dot, 1>(block)); }

constinit const LinearKernels kLinearAvx2 =
    KernelsOf<Avx2Dot>(BF16Kernel<WidenedPairs<Avx2Lanes>>::Run, GroupedAvx2);

}  // namespace aiomlc

#endif  // defined(__x86_64__)
