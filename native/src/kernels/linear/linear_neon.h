/*!
 * \file kernels/linear/linear_neon.h
 * \brief What the kernels of linear layers in NEON registers share.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_LINEAR_NEON_H_
#define AIOMLC_KERNELS_LINEAR_LINEAR_NEON_H_

#include <arm_neon.h>

#include "kernels/linear/linear_chunks.h"
#include "kernels/linear/linear_kernels.h"

namespace aiomlc {

namespace {

constexpr int kRows = 16;  // Of a tile: four registers of floats.
constexpr int kGroup = 32;
constexpr int kGroupStride = 288;
constexpr int kNibbleBytes = 256;
constexpr int kAhead = 4096;  // Bytes between what is fetched and what is used.

inline float32x4_t Widen(uint16x4_t halves) { return vcvt_f32_f16(vreinterpret_f16_u16(halves)); }

inline float32x4_t LoadUpTo4(const float* from, int64_t count) {
  if (count >= 4) return vld1q_f32(from);
  float values[4] = {};
  for (int64_t n = 0; n < count; ++n) values[n] = from[n];
  return vld1q_f32(values);
}

inline void StoreQuarter(const LinearBlock& block, int64_t at, int64_t count, float32x4_t sums) {
  if (block.out_type == FloatType::kF32) {
    float* out = static_cast<float*>(block.out) + at;
    if (count >= 4) {
      vst1q_f32(out, sums);
      return;
    }
    float values[4];
    vst1q_f32(values, sums);
    for (int64_t n = 0; n < count; ++n) out[n] = values[n];
    return;
  }
  uint16_t* out = static_cast<uint16_t*>(block.out) + at;
  const uint16x4_t halves = vreinterpret_u16_f16(vcvt_f16_f32(sums));
  if (count >= 4) {
    vst1_u16(out, halves);
    return;
  }
  uint16_t values[4];
  vst1_u16(values, halves);
  for (int64_t n = 0; n < count; ++n) out[n] = values[n];
}

inline void Store(const LinearBlock& block, int64_t row, int64_t tile, const float32x4_t* sums) {
  for (int quarter = 0; quarter < 4; ++quarter) {
    const int64_t first = tile * kRows + 4 * quarter;
    const int64_t count = block.rows_n - first;
    if (count <= 0) return;
    float32x4_t values = sums[quarter];
    if (block.bias != nullptr) values = vaddq_f32(values, LoadUpTo4(block.bias + first, count));
    StoreQuarter(block, row * block.rows_n + first, count, values);
  }
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_LINEAR_NEON_H_
