/*!
 * \file kernels/simd/simd_portable.h
 * \brief Sixteen float32 lanes in plain C++, and the documentation of all `Lanes` classes.
 *
 * The `Lanes` classes of all tiers have the same operations with the same bits. So a kernel that is
 * a template over a `Lanes` class computes the same bits on every instruction-set tier.
 */
#ifndef AIOMLC_KERNELS_SIMD_SIMD_PORTABLE_H_
#define AIOMLC_KERNELS_SIMD_SIMD_PORTABLE_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "platform/float_types.h"

namespace aiomlc {

struct PortableLanes {
  static constexpr int kWidth = 16;
  /*! \brief The number of accumulators that fit in registers together with the operands. */
  static constexpr int kAccumulators = 4;

  /*! \brief The registers of one vector; here an estimate of what compilers generate. */
  static constexpr int kRegisters = 4;

  struct Vector {
    float lane[kWidth];
  };

  struct Integers {
    int32_t lane[kWidth];
  };

  static Vector Set(float value) {
    return Map([value](int) { return value; });
  }

  static Vector Load(const float* source) {
    return Map([source](int i) { return source[i]; });
  }

  static Vector Load(const uint16_t* source) {
    return Map([source](int i) { return HalfToFloat(source[i]); });
  }

  static Vector Load(const int8_t* source) {
    return Map([source](int i) { return static_cast<float>(source[i]); });
  }

  static Vector Load(const uint8_t* source) {
    return Map([source](int i) { return static_cast<float>(source[i]); });
  }

  static Vector LoadBFloat16(const uint16_t* source) {
    return Map([source](int i) { return BFloat16ToFloat(source[i]); });
  }

  /*! \brief Load the first, or the second, numbers of 16 pairs of bf16. */
  static Vector LoadEvenBFloat16(const uint16_t* source) {
    return Map([source](int i) { return BFloat16ToFloat(source[2 * i]); });
  }
  static Vector LoadOddBFloat16(const uint16_t* source) {
    return Map([source](int i) { return BFloat16ToFloat(source[2 * i + 1]); });
  }
  /*! \return The first (low), or the second, number of a pair of bf16 in all lanes. */
  static Vector SetEvenBFloat16(uint32_t pair) { return Set(std::bit_cast<float>(pair << 16)); }
  static Vector SetOddBFloat16(uint32_t pair) {
    return Set(std::bit_cast<float>(pair & 0xffff0000u));
  }

  /*! \brief Load `count` elements, 0 to 16; the other lanes are zero. */
  static Vector LoadFirst(const float* source, int count) {
    return Map([=](int i) { return i < count ? source[i] : 0.0f; });
  }

  static Vector LoadFirst(const uint16_t* source, int count) {
    return Map([=](int i) { return i < count ? HalfToFloat(source[i]) : 0.0f; });
  }

  static Vector LoadFirst(const int8_t* source, int count) {
    return Map([=](int i) { return i < count ? static_cast<float>(source[i]) : 0.0f; });
  }

  static void Store(float* target, Vector a) { StoreFirst(target, a, kWidth); }
  static void Store(uint16_t* target, Vector a) { StoreFirst(target, a, kWidth); }

  /*! \return The nearest bf16, ties to even. NaN stays NaN. */
  static Vector RoundToBFloat16(Vector a) {
    return Map([&](int i) { return BFloat16ToFloat(FloatToBFloat16(a.lane[i])); });
  }

  /*! \brief Store numbers that bf16 represents. */
  static void StoreBFloat16(uint16_t* target, Vector a) {
    for (int i = 0; i < kWidth; ++i) target[i] = FloatToBFloat16(a.lane[i]);
  }

  /*! \brief Store pairs of numbers that bf16 represents. */
  static void StorePairs(uint16_t* target, Vector even, Vector odd) {
    for (int i = 0; i < kWidth; ++i) {
      target[2 * i] = FloatToBFloat16(even.lane[i]);
      target[2 * i + 1] = FloatToBFloat16(odd.lane[i]);
    }
  }

  static void StoreFirst(float* target, Vector a, int count) {
    for (int i = 0; i < count; ++i) target[i] = a.lane[i];
  }

  static void StoreFirst(uint16_t* target, Vector a, int count) {
    for (int i = 0; i < count; ++i) target[i] = FloatToHalf(a.lane[i]);
  }

  /*! \brief Round `count` numbers in [-127, 127] to integers, ties to even, and store them. */
  static void StoreRounded(int8_t* target, Vector a, int count) {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    for (int i = 0; i < count; ++i) {
      target[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(a.lane[i] + 12582912.0f));
    }
  }

  static Integers SetIntegers(int32_t value) {
    Integers result;
    for (int32_t& lane : result.lane) lane = value;
    return result;
  }

  static Vector ToFloat(Integers a) {
    return Map([&](int i) { return static_cast<float>(a.lane[i]); });
  }

  /*! \return The nearest integers, ties to even, clamped to [-127, 127]. */
  static Integers RoundToBytes(Vector a) {
    Integers result;
    for (int i = 0; i < kWidth; ++i) {
      const float rounded = std::nearbyint(a.lane[i]);
      result.lane[i] = static_cast<int32_t>(rounded < -127.0f  ? -127.0f
                                            : rounded > 127.0f ? 127.0f
                                                               : rounded);
    }
    return result;
  }

  /*! \brief Store integers in [-128, 127] as bytes. */
  static void StoreBytes(int8_t* target, Integers a) {
    for (int i = 0; i < kWidth; ++i) target[i] = static_cast<int8_t>(a.lane[i]);
  }

  static int32_t SumIntegers(Integers a, Integers b) {
    int32_t sum = 0;
    for (int i = 0; i < kWidth; ++i) sum += a.lane[i] + b.lane[i];
    return sum;
  }

  /*! \return The bits of the largest absolute value; NaN counts as larger than infinity. */
  static uint32_t LargestMagnitude(Vector a, Vector b) {
    uint32_t largest = 0;
    for (int i = 0; i < kWidth; ++i) {
      const uint32_t of_a = std::bit_cast<uint32_t>(a.lane[i]) & 0x7fffffffu;
      const uint32_t of_b = std::bit_cast<uint32_t>(b.lane[i]) & 0x7fffffffu;
      largest = of_a > largest ? of_a : largest;
      largest = of_b > largest ? of_b : largest;
    }
    return largest;
  }

  static Vector Add(Vector a, Vector b) {
    return Map([&](int i) { return a.lane[i] + b.lane[i]; });
  }

  static Vector Sub(Vector a, Vector b) {
    return Map([&](int i) { return a.lane[i] - b.lane[i]; });
  }

  static Vector Mul(Vector a, Vector b) {
    return Map([&](int i) { return a.lane[i] * b.lane[i]; });
  }

  static Vector Div(Vector a, Vector b) {
    return Map([&](int i) { return a.lane[i] / b.lane[i]; });
  }

  /*! \return a * b + c, rounded once. */
  static Vector Fma(Vector a, Vector b, Vector c) {
    return Map([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }

  /*! \return The larger of a and b; b if one of them is NaN or both are zeros. */
  static Vector Max(Vector a, Vector b) {
    return Map([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }

  /*! \return The smaller of a and b; b if one of them is NaN or both are zeros. */
  static Vector Min(Vector a, Vector b) {
    return Map([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }

  /*! \return Zero where `a < limit`, and `value` elsewhere. */
  static Vector ZeroIfLess(Vector a, Vector limit, Vector value) {
    return Map([&](int i) { return a.lane[i] < limit.lane[i] ? 0.0f : value.lane[i]; });
  }

  /*!
   * \brief Store the lanes with low <= a < high, and their ids, which count up from `first_id`.
   * \param values With space for kWidth elements, like `ids`.
   * \return The number of these lanes.
   */
  static int StoreBetween(Vector a, Vector low, Vector high, int32_t first_id, float* values,
                          int32_t* ids) {
    int count = 0;
    for (int i = 0; i < kWidth; ++i) {  // Without branches, which could not be predicted.
      values[count] = a.lane[i];
      ids[count] = first_id + i;
      count += (a.lane[i] >= low.lane[i]) & (a.lane[i] < high.lane[i]);
    }
    return count;
  }

  /*! \return The first `count` lanes of `a`, and the remaining lanes of `b`. */
  static Vector Select(int count, Vector a, Vector b) {
    return Map([&](int i) { return i < count ? a.lane[i] : b.lane[i]; });
  }

  /*! \return 2^n in each lane, where n is the integer in the low bits of the lane of `a`. */
  static Vector PowerOfTwo(Vector a) {
    return Map([&](int i) {
      return std::bit_cast<float>((std::bit_cast<uint32_t>(a.lane[i]) << 23) + 0x3f800000u);
    });
  }

  /*! \return Lane 0. */
  static float First(Vector a) { return a.lane[0]; }

  /*! \return The sum of all lanes, added pairwise: lane i and i + 8, then i + 4, i + 2, i + 1. */
  static float Sum(Vector a) {
    for (int step = kWidth / 2; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i) a.lane[i] = a.lane[i] + a.lane[i + step];
    }
    return a.lane[0];
  }

  /*! \return The largest lane. */
  static float Largest(Vector a) {
    for (int step = kWidth / 2; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i) {
        a.lane[i] = a.lane[i] > a.lane[i + step] ? a.lane[i] : a.lane[i + step];
      }
    }
    return a.lane[0];
  }

  /*! \brief Store the transpose of sixteen rows: lane c of rows[r] becomes target[16 * c + r]. */
  static void StoreTransposed(const Vector (&rows)[kWidth], float* target) {
    for (int row = 0; row < kWidth; ++row) {
      for (int column = 0; column < kWidth; ++column) {
        target[column * kWidth + row] = rows[row].lane[column];
      }
    }
  }

 private:
  template <typename Function>
  static Vector Map(Function function) {
    Vector result;
    for (int i = 0; i < kWidth; ++i) result.lane[i] = function(i);
    return result;
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_SIMD_SIMD_PORTABLE_H_
