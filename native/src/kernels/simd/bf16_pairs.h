/*!
 * \file kernels/simd/bf16_pairs.h
 * \brief Products of pairs of bf16 in float32 arithmetic.
 *
 * A lane has two adjacent inputs, and a sum adds the product of the odd one first, as `vdpbf16ps`
 * does. That instruction counts numbers below 2^-126 as zero; so do these products while
 * `FlushDenormals` exists. Then both have the same bits.
 */
#ifndef AIOMLC_KERNELS_SIMD_BF16_PAIRS_H_
#define AIOMLC_KERNELS_SIMD_BF16_PAIRS_H_

#include <cstdint>

namespace aiomlc {

template <typename LanesOfTier>
struct WidenedPairs {
  using Lanes = LanesOfTier;
  using Vector = typename Lanes::Vector;

  /*! \brief The vectors of registers that one operand takes. */
  static constexpr int kVectors = 2;

  struct Pairs {
    Vector even, odd;
  };

  /*! \brief Load 16 pairs. */
  static Pairs Load(const uint16_t* source) {
    return {Lanes::LoadEvenBFloat16(source), Lanes::LoadOddBFloat16(source)};
  }

  /*! \return One pair in all lanes. */
  static Pairs Set(const uint16_t* source) {
    uint32_t bits;
    __builtin_memcpy(&bits, source, sizeof(bits));
    return {Lanes::SetEvenBFloat16(bits), Lanes::SetOddBFloat16(bits)};
  }

  /*! \return The even, or odd, numbers of pairs, beside zeros. */
  static Pairs Even(Pairs a) { return {a.even, Lanes::Set(0.0f)}; }
  static Pairs Odd(Pairs a) { return {Lanes::Set(0.0f), a.odd}; }

  /*! \return fma(a.even, b.even, fma(a.odd, b.odd, sums)). */
  static Vector Add(Pairs a, Pairs b, Vector sums) {
    return Lanes::Fma(a.even, b.even, Lanes::Fma(a.odd, b.odd, sums));
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_SIMD_BF16_PAIRS_H_
