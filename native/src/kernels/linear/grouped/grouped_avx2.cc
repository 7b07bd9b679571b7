#if defined(__x86_64__)

#include "kernels/linear/grouped/grouped_avx2.h"

namespace aiomlc {

namespace {

/*!
 * \brief Dot products of weights of at most `kBits` bits.
 *
 * A pair of products is at most 2 * 255 * 2^kBits, so some quads are added before they would not
 * fit into 16 bits.
 */
template <int kBits>
struct Avx2GroupedDot {
  using Lanes = Avx2Lanes;
  static constexpr int kMaxRows = 4;
  static constexpr bool kIsBiased = true;
  static constexpr int kPairQuads = kBits <= 4 ? 4 : 1;
  static_assert(kPairQuads * 2 * 255 * (1 << kBits) < 1 << 15);

  template <int kRows, int kParts, typename Emit>
  [[gnu::always_inline]] static void ForDots(const UnpackedChunk<kParts>& weights,
                                             const BiasedGroup* x, Emit emit) {
    constexpr int kPartQuads = kQuads / kParts;
    constexpr int kStep = kPartQuads < kPairQuads ? kPartQuads : kPairQuads;
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      __m256i dots[kRows][2];
      for (int r = 0; r < kRows; ++r) {
        for (int half = 0; half < 2; ++half) dots[r][half] = LoadHalf(weights.offsets[part], half);
      }
#pragma GCC unroll 8
      for (int first = 0; first < kPartQuads; first += kStep) {
        __m256i pairs[kRows][2];
#pragma GCC unroll 4
        for (int step = 0; step < kStep; ++step) {
          const int i = part * kPartQuads + first + step;
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            const __m256i four = BroadcastFour(x[r].bytes + 4 * i);
#pragma GCC unroll 2
            for (int half = 0; half < 2; ++half) {
              const __m256i products = _mm256_maddubs_epi16(four, LoadHalf(weights.quads[i], half));
              pairs[r][half] = step == 0 ? products : _mm256_add_epi16(pairs[r][half], products);
              ComputeHere(pairs[r][half]);
            }
          }
        }
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
          for (int half = 0; half < 2; ++half) {
            const __m256i sums = _mm256_madd_epi16(pairs[r][half], ones);
            dots[r][half] = _mm256_add_epi32(dots[r][half], sums);
            ComputeHere(dots[r][half]);
          }
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

/*!
 * \brief Dot products of weights of 8 bits.
 *
 * The signs of the weights move to the activations: a pair of products is at most 2 * 128 * 127.
 */
struct Avx2ByteDot {
  using Lanes = Avx2Lanes;
  static constexpr int kMaxRows = 4;
  static constexpr bool kIsBiased = false;

  template <int kRows, int kParts, typename Emit>
  [[gnu::always_inline]] static void ForDots(const UnpackedChunk<kParts>& weights,
                                             const BiasedGroup* x, Emit emit) {
    constexpr int kPartQuads = kQuads / kParts;
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i bias = _mm256_set1_epi8(static_cast<char>(kByteBias));
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      __m256i dots[kRows][2];
      for (int r = 0; r < kRows; ++r) dots[r][0] = dots[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
      for (int i = part * kPartQuads; i < (part + 1) * kPartQuads; ++i) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const __m256i quad = LoadHalf(weights.quads[i], half);
          const __m256i magnitude = _mm256_abs_epi8(quad);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            const __m256i four = _mm256_xor_si256(BroadcastFour(x[r].bytes + 4 * i), bias);
            const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(four, quad));
            dots[r][half] = _mm256_add_epi32(dots[r][half], _mm256_madd_epi16(pairs, ones));
            ComputeHere(dots[r][half]);
          }
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) emit(r, part, {dots[r][0], dots[r][1]});
    }
  }

  static void LookUp(const int8_t (&values)[16], int8_t* codes) { LookUpCodes(values, codes); }
};

struct Avx2GroupedKernel {
  template <int kParts, bool kSubtracts>
  static void Run(const LinearBlock& block) {
    if (block.tile.bits == 8 || block.tile.code == CodeType::kIQ4NL) {
      return GroupedKernel<Avx2ByteDot>::Run<kParts, kSubtracts>(block);
    }
    if (block.tile.bits > 4) {
      return GroupedKernel<Avx2GroupedDot<6>>::Run<kParts, kSubtracts>(block);
    }
    GroupedKernel<Avx2GroupedDot<4>>::Run<kParts, kSubtracts>(block);
  }
};

}  // namespace

void GroupedAvx2(const LinearBlock& block) {
  if (!FewGroupedRowsAvx2(block)) Grouped<Avx2GroupedKernel>(block);
}

}  // namespace aiomlc

#endif  // defined(__x86_64__)
