/*!
 * \file kernels/simd/simd_avx2.h
 * \brief Sixteen float32 lanes in two AVX2 registers; simd_portable.h documents the operations.
 */
#ifndef AIOMLC_KERNELS_SIMD_SIMD_AVX2_H_
#define AIOMLC_KERNELS_SIMD_SIMD_AVX2_H_

#include <immintrin.h>

#include <cstdint>

namespace aiomlc {

struct Avx2Lanes {
  static constexpr int kWidth = 16;
  static constexpr int kAccumulators = 4;

  static constexpr int kRegisters = 2;

  struct Vector {
    __m256 low, high;
  };

  struct Integers {
    __m256i low, high;
  };

  static Vector Set(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }

  static Vector Load(const float* source) {
    return {_mm256_loadu_ps(source), _mm256_loadu_ps(source + 8)};
  }

  static Vector Load(const uint16_t* source) { return {Widen(source), Widen(source + 8)}; }

  static Vector Load(const int8_t* source) { return {Widen(source), Widen(source + 8)}; }

  static Vector Load(const uint8_t* source) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
  }

  static Vector LoadBFloat16(const uint16_t* source) {
    return {WidenBFloat16(source), WidenBFloat16(source + 8)};
  }

  static Vector LoadEvenBFloat16(const uint16_t* source) {
    return {Even(LoadPairs(source)), Even(LoadPairs(source + 16))};
  }
  static Vector LoadOddBFloat16(const uint16_t* source) {
    return {Odd(LoadPairs(source)), Odd(LoadPairs(source + 16))};
  }
  static Vector SetEvenBFloat16(uint32_t pair) {
    const __m256 eight = Even(_mm256_set1_epi32(static_cast<int32_t>(pair)));
    return {eight, eight};
  }
  static Vector SetOddBFloat16(uint32_t pair) {
    const __m256 eight = Odd(_mm256_set1_epi32(static_cast<int32_t>(pair)));
    return {eight, eight};
  }

  static Vector LoadFirst(const float* source, int count) {
    float padded[kWidth] = {};
    __builtin_memcpy(padded, source, sizeof(float) * count);
    return Load(padded);
  }

  static Vector LoadFirst(const uint16_t* source, int count) {
    uint16_t padded[kWidth] = {};
    __builtin_memcpy(padded, source, sizeof(uint16_t) * count);
    return Load(padded);
  }

  static Vector LoadFirst(const int8_t* source, int count) {
    int8_t padded[kWidth] = {};
    __builtin_memcpy(padded, source, count);
    return Load(padded);
  }

  static void Store(float* target, Vector a) {
    _mm256_storeu_ps(target, a.low);
    _mm256_storeu_ps(target + 8, a.high);
  }

  static void Store(uint16_t* target, Vector a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target), Narrow(a.low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + 8), Narrow(a.high));
  }

  static Vector RoundToBFloat16(Vector a) { return {RoundBFloat16(a.low), RoundBFloat16(a.high)}; }

  static void StoreBFloat16(uint16_t* target, Vector a) {
    const __m256i words = _mm256_packus_epi32(UpperHalves(a.low), UpperHalves(a.high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), _mm256_permute4x64_epi64(words, 0xd8));
  }

  static void StorePairs(uint16_t* target, Vector even, Vector odd) {
    auto* const pairs = reinterpret_cast<__m256i*>(target);
    const auto join = [](__m256 a, __m256 b) {
      return _mm256_or_si256(UpperHalves(a), _mm256_castps_si256(b));
    };
    _mm256_storeu_si256(pairs, join(even.low, odd.low));
    _mm256_storeu_si256(pairs + 1, join(even.high, odd.high));
  }

  static void StoreFirst(float* target, Vector a, int count) {
    float padded[kWidth];
    Store(padded, a);
    __builtin_memcpy(target, padded, sizeof(float) * count);
  }

  static void StoreFirst(uint16_t* target, Vector a, int count) {
    uint16_t padded[kWidth];
    Store(padded, a);
    __builtin_memcpy(target, padded, sizeof(uint16_t) * count);
  }

  static void StoreRounded(int8_t* target, Vector a, int count) {
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
    __builtin_memcpy(target, &bytes, count);
  }

  static Integers SetIntegers(int32_t value) {
    return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)};
  }

  static Vector ToFloat(Integers a) {
    return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
  }

  static Integers RoundToBytes(Vector a) { return {RoundToBytes(a.low), RoundToBytes(a.high)}; }

  static void StoreBytes(int8_t* target, Integers a) {
    // The pack instructions work on 128-bit halves; the permutation restores the order.
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target), bytes);
  }

  static int32_t SumIntegers(Integers a, Integers b) {
    const __m256i eight =
        _mm256_add_epi32(_mm256_add_epi32(a.low, a.high), _mm256_add_epi32(b.low, b.high));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
  }

  static uint32_t LargestMagnitude(Vector a, Vector b) {
    const __m256i eight = _mm256_max_epu32(_mm256_max_epu32(Magnitude(a.low), Magnitude(a.high)),
                                           _mm256_max_epu32(Magnitude(b.low), Magnitude(b.high)));
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
  }

  static Vector Add(Vector a, Vector b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }

  static Vector Sub(Vector a, Vector b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
  }

  static Vector Mul(Vector a, Vector b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
  }

  static Vector Div(Vector a, Vector b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
  }

  static Vector Fma(Vector a, Vector b, Vector c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }

  static Vector Max(Vector a, Vector b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  }

  static Vector Min(Vector a, Vector b) {
    return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
  }

  static Vector ZeroIfLess(Vector a, Vector limit, Vector value) {
    return {_mm256_andnot_ps(_mm256_cmp_ps(a.low, limit.low, _CMP_LT_OQ), value.low),
            _mm256_andnot_ps(_mm256_cmp_ps(a.high, limit.high, _CMP_LT_OQ), value.high)};
  }

  static int StoreBetween(Vector a, Vector low, Vector high, int32_t first_id, float* values,
                          int32_t* ids) {
    unsigned lanes = static_cast<unsigned>(Between(a.low, low.low, high.low)) |
                     static_cast<unsigned>(Between(a.high, low.high, high.high)) << 8;
    if (lanes == 0) return 0;
    alignas(32) float all[kWidth];
    Store(all, a);
    int count = 0;
    for (; lanes != 0; lanes &= lanes - 1) {
      const int lane = __builtin_ctz(lanes);
      values[count] = all[lane];
      ids[count++] = first_id + lane;
    }
    return count;
  }

  static Vector Select(int count, Vector a, Vector b) {
    return {_mm256_blendv_ps(b.low, a.low, FirstMask(count)),
            _mm256_blendv_ps(b.high, a.high, FirstMask(count - 8))};
  }

  static Vector PowerOfTwo(Vector a) { return {PowerOfTwo(a.low), PowerOfTwo(a.high)}; }

  static float First(Vector a) { return _mm256_cvtss_f32(a.low); }

  static float Sum(Vector a) {
    const __m256 eight = _mm256_add_ps(a.low, a.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
  }

  static float Largest(Vector a) {
    const __m256 eight = _mm256_max_ps(a.low, a.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
  }

  static void StoreTransposed(const Vector (&rows)[kWidth], float* target) {
    __m256 quarter[8];
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 8; ++i) quarter[i] = rows[8 * half + i].low;
      StoreTransposed8(quarter, target + 8 * half);
      for (int i = 0; i < 8; ++i) quarter[i] = rows[8 * half + i].high;
      StoreTransposed8(quarter, target + 8 * kWidth + 8 * half);
    }
  }

 private:
  static int Between(__m256 a, __m256 low, __m256 high) {
    return _mm256_movemask_ps(
        _mm256_and_ps(_mm256_cmp_ps(a, low, _CMP_GE_OQ), _mm256_cmp_ps(a, high, _CMP_LT_OQ)));
  }

  static __m256 Widen(const uint16_t* source) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
  }

  static __m256 Widen(const int8_t* source) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(source));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }

  static __m256i LoadPairs(const uint16_t* source) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  }
  static __m256 Even(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
  static __m256 Odd(__m256i pairs) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000));
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, upper));
  }

  static __m256i UpperHalves(__m256 a) { return _mm256_srli_epi32(_mm256_castps_si256(a), 16); }

  static __m256 RoundBFloat16(__m256 a) {
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return Odd(_mm256_blendv_epi8(rounded, quiet, nan));
  }

  static __m256 WidenBFloat16(const uint16_t* source) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }

  static __m256i RoundToBytes(__m256 a) {
    const __m256i rounded = _mm256_min_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
    return _mm256_max_epi32(rounded, _mm256_set1_epi32(-127));
  }

  static __m256i Magnitude(__m256 a) {
    return _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
  }

  static __m128i Narrow(__m256 a) {
    return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }

  static __m256 FirstMask(int count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
  }

  static __m256 PowerOfTwo(__m256 a) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(a), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32(0x3f800000)));
  }

  static void StoreTransposed8(const __m256 (&rows)[8], float* target) {
    __m256 quads[8];  // quads[4 * i + c]: columns c and c + 4 of rows 4i to 4i + 3.
    for (int i = 0; i < 2; ++i) {
      const __m256 a = _mm256_unpacklo_ps(rows[4 * i], rows[4 * i + 1]);
      const __m256 b = _mm256_unpackhi_ps(rows[4 * i], rows[4 * i + 1]);
      const __m256 c = _mm256_unpacklo_ps(rows[4 * i + 2], rows[4 * i + 3]);
      const __m256 d = _mm256_unpackhi_ps(rows[4 * i + 2], rows[4 * i + 3]);
      quads[4 * i] = _mm256_shuffle_ps(a, c, 0x44);
      quads[4 * i + 1] = _mm256_shuffle_ps(a, c, 0xee);
      quads[4 * i + 2] = _mm256_shuffle_ps(b, d, 0x44);
      quads[4 * i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    for (int c = 0; c < 4; ++c) {
      _mm256_storeu_ps(target + c * kWidth, _mm256_permute2f128_ps(quads[c], quads[4 + c], 0x20));
      _mm256_storeu_ps(target + (4 + c) * kWidth,
                       _mm256_permute2f128_ps(quads[c], quads[4 + c], 0x31));
    }
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_SIMD_SIMD_AVX2_H_
