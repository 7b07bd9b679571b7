/*!
 * \file kernels/simd/simd_math.h
 * \brief Vector functions of every tier: exp, erfc, the tanh approximation of GELU, and the soft
 * cap.
 */
#ifndef AIOMLC_KERNELS_SIMD_SIMD_MATH_H_
#define AIOMLC_KERNELS_SIMD_SIMD_MATH_H_

namespace aiomlc {

/*!
 * \brief Compute e^x to about 1 ulp.
 *
 * Saturates at x = 88; is 0 below -87 (including minus infinity), and exactly 1 at 0. NaN stays
 * NaN.
 */
template <typename Lanes>
inline typename Lanes::Vector Exp(typename Lanes::Vector x) {
  using Vector = typename Lanes::Vector;
  const Vector lowest = Lanes::Set(-87.0f);
  const Vector clamped = Lanes::Min(Lanes::Set(88.0f), Lanes::Max(lowest, x));
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const Vector shift = Lanes::Set(12582912.0f);
  const Vector shifted = Lanes::Fma(clamped, Lanes::Set(0x1.715476p+0f), shift);
  const Vector power = Lanes::Sub(shifted, shift);
  // ln 2 as the sum of two floats, so that x - power * ln 2 keeps its low bits.
  Vector r = Lanes::Fma(power, Lanes::Set(-0x1.62e4p-1f), clamped);
  r = Lanes::Fma(power, Lanes::Set(-0x1.7f7d1cp-20f), r);
  Vector p = Lanes::Set(0x1.a01a02p-13f);
  p = Lanes::Fma(p, r, Lanes::Set(0x1.6c16c2p-10f));
  p = Lanes::Fma(p, r, Lanes::Set(0x1.111112p-7f));
  p = Lanes::Fma(p, r, Lanes::Set(0x1.555556p-5f));
  p = Lanes::Fma(p, r, Lanes::Set(0x1.555556p-3f));
  p = Lanes::Fma(p, r, Lanes::Set(0.5f));
  p = Lanes::Fma(p, r, Lanes::Set(1.0f));
  p = Lanes::Fma(p, r, Lanes::Set(1.0f));
  return Lanes::ZeroIfLess(x, lowest, Lanes::Mul(p, Lanes::PowerOfTwo(shifted)));
}

/*!
 * \brief Compute the complementary error function of x >= 0, with an error of at most 2e-7.
 *
 * A polynomial in 1 / (1 + p x) times e^(-x^2): Abramowitz and Stegun, formula 7.1.26.
 */
template <typename Lanes>
inline typename Lanes::Vector Erfc(typename Lanes::Vector x) {
  using Vector = typename Lanes::Vector;
  const Vector one = Lanes::Set(1.0f);
  const Vector t = Lanes::Div(one, Lanes::Fma(Lanes::Set(0.3275911f), x, one));
  Vector p = Lanes::Set(1.061405429f);
  p = Lanes::Fma(p, t, Lanes::Set(-1.453152027f));
  p = Lanes::Fma(p, t, Lanes::Set(1.421413741f));
  p = Lanes::Fma(p, t, Lanes::Set(-0.284496736f));
  p = Lanes::Fma(p, t, Lanes::Set(0.254829592f));
  const Vector decay = Exp<Lanes>(Lanes::Mul(Lanes::Sub(Lanes::Set(0.0f), x), x));
  return Lanes::Mul(Lanes::Mul(p, t), decay);
}

/*!
 * \brief Compute the tanh approximation of GELU.
 *
 * x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3) equals x / (1 + e^(-2 u)).
 */
template <typename Lanes>
inline typename Lanes::Vector GeluTanh(typename Lanes::Vector x) {
  using Vector = typename Lanes::Vector;
  // -2 sqrt(2 / pi), and 0.044715 times this.
  const Vector linear = Lanes::Set(-0x1.988454p+0f);
  const Vector cubic = Lanes::Set(-0x1.2444f4p-4f);
  const Vector decay = Exp<Lanes>(Lanes::Mul(x, Lanes::Fma(Lanes::Mul(x, x), cubic, linear)));
  return Lanes::Div(x, Lanes::Add(Lanes::Set(1.0f), decay));
}

/*!
 * \brief Compute cap * tanh(x / cap), with an error of at most 2e-7 * cap.
 *
 * The result is an odd function of x and never exceeds |x|. NaN stays NaN. For y >= 0, tanh(y) is
 * computed as (1 - e^(-2y)) / (1 + e^(-2y)).
 */
template <typename Lanes>
inline typename Lanes::Vector SoftCap(typename Lanes::Vector x, float cap) {
  using Vector = typename Lanes::Vector;
  const Vector zero = Lanes::Set(0.0f);
  const Vector one = Lanes::Set(1.0f);
  const Vector magnitude = Lanes::Max(Lanes::Sub(zero, x), x);
  const Vector decay = Exp<Lanes>(Lanes::Mul(magnitude, Lanes::Set(-2.0f / cap)));
  const Vector tanh = Lanes::Div(Lanes::Sub(one, decay), Lanes::Add(one, decay));
  const Vector bound = Lanes::Mul(Lanes::Set(cap), tanh);
  return Lanes::Min(bound, Lanes::Max(Lanes::Sub(zero, bound), x));
}

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_SIMD_SIMD_MATH_H_
