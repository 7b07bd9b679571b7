#include "kernels/linear/channel/channel_kernels.h"

#if defined(AIOMLC_NEON)

#include "kernels/linear/base/linear_neon.h"
#include "kernels/linear/channel/channel_lanes.h"

namespace aiomlc {

namespace {

struct NeonChannelDot {
  using Lanes = NeonLanes;
  static constexpr int kMaxRows = 4;
  static constexpr int kTiles = 1;
  static constexpr uint8_t kBias = 0;

  template <int kRows, int kTileCount>
  static void AddProducts(const ChannelStep& step, int32_t (*sums)[kTileCount][kTileRows]) {
    int32x4_t dots[kRows][4];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) dots[r][i] = vld1q_s32(sums[r][0] + 4 * i);
    }
    const int8_t* weights = step.weights;
    const uint8_t* x = step.x;
    for (int g = 0; g < step.groups; ++g, x += step.stride) {
#pragma GCC unroll 1
      for (int k = 0; k < kChannelGroup; k += 16, weights += 4 * kChannelQuadBytes) {
        int8x16_t inputs[kRows];
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          inputs[r] = vreinterpretq_s8_u8(vld1q_u8(x + r * kChannelGroup + k));
        }
        AddQuad<0>(weights, inputs, dots);
        AddQuad<1>(weights, inputs, dots);
        AddQuad<2>(weights, inputs, dots);
        AddQuad<3>(weights, inputs, dots);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) vst1q_s32(sums[r][0] + 4 * i, dots[r][i]);
    }
  }

 private:
  template <int kQuad, int kRows>
  [[gnu::always_inline]] static void AddQuad(const int8_t* weights,
                                             const int8x16_t (&inputs)[kRows],
                                             int32x4_t (&dots)[kRows][4]) {
    __builtin_prefetch(weights + kQuad * kChannelQuadBytes + kPrefetchDistance);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int8x16_t quad = vld1q_s8(weights + kQuad * kChannelQuadBytes + 16 * i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        dots[r][i] = vdotq_laneq_s32(dots[r][i], quad, inputs[r], kQuad);
      }
    }
  }
};

}  // namespace

constinit const ChannelKernels kChannelNeon = ChannelKernelsOf<NeonChannelDot>();

}  // namespace aiomlc

#elif defined(__aarch64__)

namespace aiomlc {

constinit const ChannelKernels kChannelNeon = {nullptr, nullptr, nullptr, nullptr};

}  // namespace aiomlc

#endif  // defined(AIOMLC_NEON)
