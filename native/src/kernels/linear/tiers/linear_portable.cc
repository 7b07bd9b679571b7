#include "kernels/linear/base/bf16_lanes.h"
#include "kernels/linear/base/linear_lanes.h"
#include "kernels/linear/grouped/grouped_lanes.h"
#include "kernels/simd/simd_portable.h"

namespace aiomlc {

namespace {

struct PortableDot {
  using Lanes = PortableLanes;
  static constexpr int kMaxRows = 4;

  template <int kRows, typename Emit>
  static void ForDots(const uint8_t* weights, const ActivationGroup* x, Emit emit) {
    int8_t values[8][4 * kTileRows];  // [k / 4][n * 4 + k % 4]
    for (int i = 0; i < 4; ++i) {
      for (int b = 0; b < 4 * kTileRows; ++b) {
        values[i][b] = static_cast<int8_t>(weights[64 * i + b] & 15);
        values[4 + i][b] = static_cast<int8_t>(weights[64 * i + b] >> 4);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      Lanes::Integers dots = Lanes::SetIntegers(x[r].offset);
      for (int i = 0; i < 8; ++i) {
        for (int n = 0; n < kTileRows; ++n) {
          int32_t dot = 0;
          for (int j = 0; j < 4; ++j) dot += values[i][4 * n + j] * x[r].values[4 * i + j];
          dots.lane[n] += dot;
        }
      }
      emit(r, dots);
    }
  }
};

struct PortableGroupedDot {
  using Lanes = PortableLanes;
  static constexpr int kMaxRows = 4;
  static constexpr bool kIsBiased = false;

  template <int kRows, int kParts, typename Emit>
  static void ForDots(const UnpackedChunk<kParts>& weights, const BiasedGroup* x, Emit emit) {
    constexpr int kPartQuads = kQuads / kParts;
    for (int r = 0; r < kRows; ++r) {
      for (int part = 0; part < kParts; ++part) {
        Lanes::Integers dots = Lanes::SetIntegers(0);
        for (int i = part * kPartQuads; i < (part + 1) * kPartQuads; ++i) {
          for (int n = 0; n < kTileRows; ++n) {
            for (int j = 0; j < 4; ++j) {
              dots.lane[n] += weights.quads[i][4 * n + j] * (x[r].bytes[4 * i + j] - kByteBias);
            }
          }
        }
        emit(r, part, dots);
      }
    }
  }

  static void LookUp(const int8_t (&values)[16], int8_t* codes) {
    for (int i = 0; i < kQuads * kQuadBytes; ++i) codes[i] = values[codes[i]];
  }
};

}  // namespace

constinit const LinearKernels kLinearPortable = KernelsOf<PortableDot>(
    BF16Kernel<WidenedPairs<PortableLanes>>::Run, Grouped<GroupedKernel<PortableGroupedDot>>);

}  // namespace aiomlc
