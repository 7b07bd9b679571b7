#include "kernels/linear/format/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/linear/linear.h"
#include "tests/doubles/kernel_testing.h"
#include "tests/doubles/q4_matrix.h"

namespace aiomlc {
namespace {

TEST(PackMatrix, Q4HasTheDocumentedLayout) {
  constexpr int64_t kN = 21, kK = 75, kGroups = 3;
  const Q4Matrix matrix(kN, kK, 31);
  const Bytes packed = matrix.Pack();
  ASSERT_EQ(packed.size(), 2u * kGroups * 288);

  for (int64_t row = 0; row < 32; ++row) {
    for (int64_t g = 0; g < kGroups; ++g) {
      const uint8_t* group = packed.data() + (row / 16 * kGroups + g) * 288;
      const int64_t n = row % 16;
      for (int64_t k = 0; k < 32; ++k) {
        const uint8_t byte = group[64 * (k % 16 / 4) + 4 * n + k % 4];
        const int value = k < 16 ? byte & 15 : byte >> 4;
        const bool padding = row >= kN || g * 32 + k >= kK;
        ASSERT_EQ(value, padding ? 7 : matrix.Value(row, g * 32 + k)) << row << " " << k;
      }
      uint16_t scale;
      std::memcpy(&scale, group + 256 + 2 * n, 2);
      ASSERT_EQ(scale, row >= kN ? 0 : matrix.scales[row * kGroups + g]);
    }
  }
}

/*! \brief Divide and add in float16, round to nearest even, clamp; NaN gives 0. */
uint32_t QuantizedValue(uint16_t weight, uint16_t scale) {
  const uint16_t ratio = FloatToHalf(HalfToFloat(weight) / HalfToFloat(scale));
  const float sum = HalfToFloat(FloatToHalf(HalfToFloat(ratio) + 7));
  if (!(sum > 0)) return 0;
  return static_cast<uint32_t>(std::nearbyint(std::min(sum, 14.0f)));
}

/*! \brief Quantize with the arithmetic of MLC LLM's converter. */
Q4Matrix QuantizeInHalves(const Floats& weights, int64_t rows, int64_t cols) {
  Q4Matrix matrix(rows, cols, 0);
  std::fill(matrix.words.begin(), matrix.words.end(), 0u);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t g = 0; g < matrix.groups; ++g) {
      uint16_t largest = 0;
      const int64_t end = std::min<int64_t>(cols, g * 32 + 32);
      for (int64_t k = g * 32; k < end; ++k) {
        largest = std::max<uint16_t>(largest, FloatToHalf(std::fabs(weights[row * cols + k])));
      }
      const uint16_t scale = FloatToHalf(HalfToFloat(largest) / 7);
      matrix.scales[row * matrix.groups + g] = scale;
      for (int64_t k = g * 32; k < end; ++k) {
        const uint32_t value = QuantizedValue(FloatToHalf(weights[row * cols + k]), scale);
        matrix.words[(row * matrix.groups * 32 + k) / 8] |= value << (4 * (k % 8));
      }
    }
  }
  return matrix;
}

TEST(PackMatrix, FloatsAreQuantizedWithTheArithmeticOfQ4f16) {
  constexpr int64_t kN = 40, kK = 330;
  // Subnormal scales, scales of zero, and the largest values, too.
  for (float magnitude : {0.1f, 2e-6f, 3e-7f, 3e-8f, 0.0f, 2e4f}) {
    Floats weights = RandomFloats(kN * kK, 32, magnitude);
    for (float& weight : weights) weight = std::clamp(weight, -65504.0f, 65504.0f);
    std::fill(weights.begin() + 2 * kK, weights.begin() + 3 * kK, 0.0f);  // A row of zeros.

    Bytes packed(PackedMatrixBytes(WeightFormat::kQ4, kN, kK));
    PackMatrixF32(WeightFormat::kQ4, weights.data(), kN, kK, 0, kN, packed.data());

    EXPECT_EQ(packed, QuantizeInHalves(weights, kN, kK).Pack()) << magnitude;
  }
}

TEST(PackMatrix, QuantizedFloatsAreNearTheWeights) {
  constexpr int64_t kN = 18, kK = 70;
  const Floats weights = RandomFloats(kN * kK, 32, 0.1f);

  const Q4Matrix matrix = QuantizeInHalves(weights, kN, kK);

  for (int64_t row = 0; row < kN; ++row) {
    for (int64_t k = 0; k < kK; ++k) {
      const double scale = HalfToFloat(matrix.scales[row * matrix.groups + k / 32]);
      EXPECT_NEAR(matrix.Weight(row, k), weights[row * kK + k], 0.51 * scale);
    }
  }
}

TEST(PackMatrix, DenseFormatsAreTransposedTiles) {
  constexpr int64_t kN = 20, kK = 9;
  const Floats weights = RandomFloats(kN * kK, 33);
  Floats wide(PackedMatrixBytes(WeightFormat::kF32, kN, kK) / 4, -1.0f);
  std::vector<uint16_t> halves(PackedMatrixBytes(WeightFormat::kF16, kN, kK) / 2, 1);
  ASSERT_EQ(wide.size(), 32u * kK);
  ASSERT_EQ(halves.size(), 32u * kK);

  PackMatrixF32(WeightFormat::kF32, weights.data(), kN, kK, 0, kN, wide.data());
  PackMatrixF32(WeightFormat::kF16, weights.data(), kN, kK, 0, kN, halves.data());

  for (int64_t row = 0; row < 32; ++row) {
    for (int64_t k = 0; k < kK; ++k) {
      const float expected = row < kN ? weights[row * kK + k] : 0.0f;
      EXPECT_EQ(wide[row / 16 * 16 * kK + k * 16 + row % 16], expected);
      EXPECT_EQ(halves[row / 16 * 16 * kK + k * 16 + row % 16], FloatToHalf(expected));
    }
  }
}

TEST(PackMatrix, BF16TilesHavePairsOfInputs) {
  constexpr int64_t kN = 20, kK = 41, kGroups = 2;
  const Floats weights = RandomFloats(kN * kK, 34);
  std::vector<BF16Tile> packed(2 * kGroups);
  ASSERT_EQ(PackedMatrixBytes(WeightFormat::kBF16, kN, kK), packed.size() * sizeof(BF16Tile));
  std::memset(packed.data(), 1, packed.size() * sizeof(BF16Tile));

  PackMatrixF32(WeightFormat::kBF16, weights.data(), kN, kK, 0, kN, packed.data());

  for (int64_t row = 0; row < 32; ++row) {
    for (int64_t k = 0; k < kGroups * 32; ++k) {
      const float expected = row < kN && k < kK ? weights[row * kK + k] : 0.0f;
      const BF16Tile& tile = packed[row / 16 * kGroups + k / 32];
      EXPECT_EQ(tile.pairs[k % 32 / 2][row % 16 * 2 + k % 2], FloatToBFloat16(expected));
    }
  }
  Floats row(kK);
  EmbedRow(WeightFormat::kBF16, packed.data(), kK, 17, row.data());
  for (int64_t k = 0; k < kK; ++k) {
    EXPECT_EQ(row[k], BFloat16ToFloat(FloatToBFloat16(weights[17 * kK + k])));
  }
}

}  // namespace
}  // namespace aiomlc
