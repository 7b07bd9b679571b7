/*!
 * \file kernels/simd/bf16_pairs_avx512.h
 * \brief Products of pairs of bf16 by AVX512-BF16; bf16_pairs.h documents the operations.
 */
#ifndef AIOMLC_KERNELS_SIMD_BF16_PAIRS_AVX512_H_
#define AIOMLC_KERNELS_SIMD_BF16_PAIRS_AVX512_H_

#include <bit>
#include <cstdint>

#include "kernels/simd/bf16_pairs.h"
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

  static Pairs LoadLevels(const uint8_t* source) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    // The permutation takes the low 5 bits of each half, the last of which is any. So a byte is
    // wanted in both halves, in the upper one shifted by 4 bits: a product with 1 + 2^12.
    const __m512i levels =
        _mm512_madd_epi16(_mm512_cvtepu8_epi32(bytes), _mm512_set1_epi32(0x1001));
    return {_mm512_permutexvar_epi16(levels, _mm512_load_si512(kTable.numbers))};
  }

  static Pairs SetLevels(uint8_t pair) {
    return {_mm512_set1_epi32(static_cast<int32_t>(kTable.pairs[pair]))};
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

 private:
  struct Table {
    alignas(64) uint16_t numbers[32];  //!< Of the 16 levels, twice.
    uint32_t pairs[256];

    constexpr Table() : numbers(), pairs() {
      for (uint32_t i = 0; i < 32; ++i) numbers[i] = BitsOf(i % 16);
      for (uint32_t i = 0; i < 256; ++i) {
        pairs[i] = BitsOf(i % 16) | static_cast<uint32_t>(BitsOf(i / 16)) << 16;
      }
    }

    static constexpr uint16_t BitsOf(uint32_t level) {
      return static_cast<uint16_t>(std::bit_cast<uint32_t>(NumberOfLevel(level)) >> 16);
    }
  };
  static const Table kTable;
};

inline constexpr Avx512Pairs::Table Avx512Pairs::kTable;

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_SIMD_BF16_PAIRS_AVX512_H_
