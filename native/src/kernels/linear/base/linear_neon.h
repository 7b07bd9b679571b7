/*!
 * \file kernels/linear/base/linear_neon.h
 * \brief Unpacking of q4 weights in NEON registers.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_BASE_LINEAR_NEON_H_
#define AIOMLC_KERNELS_LINEAR_BASE_LINEAR_NEON_H_

#include <arm_neon.h>

#include "kernels/linear/base/linear_lanes.h"
#include "kernels/simd/simd_neon.h"

namespace aiomlc {

namespace {

[[gnu::always_inline]] inline int8x16_t LowNibbles(uint8x16_t bytes) {
  return vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15)));
}

[[gnu::always_inline]] inline int8x16_t HighNibbles(uint8x16_t bytes) {
  return vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4));
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_BASE_LINEAR_NEON_H_
