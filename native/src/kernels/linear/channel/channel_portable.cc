#include "kernels/linear/channel/channel_lanes.h"
#include "kernels/simd/simd_portable.h"

namespace aiomlc {

namespace {

struct PortableChannelDot {
  using Lanes = PortableLanes;
  static constexpr int kMaxRows = 1;
  static constexpr int kTiles = 1;
  static constexpr uint8_t kBias = 0;

  template <int kRows, int kTileCount>
  static void AddProducts(const ChannelStep& step, int32_t (*sums)[kTileCount][kTileRows]) {
    const int8_t* weights = step.weights;
    const uint8_t* x = step.x;
    for (int g = 0; g < step.groups; ++g, x += step.stride) {
      for (int q = 0; q < kChannelQuads; ++q, weights += kChannelQuadBytes) {
        for (int n = 0; n < kTileRows; ++n) {
          for (int j = 0; j < 4; ++j) {
            sums[0][0][n] += weights[4 * n + j] * static_cast<int8_t>(x[4 * q + j]);
          }
        }
      }
    }
  }
};

}  // namespace

constinit const ChannelKernels kChannelPortable = ChannelKernelsOf<PortableChannelDot>();

}  // namespace aiomlc
