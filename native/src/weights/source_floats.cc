#include "weights/source_floats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace aiomlc {

namespace {

// Branch-free, so that the compiler vectorizes the loops. Equal to `HalfToFloat`, except for the
// payload of a NaN.
float WidenHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

float WidenBFloat(uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16);
}

/*! \brief 4 exponent bits with bias 7, 3 mantissa bits; no infinity, and one NaN of each sign. */
float WidenE4M3(uint8_t bits) {
  const int exponent = (bits >> 3) & 15;
  const auto mantissa = static_cast<float>(bits & 7);
  const float magnitude = (bits & 0x7f) == 0x7f ? std::numeric_limits<float>::quiet_NaN()
                          : exponent == 0       ? std::ldexp(mantissa, -9)
                                                : std::ldexp(8 + mantissa, exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

template <typename Widen>
std::array<float, 256> Table(Widen widen) {
  std::array<float, 256> table;
  for (size_t i = 0; i < table.size(); ++i) table.at(i) = widen(static_cast<uint8_t>(i));
  return table;
}

void WidenBytes(const std::array<float, 256>& table, const uint8_t* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = table[in[i]];
}

template <typename Widen>
void WidenHalves(Widen widen, const uint8_t* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, in + 2 * i, sizeof(half));
    out[i] = widen(half);
  }
}

}  // namespace

int64_t SourceFloatBytes(SourceType type) {
  switch (type) {
    case SourceType::kF32:
      return 4;
    case SourceType::kF16:
    case SourceType::kBF16:
      return 2;
    default:
      return 1;
  }
}

void WidenFloats(SourceType type, const uint8_t* in, int64_t count, float* out) {
  // Its bits are the upper ones of a float16.
  static const std::array<float, 256> e5m2 =
      Table([](uint8_t bits) { return WidenHalf(static_cast<uint16_t>(bits << 8)); });
  static const std::array<float, 256> e4m3 = Table(WidenE4M3);
  switch (type) {
    case SourceType::kF32:
      std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
      break;
    case SourceType::kF16:
      WidenHalves(WidenHalf, in, count, out);
      break;
    case SourceType::kBF16:
      WidenHalves(WidenBFloat, in, count, out);
      break;
    case SourceType::kF8E4M3:
      WidenBytes(e4m3, in, count, out);
      break;
    default:
      WidenBytes(e5m2, in, count, out);
  }
}

uint16_t HalfOfPower(uint8_t exponent) {
  // The two least powers are subnormal.
  return static_cast<uint16_t>(exponent >= 2 ? (exponent - 1u) << 7 : 0x20u << exponent);
}

float LargestMagnitude(const float* values, int64_t count) {
  // Without the sign bit, floats have the same order as their bits.
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  }
  return std::bit_cast<float>(largest);
}

}  // namespace aiomlc
