#include "kernels/linear/linear_kernels.h"

#if defined(AIOMLC_I8MM)

#include "kernels/linear/linear_neon.h"

namespace aiomlc {

namespace {

/*! \brief Two rows of activations by eight inputs, for each quarter of a group. */
struct RowPair {
  int8x16_t octets[4];
};

RowPair LoadPair(const ActivationGroup& first, const ActivationGroup& second) {
  RowPair pair;
  for (int i = 0; i < 4; ++i) {
    pair.octets[i] = vcombine_s8(vld1_s8(first.values + 8 * i), vld1_s8(second.values + 8 * i));
  }
  return pair;
}

/*! \brief The dots of a pair of rows with two outputs, and with the next two. */
struct PairDots {
  int32x4_t outputs[2];
};

/*! \brief Add the products of `Pairs` pairs of rows with four outputs' weights of one group. */
template <int Pairs>
inline void AddProducts(const uint8_t* quarter, const RowPair* x, PairDots* dots) {
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    // Four outputs by four inputs, and by the next four, become two outputs by eight, twice.
    const uint32x4_t begin = vreinterpretq_u32_u8(vld1q_u8(quarter + 128 * i));
    const uint32x4_t end = vreinterpretq_u32_u8(vld1q_u8(quarter + 128 * i + 64));
    const uint8x16_t bytes[2] = {vreinterpretq_u8_u32(vzip1q_u32(begin, end)),
                                 vreinterpretq_u8_u32(vzip2q_u32(begin, end))};
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const int8x16_t low = vreinterpretq_s8_u8(vandq_u8(bytes[half], vdupq_n_u8(15)));
      const int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(bytes[half], 4));
#pragma GCC unroll 4
      for (int p = 0; p < Pairs; ++p) {
        int32x4_t& dot = dots[p].outputs[half];
        dot = vmmlaq_s32(dot, x[p].octets[i], low);
        dot = vmmlaq_s32(dot, x[p].octets[2 + i], high);
      }
    }
  }
}

/*! \brief Up to 2 * `Pairs` rows of activations times one tile; an odd last row is computed twice.
 */
template <int Pairs>
void Q4Chunk(const LinearBlock& block, int64_t tile, int64_t row) {
  constexpr int kMaxRows = 2 * Pairs;
  const int64_t panel = row - row % kPanelRows;
  const int64_t left = block.row_end - panel;
  const int64_t height = left < kPanelRows ? left : kPanelRows;
  const int64_t groups = (block.cols_k + kGroup - 1) / kGroup;
  const int last = block.row_end - row < kMaxRows ? kMaxRows - 2 : kMaxRows - 1;
  const uint8_t* group = static_cast<const uint8_t*>(block.packed) + tile * groups * kGroupStride;
  const ActivationGroup* x = block.activations + panel * groups + row % kPanelRows;

  float32x4_t sums[kMaxRows][4];
  for (int r = 0; r < kMaxRows; ++r) {
    for (int i = 0; i < 4; ++i) sums[r][i] = vdupq_n_f32(0.0f);
  }
  for (int64_t g = 0; g < groups; ++g, group += kGroupStride, x += height) {
#pragma GCC unroll 5
    for (int line = 0; line < 5; ++line) __builtin_prefetch(group + kAhead + 64 * line);
    RowPair pairs[Pairs];
#pragma GCC unroll 4
    for (int p = 0; p < Pairs; ++p) {
      pairs[p] = LoadPair(x[2 * p], x[p + 1 < Pairs ? 2 * p + 1 : last]);
    }
    // Not unrolled: the pairs fill half of the registers, and the sums are in memory.
#pragma GCC unroll 1
    for (int quarter = 0; quarter < 4; ++quarter) {
      PairDots dots[Pairs];
#pragma GCC unroll 4
      for (int p = 0; p < Pairs; ++p) {
        const ActivationGroup& second = x[p + 1 < Pairs ? 2 * p + 1 : last];
        const int32x4_t offsets =
            vcombine_s32(vdup_n_s32(x[2 * p].offset), vdup_n_s32(second.offset));
        dots[p].outputs[0] = dots[p].outputs[1] = offsets;
      }
      AddProducts<Pairs>(group + 16 * quarter, pairs, dots);
      const uint8_t* halves = group + kNibbleBytes + 8 * quarter;
      const float32x4_t weight_scales = Widen(vreinterpret_u16_u8(vld1_u8(halves)));
#pragma GCC unroll 4
      for (int p = 0; p < Pairs; ++p) {
        const int64x2_t begin = vreinterpretq_s64_s32(dots[p].outputs[0]);
        const int64x2_t end = vreinterpretq_s64_s32(dots[p].outputs[1]);
        const int32x4_t rows[2] = {vreinterpretq_s32_s64(vtrn1q_s64(begin, end)),
                                   vreinterpretq_s32_s64(vtrn2q_s64(begin, end))};
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          const int r = i == 1 && p + 1 == Pairs ? last : 2 * p + i;
          float32x4_t& sum = sums[2 * p + i][quarter];
          sum = vfmaq_f32(sum, vcvtq_f32_s32(rows[i]), vmulq_n_f32(weight_scales, x[r].scale));
        }
      }
    }
  }
  for (int r = 0; r <= last; ++r) Store(block, row + r, tile, sums[r]);
}

void Q4(const LinearBlock& block) {
  // A pair needs two rows.
  if (block.row_end - block.row_begin == 1) return kLinearNeon->q4(block);
  static constexpr Chunk kChunks[] = {nullptr,    Q4Chunk<1>, Q4Chunk<1>, Q4Chunk<2>, Q4Chunk<2>,
                                      Q4Chunk<3>, Q4Chunk<3>, Q4Chunk<4>, Q4Chunk<4>};
  ForChunks(block, kChunks, 8, block.tile_begin, block.tile_end, 1);
}

}  // namespace

void (*const kQ4I8mm)(const LinearBlock&) = Q4;

}  // namespace aiomlc

#elif defined(__aarch64__)

namespace aiomlc {

void (*const kQ4I8mm)(const LinearBlock&) = nullptr;

}  // namespace aiomlc

#endif  // defined(AIOMLC_I8MM)
