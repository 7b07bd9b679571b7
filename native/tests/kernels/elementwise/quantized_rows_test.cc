#include "kernels/elementwise/quantized_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "platform/kv_type.h"
#include "tests/doubles/kernel_testing.h"

namespace aiomlc {
namespace {

constexpr int64_t kRows = 5, kSize = 53;

float ScaleOf(const std::byte* row, KvType type, int64_t size) {
  float scale;
  std::memcpy(&scale, row + KvElementsBytes(type, size), sizeof(scale));
  return scale;
}

/*! \return Rows of KvType::kI8. */
std::vector<std::byte> Quantized(ThreadPool& pool, const FloatTensor& x, int64_t rows,
                                 int64_t size) {
  std::vector<std::byte> out(rows * KvRowBytes(KvType::kI8, size));
  QuantizeRows(pool, x.data(), x.type(), rows, size, out.data());
  return out;
}

/*! \return Rows of KvType::kI4. */
std::vector<std::byte> QuantizedTo4Bits(ThreadPool& pool, const FloatTensor& x, int64_t rows,
                                        int64_t size, float factor = 1.0f) {
  std::vector<std::byte> out(rows * KvRowBytes(KvType::kI4, size));
  QuantizeRowsTo4Bits(pool, x.data(), x.type(), rows, size, factor, out.data());
  return out;
}

int LevelOf(const std::byte* row, int64_t i) {
  return std::to_integer<int>(row[i / 2] >> (i % 2 * 4)) & 15;
}

/*! \return Element i of a row times the Hadamard matrix of its block, in float64. */
double RotatedElement(const FloatTensor& x, int64_t row, int64_t size, int64_t i) {
  const int64_t block = RotationBlock(size), first = i / block * block;
  double sum = 0;
  for (int64_t k = 0; k < block; ++k) {
    const bool is_negative = std::popcount(static_cast<uint64_t>(k & (i - first))) % 2 != 0;
    const double element = x[row * size + first + k];
    sum += is_negative ? -element : element;
  }
  return sum;
}

class QuantizedRowsOnTier : public ::testing::TestWithParam<Isa> {
 protected:
  TierScope tier_{GetParam()};
  ThreadPool pool_{3};
};

TEST_P(QuantizedRowsOnTier, QuantizedElementsAreTheNearestMultiplesOfTheScale) {
  for (const FloatType type : {FloatType::kF32, FloatType::kF16}) {
    const FloatTensor x(type, RandomFloats(kRows * kSize, 15, 0.1f));

    const std::vector<std::byte> out = Quantized(pool_, x, kRows, kSize);

    for (int64_t row = 0; row < kRows; ++row) {
      const std::byte* quantized = out.data() + row * KvRowBytes(KvType::kI8, kSize);
      const double scale = ScaleOf(quantized, KvType::kI8, kSize);
      int largest = 0;
      for (int64_t i = 0; i < kSize; ++i) {
        const auto value = static_cast<int8_t>(quantized[i]);
        largest = std::max(largest, std::abs(value));
        ASSERT_NEAR(value * scale, x[row * kSize + i], 0.50001 * scale);
      }
      EXPECT_EQ(largest, 127);
    }
  }
}

TEST_P(QuantizedRowsOnTier, QuantizationRoundsTiesToEven) {
  const FloatTensor x(FloatType::kF32, std::vector<float>{127, -127, 0.5f, 1.5f, -2.5f, -3.5f});

  const std::vector<std::byte> out = Quantized(pool_, x, 1, 6);

  EXPECT_EQ(ScaleOf(out.data(), KvType::kI8, 6), 1.0f);
  for (const auto& [i, value] :
       std::vector<std::pair<int, int>>{{0, 127}, {1, -127}, {2, 0}, {3, 2}, {4, -2}, {5, -4}}) {
    EXPECT_EQ(static_cast<int8_t>(out[i]), value);
  }
}

TEST_P(QuantizedRowsOnTier, ARowOfZerosOrSubnormalsIsQuantizedToZeros) {
  for (const float element : {0.0f, -0.0f, 1e-40f}) {
    const FloatTensor x(FloatType::kF32, std::vector<float>(64, element));

    const std::vector<std::byte> bytes = Quantized(pool_, x, 1, 64);
    const std::vector<std::byte> half_bytes = QuantizedTo4Bits(pool_, x, 1, 64);

    EXPECT_LT(ScaleOf(bytes.data(), KvType::kI8, 64), 1e-30f);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(bytes[i], std::byte{0});
    EXPECT_LT(ScaleOf(half_bytes.data(), KvType::kI4, 64), 1e-30f);
  }
}

TEST_P(QuantizedRowsOnTier, ANonFiniteElementMakesTheScaleNaN) {
  for (const float non_finite : {INFINITY, -INFINITY, NAN}) {
    for (const int64_t position : {0, 15, 16, 31}) {
      std::vector<float> values(64, 1.0f);
      values[32 + position] = non_finite;
      const FloatTensor x(FloatType::kF16, values);

      const std::vector<std::byte> bytes = Quantized(pool_, x, 2, 32);
      const std::vector<std::byte> half_bytes = QuantizedTo4Bits(pool_, x, 2, 32);

      EXPECT_EQ(ScaleOf(bytes.data(), KvType::kI8, 32), 1.0f / 127.0f);
      EXPECT_TRUE(std::isnan(ScaleOf(bytes.data() + 36, KvType::kI8, 32)));
      EXPECT_EQ(ScaleOf(half_bytes.data(), KvType::kI4, 32), 32.0f / 15.0f);
      EXPECT_TRUE(std::isnan(ScaleOf(half_bytes.data() + 20, KvType::kI4, 32)));
    }
  }
}

TEST_P(QuantizedRowsOnTier, ElementsOf4BitsAreTheNearestLevelsOfTheRotatedRow) {
  for (const FloatType type : {FloatType::kF32, FloatType::kF16}) {
    for (const int64_t size : {32, 64, 96, 128, 256}) {
      const FloatTensor x(type, RandomFloats(kRows * size, 17));

      const std::vector<std::byte> out = QuantizedTo4Bits(pool_, x, kRows, size, 0.25f);

      for (int64_t row = 0; row < kRows; ++row) {
        const std::byte* quantized = out.data() + row * KvRowBytes(KvType::kI4, size);
        const double scale = 4.0 * ScaleOf(quantized, KvType::kI4, size);
        int extremes = 0;
        for (int64_t i = 0; i < size; ++i) {
          const int level = LevelOf(quantized, i);
          if (level == 0 || level == 15) ++extremes;
          const double element = RotatedElement(x, row, size, i);
          ASSERT_NEAR((2 * level - 15) * scale, element, 1.0001 * scale) << size;
        }
        EXPECT_GE(extremes, 1);
      }
    }
  }
}

TEST_P(QuantizedRowsOnTier, RotatingTwiceChangesNothing) {
  for (const int64_t size : {32, 96, 128}) {
    const FloatTensor x(FloatType::kF32, RandomFloats(kRows * size, 19));
    FloatTensor out(FloatType::kF32, kRows * size);

    const float factor = 1.0f / static_cast<float>(RotationBlock(size));
    RotateRows(pool_, x.data(), x.type(), kRows, size, factor, out.data());
    for (int64_t i = 0; i < size; ++i) {
      EXPECT_NEAR(out[size + i], factor * RotatedElement(x, 1, size, i), 1e-6);
    }
    RotateRows(pool_, out.data(), x.type(), kRows, size, 1.0f, out.data());

    for (int64_t i = 0; i < kRows * size; ++i) EXPECT_NEAR(out[i], x[i], 2e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, QuantizedRowsOnTier, ::testing::ValuesIn(SupportedTiers()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

TEST(QuantizedRows, HaveTheSameBitsOnEveryTier) {
  ThreadPool pool(2);
  const FloatTensor x(FloatType::kF32, RandomFloats(kRows * 256, 13, 5.0f));
  std::vector<std::vector<std::byte>> bytes, half_bytes;
  std::vector<FloatTensor> rotated;

  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);
    bytes.push_back(Quantized(pool, x, kRows, 256));
    half_bytes.push_back(QuantizedTo4Bits(pool, x, kRows, 256));
    rotated.emplace_back(FloatType::kF32, kRows * 256);
    RotateRows(pool, x.data(), x.type(), kRows, 256, 0.5f, rotated.back().data());
  }

  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(bytes[i], bytes[0]);
    EXPECT_EQ(half_bytes[i], half_bytes[0]);
    EXPECT_EQ(rotated[i].bytes(), rotated[0].bytes());
  }
}

}  // namespace
}  // namespace aiomlc
