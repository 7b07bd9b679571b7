#include "kernels/linear/channel/channel_kernels.h"

#if defined(AIOMLC_I8MM)

#include "kernels/linear/base/linear_neon.h"
#include "kernels/linear/channel/channel_lanes.h"

namespace aiomlc {

namespace {

/*! \brief Multiplies pairs of rows; a single row is multiplied by the kernel of `neon`. */
struct I8mmChannelDot {
  using Lanes = NeonLanes;
  static constexpr int kMaxRows = 8;
  static constexpr int kTiles = 1;
  static constexpr uint8_t kBias = 0;

  template <int kRows, int kTileCount>
  static void AddProducts(const ChannelStep& step, int32_t (*sums)[kTileCount][kTileRows]) {
    for (int quarter = 0; quarter < 4; ++quarter) AddQuarter<kRows>(step, quarter, sums[0][0]);
  }

 private:
  /*! \brief Add the products of four outputs. \param sums [kRows][16] */
  template <int kRows>
  static void AddQuarter(const ChannelStep& step, int quarter, int32_t* sums) {
    constexpr int kPairs = (kRows + 1) / 2;
    // Of a pair of rows: two outputs of both, then the next two.
    int32x4_t dots[kPairs][2];
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) dots[p][0] = dots[p][1] = vdupq_n_s32(0);
    const int8_t* weights = step.weights + 16 * quarter;
    const uint8_t* x = step.x;
    for (int g = 0; g < step.groups; ++g, x += step.stride) {
#pragma GCC unroll 2
      for (int k = 0; k < kChannelGroup; k += 8, weights += 2 * kChannelQuadBytes) {
        // Two vectors of 4 outputs by 4 inputs become two vectors of 2 outputs by 8 inputs.
        const int32x4_t begin = vreinterpretq_s32_s8(vld1q_s8(weights));
        const int32x4_t end = vreinterpretq_s32_s8(vld1q_s8(weights + kChannelQuadBytes));
        const int8x16_t halves[2] = {vreinterpretq_s8_s32(vzip1q_s32(begin, end)),
                                     vreinterpretq_s8_s32(vzip2q_s32(begin, end))};
#pragma GCC unroll 4
        for (int p = 0; p < kPairs; ++p) {
          const int8x16_t pair = LoadPair(x + 2 * p * kChannelGroup + k, Second<kRows>(p));
          dots[p][0] = vmmlaq_s32(dots[p][0], pair, halves[0]);
          dots[p][1] = vmmlaq_s32(dots[p][1], pair, halves[1]);
        }
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) {
      const int64x2_t begin = vreinterpretq_s64_s32(dots[p][0]);
      const int64x2_t end = vreinterpretq_s64_s32(dots[p][1]);
      int32_t* first = sums + 2 * p * kTileRows + 4 * quarter;
      AddTo(first, vreinterpretq_s32_s64(vtrn1q_s64(begin, end)));
      if (2 * p + 1 < kRows)
        AddTo(first + kTileRows, vreinterpretq_s32_s64(vtrn2q_s64(begin, end)));
    }
  }

  /*! \return The bytes from the first row of a pair to the second; an odd row is its own pair. */
  template <int kRows>
  static constexpr int64_t Second(int pair) {
    return 2 * pair + 1 < kRows ? kChannelGroup : 0;
  }

  static int8x16_t LoadPair(const uint8_t* x, int64_t second) {
    return vreinterpretq_s8_u8(vcombine_u8(vld1_u8(x), vld1_u8(x + second)));
  }

  static void AddTo(int32_t* sums, int32x4_t dots) {
    vst1q_s32(sums, vaddq_s32(vld1q_s32(sums), dots));
  }
};

// One row would be computed twice.
bool HasOneRow(const LinearBlock& block) { return block.row_end - block.row_begin == 1; }

void ChannelOnRowPairs(const LinearBlock& block) {
  if (HasOneRow(block)) return kChannelNeon.multiply(block);
  ChannelKernel<I8mmChannelDot, Int8Matrix>::Run(block);
}

void ProgressiveOnRowPairs(const LinearBlock& block) {
  if (HasOneRow(block)) return kChannelNeon.multiply_progressive(block);
  ChannelKernel<I8mmChannelDot, ProgressiveMatrix>::Run(block);
}

}  // namespace

constinit const ChannelKernels kChannelI8mm = {QuantizeChannelRow<NeonLanes, I8mmChannelDot::kBias>,
                                               ChannelOnRowPairs, RotateRow<NeonLanes>,
                                               ProgressiveOnRowPairs};

}  // namespace aiomlc

#elif defined(__aarch64__)

namespace aiomlc {

constinit const ChannelKernels kChannelI8mm = {nullptr, nullptr, nullptr, nullptr};

}  // namespace aiomlc

#endif  // defined(AIOMLC_I8MM)
