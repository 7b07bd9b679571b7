/*!
 * \file kernels/attention/attention_products.h
 * \brief The operands of attention's products: float32 numbers, or pairs of bf16.
 *
 * Float32 operands are converted from the pages' float32, float16 or int8. With pages of bf16 or of
 * 4 bits, queries and probabilities are rounded to bf16, too; two inputs are multiplied at a time,
 * of adjacent elements of keys, or of adjacent slots of values. Scores, sums and the softmax are
 * float32. With bf16 pages, the probabilities are added as they were rounded, so that their sum is
 * 1. If the type has scales, that of a key multiplies its score, that of a value its probability,
 * which is rounded after that.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_ATTENTION_PRODUCTS_H_
#define AIOMLC_KERNELS_ATTENTION_ATTENTION_PRODUCTS_H_

#include <cstdint>

#include "kernels/attention/attention_types.h"
#include "kernels/simd/bf16_pairs.h"
#include "kernels/simd/simd_math.h"

namespace aiomlc {

/*!
 * \brief Compute e^x for x <= 0 with an error of 1e-4, a twentieth of what rounding to bf16 adds.
 *
 * 0 below -87, and exactly 1 at 0. NaN stays NaN.
 */
template <typename Lanes>
inline typename Lanes::Vector RoughExp(typename Lanes::Vector x) {
  using Vector = typename Lanes::Vector;
  const Vector lowest = Lanes::Set(-87.0f);
  const Vector clamped = Lanes::Max(lowest, x);
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const Vector shift = Lanes::Set(12582912.0f);
  const Vector shifted = Lanes::Fma(clamped, Lanes::Set(0x1.715476p+0f), shift);
  const Vector r = Lanes::Fma(Lanes::Sub(shifted, shift), Lanes::Set(-0x1.62e43p-1f), clamped);
  Vector p = Lanes::Set(0x1.5249c4p-3f);
  p = Lanes::Fma(p, r, Lanes::Set(0x1.021d62p-1f));
  p = Lanes::Fma(p, r, Lanes::Set(0x1.000cd6p+0f));
  p = Lanes::Fma(p, r, Lanes::Set(1.0f));
  return Lanes::ZeroIfLess(x, lowest, Lanes::Mul(p, Lanes::PowerOfTwo(shifted)));
}

/*! \return The scales of the 16 keys or values that start at `plane`. */
template <typename Operands>
const float* ScalesAfter(const typename Operands::Stored* plane, int head_dim) {
  const int64_t size = static_cast<int64_t>(head_dim) * kTilePageSize;
  return reinterpret_cast<const float*>(plane + Operands::Offset(size));
}

/*! \brief One float32 input per operand. \tparam StoredType The element type of the pages. */
template <typename LanesOfTier, typename StoredType>
struct FloatOperands {
  using Lanes = LanesOfTier;
  using Stored = StoredType;
  using Vector = typename Lanes::Vector;
  static constexpr int kInputs = 1;
  static constexpr bool kScaled = sizeof(Stored) == 1;

  /*! \return The offset in a page of an element. */
  static int64_t Offset(int64_t element) { return element; }
  static Vector Load(const Stored* source) { return Lanes::Load(source); }
  static Vector LoadFirst(const Stored* source, int count) {
    return count >= Lanes::kWidth ? Lanes::Load(source) : Lanes::LoadFirst(source, count);
  }
  static Vector Add(Vector a, Vector b, Vector sums) { return Lanes::Fma(a, b, sums); }
  /*! \return e^x, the probabilities before they are divided by their sum. \param x At most 0. */
  static Vector Probabilities(Vector x) { return Exp<Lanes>(x); }
  /*! \return Probabilities times the scales of values. */
  static Vector Weights(Vector probs, Vector scales) { return Lanes::Mul(probs, scales); }

  // `TileAttention`: rows of queries and of probabilities.
  static void StoreQueries(float* queries, int at, Vector row) { Lanes::Store(queries + at, row); }
  static Vector Query(const float* queries, int at) { return Lanes::Set(queries[at]); }
  static void StoreProbs(float* probs, Vector row) { Lanes::Store(probs, row); }
  static Vector Prob(const float* probs, int slot) { return Lanes::Set(probs[slot]); }

  // `BlockAttention`: columns [input][query].
  template <int kCount>
  static void StoreColumns(float* columns, int input, int first, const Vector (&values)[kCount]) {
    for (int i = 0; i < kCount; ++i) {
      Lanes::Store(columns + (input + i) * kMaxTileQueries + first, values[i]);
    }
  }
  static Vector LoadColumn(const float* columns, int input, int first) {
    return Lanes::Load(columns + input * kMaxTileQueries + first);
  }
};

/*! \brief Two bf16 inputs per operand. \tparam Pairs Their products: see bf16_pairs.h. */
template <typename Pairs>
struct PairOperands {
  using Lanes = typename Pairs::Lanes;
  using Stored = uint16_t;
  using Vector = typename Pairs::Pairs;
  using Floats = typename Lanes::Vector;
  static constexpr int kInputs = 2;
  static constexpr bool kScaled = false;

  static int64_t Offset(int64_t element) { return element; }
  static Vector Load(const uint16_t* source) { return Pairs::Load(source); }
  static Vector LoadFirst(const uint16_t* source, int /*count*/) { return Pairs::Load(source); }
  static Vector Set(const uint16_t* pair) { return Pairs::Set(pair); }
  static Vector Even(Vector a) { return Pairs::Even(a); }
  static Vector Odd(Vector a) { return Pairs::Odd(a); }
  static Floats Add(Vector a, Vector b, Floats sums) { return Pairs::Add(a, b, sums); }
  static Floats Probabilities(Floats x) { return Lanes::RoundToBFloat16(RoughExp<Lanes>(x)); }

  static void StoreQueries(float* queries, int at, Floats row) {
    Lanes::StoreBFloat16(Halves(queries) + at, Lanes::RoundToBFloat16(row));
  }
  static Vector Query(const float* queries, int at) { return Pairs::Set(Halves(queries) + at); }
  static void StoreProbs(float* probs, Floats row) { Lanes::StoreBFloat16(Halves(probs), row); }
  static Vector Prob(const float* probs, int slot) { return Pairs::Set(Halves(probs) + slot); }

  template <int kCount>
  static void StoreColumns(float* columns, int input, int first, const Floats (&values)[kCount]) {
    for (int i = 0; i < kCount; i += 2) {
      Lanes::StorePairs(Halves(columns) + (input + i) * kMaxTileQueries + 2 * first,
                        Lanes::RoundToBFloat16(values[i]), Lanes::RoundToBFloat16(values[i + 1]));
    }
  }
  static Vector LoadColumn(const float* columns, int input, int first) {
    return Pairs::Load(Halves(columns) + input * kMaxTileQueries + 2 * first);
  }

 private:
  static uint16_t* Halves(float* numbers) { return reinterpret_cast<uint16_t*>(numbers); }
  static const uint16_t* Halves(const float* numbers) {
    return reinterpret_cast<const uint16_t*>(numbers);
  }
};

/*! \brief Two bf16 inputs per operand, of pages that have two inputs of 4 bits per byte. */
template <typename Pairs>
struct HalfByteOperands : PairOperands<Pairs> {
  using Lanes = typename Pairs::Lanes;
  using Stored = uint8_t;
  using Vector = typename Pairs::Pairs;
  using Floats = typename Lanes::Vector;
  static constexpr bool kScaled = true;

  static int64_t Offset(int64_t element) { return element / 2; }
  static Vector Load(const uint8_t* source) { return Pairs::LoadLevels(source); }
  static Vector LoadFirst(const uint8_t* source, int /*count*/) { return Load(source); }
  static Vector Set(const uint8_t* pair) { return Pairs::SetLevels(*pair); }
  static Floats Probabilities(Floats x) { return RoughExp<Lanes>(x); }

  /*! \return Weights, which are zero where a slot is hidden, whose scale may be NaN. */
  static Floats Weights(Floats probs, Floats scales) {
    return Lanes::RoundToBFloat16(
        Lanes::ZeroIfLess(probs, Lanes::Set(__FLT_MIN__), Lanes::Mul(probs, scales)));
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_PRODUCTS_H_
