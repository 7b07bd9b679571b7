/*!
 * \file platform/float_types.h
 * \brief Element types of tensors, and scalar conversions of the 16-bit floats.
 */
#ifndef AIOMLC_PLATFORM_FLOAT_TYPES_H_
#define AIOMLC_PLATFORM_FLOAT_TYPES_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace aiomlc {

/*! \brief The element type of an activation tensor. */
enum class FloatType { kF32, kF16 };

/*! \return The bytes of one element. */
constexpr size_t FloatBytes(FloatType type) { return type == FloatType::kF32 ? 4 : 2; }

/*! \brief Convert an IEEE binary16 exactly. A signaling NaN becomes quiet. */
constexpr float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1fu) {
    const uint32_t quiet = mantissa == 0 ? 0 : 0x400000u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent == 0) {
    // Zero or subnormal: a multiple of 2^-24, which float32 holds exactly.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/*! \brief The least magnitude that rounds to an infinite binary16. */
inline constexpr float kHalfOverflow = 65520.0f;

/*! \brief Round to nearest-even IEEE binary16; overflow gives infinity, NaN stays NaN. */
constexpr uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  constexpr auto kOverflowBits = std::bit_cast<uint32_t>(kHalfOverflow);
  if (magnitude >= kOverflowBits) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude >= 0x38800000u) {
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
  }
  // A subnormal half is a multiple of 2^-24; at most half a unit rounds to zero.
  if (magnitude <= 0x33000000u) return static_cast<uint16_t>(sign);
  const uint32_t shift = 126u - (magnitude >> 23);
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t units = mantissa >> shift;
  const uint32_t remainder = mantissa & ((1u << shift) - 1);
  const uint32_t half_unit = 1u << (shift - 1);
  const bool round_up = remainder > half_unit || (remainder == half_unit && (units & 1u) != 0);
  return static_cast<uint16_t>(sign | (units + (round_up ? 1u : 0u)));
}

/*!
 * \brief Round to the nearest-even binary16 value, without a branch, so that loops are vectorized.
 *
 * The magnitude must be less than `kHalfOverflow`, or infinite. NaN stays NaN.
 */
constexpr float RoundToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu;
  // A subnormal half is a multiple of 2^-24, which is the step of floats in [0.5, 1).
  const float subnormal = value + 0.75f - 0.75f;
  return (bits & 0x7fffffffu) < 0x38800000u ? subnormal : std::bit_cast<float>(rounded);
}

/*! \brief Convert a bfloat16 exactly. */
constexpr float BFloat16ToFloat(uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16);
}

/*! \brief Round to nearest-even bfloat16; NaN stays NaN. */
constexpr uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_FLOAT_TYPES_H_
