/*!
 * \file kernels/linear/grouped/grouped_neon.h
 * \brief Loads of activations and the lookup of codes in NEON registers, for grouped formats.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_NEON_H_
#define AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_NEON_H_

#include "kernels/linear/base/linear_neon.h"
#include "kernels/linear/grouped/grouped_lanes.h"

namespace aiomlc {

namespace {

/*! \return 16 activations without their bias. */
[[gnu::always_inline]] inline int8x16_t LoadValues(const uint8_t* bytes) {
  return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(bytes), vdupq_n_u8(kByteBias)));
}

inline void LookUpCodes(const int8_t (&values)[16], int8_t* codes) {
  const int8x16_t table = vld1q_s8(values);
  for (int i = 0; i < kQuads * kQuadBytes; i += 16) {
    vst1q_s8(codes + i, vqtbl1q_s8(table, vreinterpretq_u8_s8(vld1q_s8(codes + i))));
  }
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_NEON_H_
