#include "kernels/linear/linear_kernels.h"

#if defined(AIOMLC_NEON)

#include "kernels/linear/linear_neon.h"

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

constexpr LinearKernels kKernels = KernelsOf<NeonDot>();

}  // namespace

const LinearKernels* const kLinearNeon = &kKernels;

}  // namespace aiomlc

#elif defined(__aarch64__)

namespace aiomlc {

const LinearKernels* const kLinearNeon = nullptr;

}  // namespace aiomlc

#endif  // defined(AIOMLC_NEON)
