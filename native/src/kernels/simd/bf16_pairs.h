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

#include "kernels/simd/registers.h"

namespace aiomlc {

namespace {  // Internal linkage, because files of several instruction-set tiers include this.

/*! \return The number that a level of 4 bits stands for: an odd one from -15 to 15. */
constexpr float NumberOfLevel(uint32_t level) { return 2.0f * static_cast<float>(level) - 15.0f; }

}  // namespace

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

  /*! \brief Load 16 pairs of levels; the low bits of a byte have the even one. */
  static Pairs LoadLevels(const uint8_t* source) {
    using Bytes = Registers<16>::Bytes;
    const auto bytes = LoadVector<Bytes>(source);
    return {Numbers(bytes & 15), Numbers(bytes >> 4)};
  }

  /*! \return One pair of levels in all lanes. */
  static Pairs SetLevels(uint8_t pair) {
    return {Lanes::Set(NumberOfLevel(pair & 15)), Lanes::Set(NumberOfLevel(pair >> 4))};
  }

  /*! \return The even, or odd, numbers of pairs, beside zeros. */
  static Pairs Even(Pairs a) { return {a.even, Lanes::Set(0.0f)}; }
  static Pairs Odd(Pairs a) { return {Lanes::Set(0.0f), a.odd}; }

  /*! \return fma(a.even, b.even, fma(a.odd, b.odd, sums)). */
  static Vector Add(Pairs a, Pairs b, Vector sums) {
    return Lanes::Fma(a.even, b.even, Lanes::Fma(a.odd, b.odd, sums));
  }

 private:
  static Vector Numbers(Registers<16>::Bytes levels) {
    uint8_t bytes[sizeof(levels)];
    __builtin_memcpy(bytes, &levels, sizeof(levels));
    return Lanes::Fma(Lanes::Load(bytes), Lanes::Set(2.0f), Lanes::Set(-15.0f));
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_SIMD_BF16_PAIRS_H_
