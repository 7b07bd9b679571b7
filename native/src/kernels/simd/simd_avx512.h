/*!
 * \file kernels/simd/simd_avx512.h
 * \brief Sixteen float32 lanes in one AVX-512 register; simd_portable.h documents the operations.
 */
#ifndef AIOMLC_KERNELS_SIMD_SIMD_AVX512_H_
#define AIOMLC_KERNELS_SIMD_SIMD_AVX512_H_

// GCC 12 implements intrinsics with intentionally uninitialized vectors.
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

namespace aiomlc {

struct Avx512Lanes {
  static constexpr int kWidth = 16;
  static constexpr int kAccumulators = 8;

  static constexpr int kRegisters = 1;

  struct Vector {
    __m512 all;
  };

  struct Integers {
    __m512i all;
  };

  static Vector Set(float value) { return {_mm512_set1_ps(value)}; }
  static Vector Load(const float* source) { return {_mm512_loadu_ps(source)}; }

  static Vector Load(const uint16_t* source) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)))};
  }

  static Vector Load(const int8_t* source) {
    return Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
  }

  static Vector Load(const uint8_t* source) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))};
  }

  static Vector LoadBFloat16(const uint16_t* source) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
  }

  static Vector LoadEvenBFloat16(const uint16_t* source) {
    return Even(_mm512_loadu_si512(source));
  }
  static Vector LoadOddBFloat16(const uint16_t* source) { return Odd(_mm512_loadu_si512(source)); }
  static Vector SetEvenBFloat16(uint32_t pair) {
    return Even(_mm512_set1_epi32(static_cast<int32_t>(pair)));
  }
  static Vector SetOddBFloat16(uint32_t pair) {
    return Odd(_mm512_set1_epi32(static_cast<int32_t>(pair)));
  }

  static Vector LoadFirst(const float* source, int count) {
    return {_mm512_maskz_loadu_ps(FirstMask(count), source)};
  }

  static Vector LoadFirst(const uint16_t* source, int count) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstMask(count), source))};
  }

  static Vector LoadFirst(const int8_t* source, int count) {
    return Widen(_mm_maskz_loadu_epi8(FirstMask(count), source));
  }

  static void Store(float* target, Vector a) { _mm512_storeu_ps(target, a.all); }

  static void Store(uint16_t* target, Vector a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), Narrow(a));
  }

  static Vector RoundToBFloat16(Vector a) {
    const __m512i bits = _mm512_castps_si512(a.all);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(a.all, a.all, _CMP_UNORD_Q);
    return Odd(_mm512_mask_mov_epi32(rounded, nan, quiet));
  }

  static void StoreBFloat16(uint16_t* target, Vector a) {
    const __m512i upper = _mm512_srli_epi32(_mm512_castps_si512(a.all), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), _mm512_cvtepi32_epi16(upper));
  }

  static void StorePairs(uint16_t* target, Vector even, Vector odd) {
    const __m512i lower = _mm512_srli_epi32(_mm512_castps_si512(even.all), 16);
    _mm512_storeu_si512(target, _mm512_or_si512(lower, _mm512_castps_si512(odd.all)));
  }

  static void StoreFirst(float* target, Vector a, int count) {
    _mm512_mask_storeu_ps(target, FirstMask(count), a.all);
  }

  static void StoreFirst(uint16_t* target, Vector a, int count) {
    _mm256_mask_storeu_epi16(target, FirstMask(count), Narrow(a));
  }

  static void StoreRounded(int8_t* target, Vector a, int count) {
    _mm_mask_storeu_epi8(target, FirstMask(count), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.all)));
  }

  static Integers SetIntegers(int32_t value) { return {_mm512_set1_epi32(value)}; }
  static Vector ToFloat(Integers a) { return {_mm512_cvtepi32_ps(a.all)}; }

  static Integers RoundToBytes(Vector a) {
    const __m512i rounded = _mm512_min_epi32(_mm512_cvtps_epi32(a.all), _mm512_set1_epi32(127));
    return {_mm512_max_epi32(rounded, _mm512_set1_epi32(-127))};
  }

  static void StoreBytes(int8_t* target, Integers a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target), _mm512_cvtepi32_epi8(a.all));
  }

  static int32_t SumIntegers(Integers a, Integers b) {
    return _mm512_reduce_add_epi32(_mm512_add_epi32(a.all, b.all));
  }

  static uint32_t LargestMagnitude(Vector a, Vector b) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    return _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a.all), magnitude),
                         _mm512_and_si512(_mm512_castps_si512(b.all), magnitude)));
  }

  static Vector Add(Vector a, Vector b) { return {_mm512_add_ps(a.all, b.all)}; }
  static Vector Sub(Vector a, Vector b) { return {_mm512_sub_ps(a.all, b.all)}; }
  static Vector Mul(Vector a, Vector b) { return {_mm512_mul_ps(a.all, b.all)}; }
  static Vector Div(Vector a, Vector b) { return {_mm512_div_ps(a.all, b.all)}; }

  static Vector Fma(Vector a, Vector b, Vector c) { return {_mm512_fmadd_ps(a.all, b.all, c.all)}; }

  static Vector Max(Vector a, Vector b) { return {_mm512_max_ps(a.all, b.all)}; }
  static Vector Min(Vector a, Vector b) { return {_mm512_min_ps(a.all, b.all)}; }

  static Vector ZeroIfLess(Vector a, Vector limit, Vector value) {
    const __mmask16 keep = _mm512_cmp_ps_mask(a.all, limit.all, _CMP_NLT_UQ);
    return {_mm512_maskz_mov_ps(keep, value.all)};
  }

  static int StoreBetween(Vector a, Vector low, Vector high, int32_t first_id, float* values,
                          int32_t* ids) {
    const __mmask16 reached = _mm512_cmp_ps_mask(a.all, low.all, _CMP_GE_OQ);
    const __mmask16 lanes = _mm512_mask_cmp_ps_mask(reached, a.all, high.all, _CMP_LT_OQ);
    const __m512i offsets = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i all_ids = _mm512_add_epi32(_mm512_set1_epi32(first_id), offsets);
    // A compression to memory takes some processors 10 times as long as one to a register.
    _mm512_storeu_ps(values, _mm512_maskz_compress_ps(lanes, a.all));
    _mm512_storeu_si512(ids, _mm512_maskz_compress_epi32(lanes, all_ids));
    return __builtin_popcount(lanes);
  }

  static Vector Select(int count, Vector a, Vector b) {
    return {_mm512_mask_blend_ps(FirstMask(count), b.all, a.all)};
  }

  static Vector PowerOfTwo(Vector a) {
    const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(a.all), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(exponent, _mm512_set1_epi32(0x3f800000)))};
  }

  static float First(Vector a) { return _mm512_cvtss_f32(a.all); }

  static float Sum(Vector a) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
  }

  static float Largest(Vector a) {
    const __m256 eight =
        _mm256_max_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
  }

  static void StoreTransposed(const Vector (&rows)[kWidth], float* target) {
    __m512 quads[16];  // quads[4 * i + c]: columns c, c + 4, c + 8, c + 12 of rows 4i to 4i + 3.
    for (int i = 0; i < 4; ++i) {
      const __m512 a = _mm512_unpacklo_ps(rows[4 * i].all, rows[4 * i + 1].all);
      const __m512 b = _mm512_unpackhi_ps(rows[4 * i].all, rows[4 * i + 1].all);
      const __m512 c = _mm512_unpacklo_ps(rows[4 * i + 2].all, rows[4 * i + 3].all);
      const __m512 d = _mm512_unpackhi_ps(rows[4 * i + 2].all, rows[4 * i + 3].all);
      quads[4 * i] = _mm512_shuffle_ps(a, c, 0x44);
      quads[4 * i + 1] = _mm512_shuffle_ps(a, c, 0xee);
      quads[4 * i + 2] = _mm512_shuffle_ps(b, d, 0x44);
      quads[4 * i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    for (int c = 0; c < 4; ++c) {
      const __m512 a = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0x44);
      const __m512 b = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0xee);
      const __m512 d = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0x44);
      const __m512 e = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0xee);
      _mm512_storeu_ps(target + c * kWidth, _mm512_shuffle_f32x4(a, d, 0x88));
      _mm512_storeu_ps(target + (4 + c) * kWidth, _mm512_shuffle_f32x4(a, d, 0xdd));
      _mm512_storeu_ps(target + (8 + c) * kWidth, _mm512_shuffle_f32x4(b, e, 0x88));
      _mm512_storeu_ps(target + (12 + c) * kWidth, _mm512_shuffle_f32x4(b, e, 0xdd));
    }
  }

 private:
  static Vector Even(__m512i pairs) { return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))}; }
  static Vector Odd(__m512i pairs) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000));
    return {_mm512_castsi512_ps(_mm512_and_si512(pairs, upper))};
  }

  static __mmask16 FirstMask(int count) { return static_cast<__mmask16>((1u << count) - 1u); }

  static Vector Widen(__m128i bytes) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))}; }

  static __m256i Narrow(Vector a) {
    return _mm512_cvtps_ph(a.all, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_SIMD_SIMD_AVX512_H_
