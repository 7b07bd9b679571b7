#include "kernels/linear/base/linear_kernels.h"

#if defined(AIOMLC_AVXVNNI)

#include "kernels/linear/grouped/grouped_avx2.h"

namespace aiomlc {

namespace {

struct AvxVnniGroupedDot {
  using Lanes = Avx2Lanes;
  static constexpr int kMaxRows = 4;
  static constexpr bool kIsBiased = true;

  template <int kRows, int kParts, typename Emit>
  [[gnu::always_inline]] static void ForDots(const UnpackedChunk<kParts>& weights,
                                             const BiasedGroup* x, Emit emit) {
    constexpr int kPartQuads = kQuads / kParts;
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      __m256i dots[kRows][2];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        dots[r][0] = LoadHalf(weights.offsets[part], 0);
        dots[r][1] = LoadHalf(weights.offsets[part], 1);
      }
#pragma GCC unroll 8
      for (int i = part * kPartQuads; i < (part + 1) * kPartQuads; ++i) {
        const __m256i low = LoadHalf(weights.quads[i], 0);
        const __m256i high = LoadHalf(weights.quads[i], 1);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const __m256i four = BroadcastFour(x[r].bytes + 4 * i);
          dots[r][0] = _mm256_dpbusd_avx_epi32(dots[r][0], four, low);
          dots[r][1] = _mm256_dpbusd_avx_epi32(dots[r][1], four, high);
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) emit(r, part, {dots[r][0], dots[r][1]});
    }
  }

  template <int kParts>
  static void SetOffsets(UnpackedChunk<kParts>& chunk) {
    SetChunkOffsets(chunk);
  }

  static void LookUp(const int8_t (&values)[16], int8_t* codes) { LookUpCodes(values, codes); }
};

}  // namespace

void (*const kGroupedAvxVnni)(const LinearBlock&) = Grouped<GroupedKernel<AvxVnniGroupedDot>>;

}  // namespace aiomlc

#else

namespace aiomlc {

void (*const kGroupedAvxVnni)(const LinearBlock&) = nullptr;

}  // namespace aiomlc

#endif  // defined(AIOMLC_AVXVNNI)
