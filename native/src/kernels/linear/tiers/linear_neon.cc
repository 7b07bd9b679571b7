#include "kernels/linear/base/bf16_lanes.h"
#include "kernels/linear/base/linear_kernels.h"

#if defined(AIOMLC_NEON)

#include "kernels/linear/base/linear_neon.h"
#include "kernels/linear/grouped/grouped_neon.h"

namespace aiomlc {

namespace {

/*! \brief `kRows` groups of activations: inputs 0 to 15, and inputs 16 to 31. */
template <int kRows>
struct Inputs {
  int8x16_t low[kRows], high[kRows];
};

struct NeonDot {
  using Lanes = NeonLanes;
  static constexpr int kMaxRows = 4;

  template <int kRows, typename Emit>
  [[gnu::always_inline]] static void ForDots(const uint8_t* weights, const ActivationGroup* x,
                                             Emit emit) {
    Inputs<kRows> inputs;
    int32x4_t dots[kRows][4];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      inputs.low[r] = vld1q_s8(x[r].values);
      inputs.high[r] = vld1q_s8(x[r].values + 16);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) dots[r][i] = vdupq_n_s32(x[r].offset);
    }
    AddProducts<0>(weights, inputs, dots);
    AddProducts<1>(weights, inputs, dots);
    AddProducts<2>(weights, inputs, dots);
    AddProducts<3>(weights, inputs, dots);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      emit(r, {dots[r][0], dots[r][1], dots[r][2], dots[r][3]});
    }
  }

 private:
  /*! \brief Add the products of inputs i and i + 16, for i from 4 kQuad to 4 kQuad + 3. */
  template <int kQuad, int kRows>
  [[gnu::always_inline]] static void AddProducts(const uint8_t* weights, const Inputs<kRows>& x,
                                                 int32x4_t (&dots)[kRows][4]) {
#pragma GCC unroll 4
    for (int quarter = 0; quarter < 4; ++quarter) {
      const uint8x16_t bytes = vld1q_u8(weights + 64 * kQuad + 16 * quarter);
      const int8x16_t low = LowNibbles(bytes);
      const int8x16_t high = HighNibbles(bytes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        int32x4_t& dot = dots[r][quarter];
        dot = vdotq_laneq_s32(dot, low, x.low[r], kQuad);
        dot = vdotq_laneq_s32(dot, high, x.high[r], kQuad);
      }
    }
  }
};

struct NeonGroupedDot {
  using Lanes = NeonLanes;
  static constexpr int kMaxRows = 4;
  static constexpr bool kIsBiased = false;

  template <int kRows, int kParts, typename Emit>
  [[gnu::always_inline]] static void ForDots(const UnpackedChunk<kParts>& weights,
                                             const BiasedGroup* x, Emit emit) {
    Inputs<kRows> inputs;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      inputs.low[r] = LoadValues(x[r].bytes);
      inputs.high[r] = LoadValues(x[r].bytes + 16);
    }
    ForParts<kRows, kParts>(weights, inputs, emit, std::make_integer_sequence<int, kParts>());
  }

  static void LookUp(const int8_t (&values)[16], int8_t* codes) { LookUpCodes(values, codes); }

 private:
  template <int kRows, int kParts, typename Emit, int... kPart>
  [[gnu::always_inline]] static void ForParts(const UnpackedChunk<kParts>& weights,
                                              const Inputs<kRows>& x, Emit& emit,
                                              std::integer_sequence<int, kPart...> /*parts*/) {
    (AddPartProducts<kPart>(weights, x, emit, std::make_integer_sequence<int, kQuads / kParts>()),
     ...);
  }

  template <int kPart, int kRows, int kParts, typename Emit, int... kQuad>
  [[gnu::always_inline]] static void AddPartProducts(
      const UnpackedChunk<kParts>& weights, const Inputs<kRows>& x, Emit& emit,
      std::integer_sequence<int, kQuad...> /*quads*/) {
    int32x4_t dots[kRows][4];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) dots[r][i] = vdupq_n_s32(0);
    }
    (AddQuad<kPart * kQuads / kParts + kQuad>(weights.quads, x, dots), ...);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      emit(r, kPart, {dots[r][0], dots[r][1], dots[r][2], dots[r][3]});
    }
  }

  template <int kQuad, int kRows>
  [[gnu::always_inline]] static void AddQuad(const int8_t (&quads)[kQuads][kQuadBytes],
                                             const Inputs<kRows>& x, int32x4_t (&dots)[kRows][4]) {
#pragma GCC unroll 4
    for (int quarter = 0; quarter < 4; ++quarter) {
      const int8x16_t weights = vld1q_s8(quads[kQuad] + 16 * quarter);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const int8x16_t inputs = kQuad < 4 ? x.low[r] : x.high[r];
        dots[r][quarter] = vdotq_laneq_s32(dots[r][quarter], weights, inputs, kQuad % 4);
      }
    }
  }
};

constexpr LinearKernels kKernels = KernelsOf<NeonDot>(BF16Kernel<WidenedPairs<NeonLanes>>::Run,
                                                      Grouped<GroupedKernel<NeonGroupedDot>>);

}  // namespace

const LinearKernels* const kLinearNeon = &kKernels;

}  // namespace aiomlc

#elif defined(__aarch64__)

namespace aiomlc {

const LinearKernels* const kLinearNeon = nullptr;

}  // namespace aiomlc

#endif  // defined(AIOMLC_NEON)
