/*!
 * \file kernels/simd/bf16_pairs_avx512.h
 * \brief Products of pairs of bf16 by AVX512-BF16; bf16_pairs.h documents the operations.
 */
#ifndef AIOMLC_KERNELS_SIMD_BF16_PAIRS_AVX512_H_
#define AIOMLC_KERNELS_SIMD_BF16_PAIRS_AVX512_H_

#include <cstdint>

#include "kernels/simd/simd_avx512.h"

namespace aiomlc {

struct Avx512Pairs {
  using Lanes = Avx512Lanes;
  using Vector = Avx512Lanes::Vector;
  static constexpr int kVectors = 1;

  struct Pairs {
    __m512i all;
  };

  static Pairs Load(const uint16_t* source) { return {_mm512_loadu_si512(source)}; }

  static Pairs Set(const uint16_t* source) {
    int32_t bits;
    __builtin_memcpy(&bits, source, sizeof(bits));
    return {_mm512_set1_epi32(bits)};
  }

  static Pairs Even(Pairs a) { return {_mm512_and_si512(a.all, _mm512_set1_epi32(0xffff))}; }
  static Pairs Odd(Pairs a) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000));
    return {_mm512_and_si512(a.all, upper)};
  }

  /*! \brief As an assembler statement, which also keeps the sums in registers. */
  [[gnu::always_inline]] static Vector Add(Pairs a, Pairs b, Vector sums) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sums.all) : "v"(a.all), "v"(b.all));
    return sums;
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_SIMD_BF16_PAIRS_AVX512_H_
