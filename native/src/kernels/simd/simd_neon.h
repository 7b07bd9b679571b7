/*!
 * \file kernels/simd/simd_neon.h
 * \brief Sixteen float32 lanes in four NEON registers; simd_portable.h documents the operations.
 */
#ifndef AIOMLC_KERNELS_SIMD_SIMD_NEON_H_
#define AIOMLC_KERNELS_SIMD_SIMD_NEON_H_

#include <arm_neon.h>

#include <cstdint>

namespace aiomlc {

struct NeonLanes {
  static constexpr int kWidth = 16;
  static constexpr int kAccumulators = 4;

  static constexpr int kRegisters = 4;

  // Separate members, because compilers keep arrays of registers in memory.
  struct Vector {
    float32x4_t a, b, c, d;
  };

  struct Integers {
    int32x4_t a, b, c, d;
  };

  static Vector Set(float value) {
    const float32x4_t four = vdupq_n_f32(value);
    return {four, four, four, four};
  }

  static Vector Load(const float* source) {
    return {vld1q_f32(source), vld1q_f32(source + 4), vld1q_f32(source + 8),
            vld1q_f32(source + 12)};
  }

  static Vector Load(const uint16_t* source) {
    return {Widen(source), Widen(source + 4), Widen(source + 8), Widen(source + 12)};
  }

  static Vector Load(const int8_t* source) {
    const int8x16_t bytes = vld1q_s8(source);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes));
    const int16x8_t high = vmovl_high_s8(bytes);
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
  }

  static Vector Load(const uint8_t* source) {
    const uint8x16_t bytes = vld1q_u8(source);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
    const uint16x8_t high = vmovl_high_u8(bytes);
    return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))};
  }

  static Vector LoadBFloat16(const uint16_t* source) {
    return {WidenBFloat16(source), WidenBFloat16(source + 4), WidenBFloat16(source + 8),
            WidenBFloat16(source + 12)};
  }

  static Vector LoadEvenBFloat16(const uint16_t* source) {
    const uint16x8x4_t pairs = vld1q_u16_x4(source);
    return {Even(pairs.val[0]), Even(pairs.val[1]), Even(pairs.val[2]), Even(pairs.val[3])};
  }
  static Vector LoadOddBFloat16(const uint16_t* source) {
    const uint16x8x4_t pairs = vld1q_u16_x4(source);
    return {Odd(pairs.val[0]), Odd(pairs.val[1]), Odd(pairs.val[2]), Odd(pairs.val[3])};
  }
  static Vector SetEvenBFloat16(uint32_t pair) { return SetBits(pair << 16); }
  static Vector SetOddBFloat16(uint32_t pair) { return SetBits(pair & 0xffff0000u); }

  template <typename Element>
  static Vector LoadFirst(const Element* source, int count) {
    Element padded[kWidth] = {};
    __builtin_memcpy(padded, source, sizeof(Element) * count);
    return Load(padded);
  }

  static void Store(float* target, Vector v) {
    vst1q_f32(target, v.a);
    vst1q_f32(target + 4, v.b);
    vst1q_f32(target + 8, v.c);
    vst1q_f32(target + 12, v.d);
  }

  static void Store(uint16_t* target, Vector v) {
    vst1q_u16(target, Narrow(v.a, v.b));
    vst1q_u16(target + 8, Narrow(v.c, v.d));
  }

  static Vector RoundToBFloat16(Vector v) {
    return {RoundBFloat16(v.a), RoundBFloat16(v.b), RoundBFloat16(v.c), RoundBFloat16(v.d)};
  }

  static void StoreBFloat16(uint16_t* target, Vector v) {
    vst1q_u16(target, vcombine_u16(UpperHalves(v.a), UpperHalves(v.b)));
    vst1q_u16(target + 8, vcombine_u16(UpperHalves(v.c), UpperHalves(v.d)));
  }

  static void StorePairs(uint16_t* target, Vector even, Vector odd) {
    const auto join = [](float32x4_t a, float32x4_t b) {
      const uint32x4_t lower = vshrq_n_u32(vreinterpretq_u32_f32(a), 16);
      return vreinterpretq_u16_u32(vorrq_u32(lower, vreinterpretq_u32_f32(b)));
    };
    vst1q_u16(target, join(even.a, odd.a));
    vst1q_u16(target + 8, join(even.b, odd.b));
    vst1q_u16(target + 16, join(even.c, odd.c));
    vst1q_u16(target + 24, join(even.d, odd.d));
  }

  template <typename Element>
  static void StoreFirst(Element* target, Vector v, int count) {
    Element padded[kWidth];
    Store(padded, v);
    __builtin_memcpy(target, padded, sizeof(Element) * count);
  }

  static void StoreRounded(int8_t* target, Vector v, int count) {
    const int16x8_t low =
        vcombine_s16(vmovn_s32(vcvtnq_s32_f32(v.a)), vmovn_s32(vcvtnq_s32_f32(v.b)));
    const int16x8_t high =
        vcombine_s16(vmovn_s32(vcvtnq_s32_f32(v.c)), vmovn_s32(vcvtnq_s32_f32(v.d)));
    const int8x16_t bytes = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
    __builtin_memcpy(target, &bytes, count);
  }

  static Integers SetIntegers(int32_t value) {
    const int32x4_t four = vdupq_n_s32(value);
    return {four, four, four, four};
  }

  static Vector ToFloat(Integers v) {
    return {vcvtq_f32_s32(v.a), vcvtq_f32_s32(v.b), vcvtq_f32_s32(v.c), vcvtq_f32_s32(v.d)};
  }

  static Integers RoundToBytes(Vector v) {
    return {RoundToBytes(v.a), RoundToBytes(v.b), RoundToBytes(v.c), RoundToBytes(v.d)};
  }

  static void StoreBytes(int8_t* target, Integers v) {
    const int16x8_t low = vcombine_s16(vmovn_s32(v.a), vmovn_s32(v.b));
    const int16x8_t high = vcombine_s16(vmovn_s32(v.c), vmovn_s32(v.d));
    vst1q_s8(target, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  }

  static int32_t SumIntegers(Integers v, Integers w) {
    const int32x4_t first = vaddq_s32(vaddq_s32(v.a, v.b), vaddq_s32(v.c, v.d));
    const int32x4_t second = vaddq_s32(vaddq_s32(w.a, w.b), vaddq_s32(w.c, w.d));
    return vaddvq_s32(vaddq_s32(first, second));
  }

  static uint32_t LargestMagnitude(Vector v, Vector w) {
    const uint32x4_t first = vmaxq_u32(vmaxq_u32(Magnitude(v.a), Magnitude(v.b)),
                                       vmaxq_u32(Magnitude(v.c), Magnitude(v.d)));
    const uint32x4_t second = vmaxq_u32(vmaxq_u32(Magnitude(w.a), Magnitude(w.b)),
                                        vmaxq_u32(Magnitude(w.c), Magnitude(w.d)));
    return vmaxvq_u32(vmaxq_u32(first, second));
  }

  static Vector Add(Vector v, Vector w) {
    return {vaddq_f32(v.a, w.a), vaddq_f32(v.b, w.b), vaddq_f32(v.c, w.c), vaddq_f32(v.d, w.d)};
  }

  static Vector Sub(Vector v, Vector w) {
    return {vsubq_f32(v.a, w.a), vsubq_f32(v.b, w.b), vsubq_f32(v.c, w.c), vsubq_f32(v.d, w.d)};
  }

  static Vector Mul(Vector v, Vector w) {
    return {vmulq_f32(v.a, w.a), vmulq_f32(v.b, w.b), vmulq_f32(v.c, w.c), vmulq_f32(v.d, w.d)};
  }

  static Vector Div(Vector v, Vector w) {
    return {vdivq_f32(v.a, w.a), vdivq_f32(v.b, w.b), vdivq_f32(v.c, w.c), vdivq_f32(v.d, w.d)};
  }

  static Vector Fma(Vector v, Vector w, Vector added) {
    return {vfmaq_f32(added.a, v.a, w.a), vfmaq_f32(added.b, v.b, w.b),
            vfmaq_f32(added.c, v.c, w.c), vfmaq_f32(added.d, v.d, w.d)};
  }

  static Vector Max(Vector v, Vector w) {
    return {Larger(v.a, w.a), Larger(v.b, w.b), Larger(v.c, w.c), Larger(v.d, w.d)};
  }

  static Vector Min(Vector v, Vector w) {
    return {Smaller(v.a, w.a), Smaller(v.b, w.b), Smaller(v.c, w.c), Smaller(v.d, w.d)};
  }

  static Vector ZeroIfLess(Vector v, Vector limit, Vector value) {
    return {
        ZeroWhere(vcltq_f32(v.a, limit.a), value.a), ZeroWhere(vcltq_f32(v.b, limit.b), value.b),
        ZeroWhere(vcltq_f32(v.c, limit.c), value.c), ZeroWhere(vcltq_f32(v.d, limit.d), value.d)};
  }

  static int StoreBetween(Vector v, Vector low, Vector high, int32_t first_id, float* values,
                          int32_t* ids) {
    float all[3][kWidth];
    Store(all[0], v);
    Store(all[1], low);
    Store(all[2], high);
    int count = 0;
    for (int i = 0; i < kWidth; ++i) {
      values[count] = all[0][i];
      ids[count] = first_id + i;
      count += (all[0][i] >= all[1][i]) & (all[0][i] < all[2][i]);
    }
    return count;
  }

  static Vector Select(int count, Vector v, Vector w) {
    return {vbslq_f32(FirstMask(count), v.a, w.a), vbslq_f32(FirstMask(count - 4), v.b, w.b),
            vbslq_f32(FirstMask(count - 8), v.c, w.c), vbslq_f32(FirstMask(count - 12), v.d, w.d)};
  }

  static Vector PowerOfTwo(Vector v) {
    return {PowerOfTwo(v.a), PowerOfTwo(v.b), PowerOfTwo(v.c), PowerOfTwo(v.d)};
  }

  static float First(Vector v) { return vgetq_lane_f32(v.a, 0); }

  static float Sum(Vector v) {
    const float32x4_t four = vaddq_f32(vaddq_f32(v.a, v.c), vaddq_f32(v.b, v.d));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }

  static float Largest(Vector v) {
    const float32x4_t four = Larger(Larger(v.a, v.c), Larger(v.b, v.d));
    const float32x4_t two = Larger(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(Larger(two, vextq_f32(two, two, 1)), 0);
  }

  static void StoreTransposed(const Vector (&rows)[kWidth], float* target) {
    for (int i = 0; i < kWidth; i += 4) {
      const Vector &v = rows[i], &w = rows[i + 1], &x = rows[i + 2], &y = rows[i + 3];
      StoreTransposed4(v.a, w.a, x.a, y.a, target + i);
      StoreTransposed4(v.b, w.b, x.b, y.b, target + 4 * kWidth + i);
      StoreTransposed4(v.c, w.c, x.c, y.c, target + 8 * kWidth + i);
      StoreTransposed4(v.d, w.d, x.d, y.d, target + 12 * kWidth + i);
    }
  }

 private:
  static float32x4_t Widen(const uint16_t* source) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(source)));
  }

  static Vector SetBits(uint32_t bits) {
    const float32x4_t four = vreinterpretq_f32_u32(vdupq_n_u32(bits));
    return {four, four, four, four};
  }
  static float32x4_t Even(uint16x8_t pairs) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(pairs), 16));
  }
  static float32x4_t Odd(uint16x8_t pairs) {
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u16(pairs), vdupq_n_u32(0xffff0000u)));
  }

  static uint16x4_t UpperHalves(float32x4_t v) { return vshrn_n_u32(vreinterpretq_u32_f32(v), 16); }

  static float32x4_t RoundBFloat16(float32x4_t v) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    const uint32x4_t either = vbslq_u32(vceqq_f32(v, v), rounded, quiet);
    return Odd(vreinterpretq_u16_u32(either));
  }

  static float32x4_t WidenBFloat16(const uint16_t* source) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(source)), 16));
  }

  static int32x4_t RoundToBytes(float32x4_t v) {
    return vmaxq_s32(vminq_s32(vcvtnq_s32_f32(v), vdupq_n_s32(127)), vdupq_n_s32(-127));
  }

  static uint32x4_t Magnitude(float32x4_t v) {
    return vandq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(0x7fffffff));
  }

  static uint16x8_t Narrow(float32x4_t low, float32x4_t high) {
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high));
  }

  // Not vmaxq and vminq, which return NaN if one operand is NaN, and order -0 before +0.
  static float32x4_t Larger(float32x4_t v, float32x4_t w) {
    return vbslq_f32(vcgtq_f32(v, w), v, w);
  }

  static float32x4_t Smaller(float32x4_t v, float32x4_t w) {
    return vbslq_f32(vcltq_f32(v, w), v, w);
  }

  static float32x4_t ZeroWhere(uint32x4_t mask, float32x4_t value) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(value), mask));
  }

  static uint32x4_t FirstMask(int count) {
    const int32x4_t lane = {0, 1, 2, 3};
    return vcgtq_s32(vdupq_n_s32(count), lane);
  }

  static float32x4_t PowerOfTwo(float32x4_t v) {
    const uint32x4_t exponent = vshlq_n_u32(vreinterpretq_u32_f32(v), 23);
    return vreinterpretq_f32_u32(vaddq_u32(exponent, vdupq_n_u32(0x3f800000)));
  }

  static void StoreTransposed4(float32x4_t v, float32x4_t w, float32x4_t x, float32x4_t y,
                               float* target) {
    const float64x2_t even_low = vreinterpretq_f64_f32(vtrn1q_f32(v, w));
    const float64x2_t odd_low = vreinterpretq_f64_f32(vtrn2q_f32(v, w));
    const float64x2_t even_high = vreinterpretq_f64_f32(vtrn1q_f32(x, y));
    const float64x2_t odd_high = vreinterpretq_f64_f32(vtrn2q_f32(x, y));
    vst1q_f32(target, vreinterpretq_f32_f64(vtrn1q_f64(even_low, even_high)));
    vst1q_f32(target + kWidth, vreinterpretq_f32_f64(vtrn1q_f64(odd_low, odd_high)));
    vst1q_f32(target + 2 * kWidth, vreinterpretq_f32_f64(vtrn2q_f64(even_low, even_high)));
    vst1q_f32(target + 3 * kWidth, vreinterpretq_f32_f64(vtrn2q_f64(odd_low, odd_high)));
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_SIMD_SIMD_NEON_H_
