#include "platform/float_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace aiomlc {
namespace {

// The value of a binary16 by its definition.
double HalfValue(uint16_t half) {
  const int exponent = (half >> 10) & 0x1f;
  const int mantissa = half & 0x3ff;
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0x1f) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

bool IsHalfNan(uint16_t half) { return (half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0; }

TEST(FloatTypes, EveryHalfIsConvertedExactlyAndRoundTrips) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (IsHalfNan(half)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(IsHalfNan(FloatToHalf(value))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), HalfValue(half)) << bits;
    ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0) << bits;
    ASSERT_EQ(FloatToHalf(value), half) << bits;
  }
}

TEST(FloatTypes, HalvesRoundToNearestEven) {
  // Below, at and above the midpoint of every two adjacent values.
  for (uint16_t lower = 0; lower < 0x7bff; ++lower) {
    const uint16_t upper = static_cast<uint16_t>(lower + 1);
    const float middle = static_cast<float>((HalfValue(lower) + HalfValue(upper)) / 2);
    const uint16_t even = (lower & 1) == 0 ? lower : upper;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), lower) << lower;
    ASSERT_EQ(FloatToHalf(middle), even) << lower;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e9f)), upper) << lower;
    ASSERT_EQ(FloatToHalf(-middle), even | 0x8000) << lower;
  }
}

TEST(FloatTypes, RoundingToHalfEqualsTheConversionToHalfAndBack) {
  const auto expect_equal = [](float value) {
    const float expected = HalfToFloat(FloatToHalf(value));
    ASSERT_EQ(RoundToHalf(value), expected) << value;
    ASSERT_EQ(RoundToHalf(-value), -expected) << value;
  };
  for (uint16_t lower = 0; lower < 0x7bff; ++lower) {
    const double upper = HalfValue(static_cast<uint16_t>(lower + 1));
    const float middle = static_cast<float>((HalfValue(lower) + upper) / 2);
    expect_equal(HalfToFloat(lower));
    expect_equal(std::nextafter(middle, 0.0f));
    expect_equal(middle);
    expect_equal(std::nextafter(middle, 1e9f));
  }
  expect_equal(65504.0f);
  expect_equal(std::nextafter(kHalfOverflow, 0.0f));
  expect_equal(std::numeric_limits<float>::denorm_min());
  expect_equal(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(RoundToHalf(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FloatTypes, HalvesOverflowToInfinityFromTheMidpoint) {
  EXPECT_EQ(FloatToHalf(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST(FloatTypes, EveryBFloat16RoundTrips) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const uint16_t bfloat = static_cast<uint16_t>(bits);
    const float value = BFloat16ToFloat(bfloat);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(value)))) << bits;
      continue;
    }
    ASSERT_EQ(FloatToBFloat16(value), bfloat) << bits;
  }
}

TEST(FloatTypes, BFloat16RoundsToNearestEven) {
  for (uint32_t lower = 0; lower < 0x7f7f; ++lower) {
    const uint32_t upper = lower + 1;
    const uint32_t middle = (lower << 16) | 0x8000u;
    const uint32_t even = (lower & 1) == 0 ? lower : upper;
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>(middle - 1)), lower);
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>(middle)), even);
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>(middle + 1)), upper);
  }
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(FloatTypes, KeepsNansWithOnlyLowMantissaBits) {
  const float quiet_low = std::bit_cast<float>(0x7f800001u);

  EXPECT_TRUE(IsHalfNan(FloatToHalf(quiet_low)));
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(quiet_low))));
}

}  // namespace
}  // namespace aiomlc
