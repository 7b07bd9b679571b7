#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear/channel/channel_kernels.h"
#include "kernels/linear/format/pack.h"
#include "kernels/linear/format/progressive_tile.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/row_layout.h"
#include "platform/isa.h"
#include "tests/doubles/kernel_testing.h"
#include "tests/doubles/software_tiles.h"

namespace aiomlc {
namespace {

using Floats = std::vector<float>;

constexpr MatrixFormat kFormats[] = {WeightFormat::kProgressive, WeightFormat::kRotated};
constexpr int64_t kShapes[][2] = {{16, 64}, {1, 1},     {17, 31},   {40, 96},
                                  {7, 257}, {100, 130}, {33, 1100}, {52, 4097}};
constexpr int64_t kBatches[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 130, 145};
constexpr int64_t kMostRows = 145;

int64_t RoundUp(int64_t value) { return (value + kGroupSize - 1) / kGroupSize * kGroupSize; }

/*! \return A row times the Hadamard matrix, in double: signs by the parity of common bits. */
std::vector<double> RotatedExactly(const float* row, int64_t cols) {
  std::vector<double> rotated(RoundUp(cols));
  for (int64_t k = 0; k < static_cast<int64_t>(rotated.size()); ++k) {
    const int64_t first = k / kGroupSize * kGroupSize;
    for (int64_t i = 0; i < std::min(kGroupSize, cols - first); ++i) {
      const bool is_negative = std::popcount(static_cast<uint64_t>(k % kGroupSize & i)) % 2 != 0;
      rotated[k] += is_negative ? -double{row[first + i]} : double{row[first + i]};
    }
  }
  return rotated;
}

/*! \return The same by the float operations of the format: pairs 1, 2, 4, 8, 16 apart. */
Floats Rotated(const float* row, int64_t cols) {
  Floats values(row, row + cols);
  values.resize(RoundUp(cols));
  for (int64_t width = 1; width < kGroupSize; width *= 2) {
    Floats next(values.size());
    for (int64_t k = 0; k < static_cast<int64_t>(values.size()); ++k) {
      const float other = values[k ^ width];
      next[k] = (k & width) == 0 ? values[k] + other : other - values[k];
    }
    values = next;
  }
  return values;
}

/*! \brief A matrix of random weights, packed, with the integers that were stored. */
struct Matrix {
  MatrixFormat format;
  int64_t rows, cols;
  Floats weights;
  std::vector<std::byte> packed;

  Matrix(MatrixFormat format, int64_t rows, int64_t cols, uint32_t seed)
      : format(format),
        rows(rows),
        cols(cols),
        weights(RandomFloats(rows * cols, seed)),
        packed(PackedMatrixBytes(format, rows, cols), std::byte{0xee}) {
    Pack();
  }

  void Pack() { PackMatrixF32(format.family, weights.data(), rows, cols, 0, rows, packed.data()); }

  const ChannelTile& Header(int64_t row) const {
    const int64_t tile_bytes = static_cast<int64_t>(PackedMatrixBytes(format, kTileRows, cols));
    return *reinterpret_cast<const ChannelTile*>(packed.data() + row / kTileRows * tile_bytes);
  }

  float Scale(int64_t row) const { return Header(row).scales[row % kTileRows]; }

  /*! \return The int8 of a rotated input. */
  int Value(int64_t row, int64_t k) const {
    const int64_t n = row % kTileRows;
    if (format == WeightFormat::kRotated) {
      return reinterpret_cast<const int8_t*>(&Header(row) + 1)[64 * (k / 4) + 4 * n + k % 4];
    }
    const int64_t half = k / kGroupSize % 2;
    const auto& group = reinterpret_cast<const ProgressiveGroup*>(&Header(row) + 1)[k / 64];
    const int64_t in_half = k % kGroupSize;
    const uint8_t pair = group.codes[half][in_half / 4 % 4][4 * n + k % 4];
    const int code = in_half < 16 ? pair & 15 : pair >> 4;
    return group.numbers[n][half].scale * code + group.numbers[n][half].offset;
  }
};

float ScaleOf(const Floats& x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  return largest / 127.0f;
}

/*! \return The outputs of a row, by exact integers and the float operations of the format. */
Floats Expected(const Matrix& matrix, const float* row, const float* bias) {
  const Floats x = Rotated(row, matrix.cols);
  const float scale = ScaleOf(x);
  Floats out(matrix.rows);
  for (int64_t n = 0; n < matrix.rows; ++n) {
    int64_t sum = 0;
    for (int64_t k = 0; k < static_cast<int64_t>(x.size()) && scale != 0; ++k) {
      sum += static_cast<int64_t>(std::nearbyint(x[k] / scale)) * matrix.Value(n, k);
    }
    const float factor = matrix.Scale(n) * scale;
    out[n] = static_cast<float>(sum) * factor;
    if (bias != nullptr) out[n] = out[n] + bias[n];
  }
  return out;
}

Floats Multiply(int threads, const Matrix& matrix, const float* x, int64_t m,
                const float* bias = nullptr) {
  constexpr float kUntouched = 12345.0f;
  ThreadPool pool(threads);
  Floats out(m * matrix.rows + 16, kUntouched);
  Linear(pool, matrix.format, matrix.packed.data(), matrix.rows, matrix.cols, x, FloatType::kF32, m,
         bias, out.data(), FloatType::kF32);
  for (size_t i = m * matrix.rows; i < out.size(); ++i) EXPECT_EQ(out[i], kUntouched);
  out.resize(m * matrix.rows);
  return out;
}

using RotatedFormats = TierTest;
class RotatedTest : public TierTest, public ::testing::WithParamInterface<MatrixFormat> {};

TEST_P(RotatedTest, HasTheBitsOfTheReferenceOnEveryTierAndInAnyBatch) {
  for (const auto& [rows, cols] : kShapes) {
    const Matrix matrix(GetParam(), rows, cols, 1);
    const Floats x = RandomFloats(kMostRows * cols, 2, 30.0f);
    const Floats bias = RandomFloats(rows, 3);
    Floats expected;
    for (int64_t row = 0; row < kMostRows; ++row) {
      const Floats out = Expected(matrix, &x[row * cols], bias.data());
      expected.insert(expected.end(), out.begin(), out.end());
    }
    for (const Isa isa : SupportedTiers()) {
      SetIsa(isa);
      for (const int64_t m : kBatches) {
        SCOPED_TRACE(std::string(IsaName(isa)) + " n " + std::to_string(rows) + " k " +
                     std::to_string(cols) + " m " + std::to_string(m));
        const int64_t first = (kMostRows - m) / 2;
        ExpectSameBits(Multiply(2, matrix, &x[first * cols], m, bias.data()),
                       {expected.begin() + first * rows, expected.begin() + (first + m) * rows});
      }
    }
  }
}

TEST_P(RotatedTest, RotatesByTheHadamardMatrixOnEveryTier) {
  constexpr int64_t kCols = 150;
  const Floats x = RandomFloats(kCols, 4, 5.0f);
  const std::vector<double> exact = RotatedExactly(x.data(), kCols);
  const Floats expected = Rotated(x.data(), kCols);
  for (size_t k = 0; k < exact.size(); ++k) EXPECT_NEAR(expected[k], exact[k], 1e-4) << k;
  for (const Isa isa : SupportedTiers()) {
    SetIsa(isa);
    SCOPED_TRACE(IsaName(isa));
    Floats rotated(RoundUp(kCols));
    ActiveChannelKernels().rotate(x.data(), FloatType::kF32, 0, kCols, rotated.data());
    ExpectSameBits(rotated, expected);
  }
}

TEST_F(RotatedFormats, WeightsAreNearTheLevelsOfTheirGroup) {
  for (const auto& [rows, cols] : kShapes) {
    const Matrix matrix(WeightFormat::kProgressive, rows, cols, 5);
    for (int64_t n = 0; n < rows; ++n) {
      const std::vector<double> exact = RotatedExactly(&matrix.weights[n * cols], cols);
      const double scale = matrix.Scale(n);
      int sum = 0;
      for (int64_t first = 0; first < static_cast<int64_t>(exact.size()); first += kGroupSize) {
        const auto [low, high] =
            std::minmax_element(exact.begin() + first, exact.begin() + first + kGroupSize);
        const double step = (*high - *low) / kGroupSize / scale / kProgressiveLevels;
        // The step is rounded to an integer or one less, and the levels are moved by up to a
        // quarter of it, so the ends may be off by more.
        const double bound = 0.75 * (step + 0.5) + 0.5 * kProgressiveLevels * 1.5 + 0.5;
        for (int64_t k = first; k < first + kGroupSize; ++k) {
          const int value = matrix.Value(n, k);
          ASSERT_GE(value, -128);
          ASSERT_LE(value, 127);
          ASSERT_NEAR(value, exact[k] / kGroupSize / scale, bound) << n << " " << k;
          sum += value;
        }
      }
      EXPECT_EQ(matrix.Header(n).sums[n % kTileRows], sum);
    }
  }
}

/*! \return The squared error of a group for a step and the lowest level, in double. */
double GroupError(const std::vector<double>& weights, double step, double first) {
  first = std::clamp(first, -128.0, 127.0 - step * kProgressiveLevels);
  double error = 0;
  for (const double weight : weights) {
    const double code = std::nearbyint((weight - first) / step);
    error += std::pow(step * std::clamp(code, 0.0, 15.0) + first - weight, 2);
  }
  return error;
}

TEST_F(RotatedFormats, GroupsHaveTheGridOfTheLeastSquaredError) {
  constexpr int64_t kRows = 32, kCols = 512;
  const Matrix matrix(WeightFormat::kProgressive, kRows, kCols, 14);
  double widest_total = 0;
  double total = 0;
  for (int64_t n = 0; n < kRows; ++n) {
    const std::vector<double> exact = RotatedExactly(&matrix.weights[n * kCols], kCols);
    for (int64_t first = 0; first < kCols; first += kGroupSize) {
      std::vector<double> weights(exact.begin() + first, exact.begin() + first + kGroupSize);
      for (double& weight : weights) weight /= kGroupSize * double{matrix.Scale(n)};
      double stored = 0;
      for (int64_t k = 0; k < kGroupSize; ++k) {
        stored += std::pow(matrix.Value(n, first + k) - weights[k], 2);
      }
      const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
      const double widest = std::clamp(std::nearbyint((*high - *low) / 15), 1.0, 17.0);
      double least = std::numeric_limits<double>::infinity();
      for (const double step : {widest, std::max(1.0, widest - 1)}) {
        for (const double shift : {0.0, -0.25, 0.25}) {
          const double lowest = std::nearbyint((*low + *high - step * 15) / 2 + shift * step);
          const double error = GroupError(weights, step, lowest);
          if (step == widest && shift == 0) widest_total += error;
          least = std::min(least, error);
        }
      }
      ASSERT_NEAR(stored, least, 1e-3 * least) << n << " " << first;
      total += stored;
    }
  }
  EXPECT_LT(std::sqrt(total / widest_total), 0.94);
}

TEST_F(RotatedFormats, BytesAreTheNearestIntegers) {
  for (const auto& [rows, cols] : kShapes) {
    const Matrix matrix(WeightFormat::kRotated, rows, cols, 5);
    for (int64_t n = 0; n < rows; ++n) {
      const std::vector<double> exact = RotatedExactly(&matrix.weights[n * cols], cols);
      double largest = 0;
      int sum = 0;
      for (int64_t k = 0; k < static_cast<int64_t>(exact.size()); ++k) {
        largest = std::max(largest, std::fabs(exact[k]) / kGroupSize);
        ASSERT_NEAR(matrix.Value(n, k), exact[k] / kGroupSize / matrix.Scale(n), 0.501)
            << n << " " << k;
        sum += matrix.Value(n, k);
      }
      EXPECT_NEAR(matrix.Scale(n), largest / 127, 1e-6 * largest);
      EXPECT_EQ(matrix.Header(n).sums[n % kTileRows], sum);
    }
  }
}

TEST_P(RotatedTest, IsNearTheProductInFloat64) {
  constexpr int64_t kRows = 48, kCols = 2048;
  const Matrix matrix(GetParam(), kRows, kCols, 6);
  const Floats x = RandomFloats(kCols, 7);
  const Floats out = Multiply(1, matrix, x.data(), 1);
  double error = 0;
  double size = 0;
  for (int64_t n = 0; n < kRows; ++n) {
    double sum = 0;
    for (int64_t k = 0; k < kCols; ++k) sum += double{matrix.weights[n * kCols + k]} * x[k];
    error += std::pow(out[n] - sum, 2);
    size += std::pow(sum, 2);
  }
  // Uniform levels of 4 bits over the range of 32 normal numbers are off by 8 % of their size; of 8
  // bits over that of a row, by 1 %.
  const double expected = matrix.format == WeightFormat::kRotated ? 0.01 : 0.08;
  EXPECT_LT(std::sqrt(error / size), 1.5 * expected);
  EXPECT_GT(std::sqrt(error / size), 0.375 * expected);
}

TEST_P(RotatedTest, EmbedsTheRowsThatAreMultiplied) {
  constexpr int64_t kRows = 20, kCols = 100;
  const Matrix matrix(GetParam(), kRows, kCols, 8);
  for (int64_t n = 0; n < kRows; ++n) {
    Floats row(kCols);
    EmbedRow(matrix.format, matrix.packed.data(), kCols, n, row.data());
    Floats values(RoundUp(kCols));
    for (int64_t k = 0; k < RoundUp(kCols); ++k) {
      values[k] = matrix.Scale(n) * static_cast<float>(matrix.Value(n, k));
    }
    const std::vector<double> expected = RotatedExactly(values.data(), RoundUp(kCols));
    for (int64_t k = 0; k < kCols; ++k) EXPECT_NEAR(row[k], expected[k], 1e-4) << n << " " << k;
  }
}

TEST_P(RotatedTest, ZerosAndNonFiniteRowsAreWhatTheyAre) {
  constexpr int64_t kRows = 17, kCols = 70;
  Matrix matrix(GetParam(), kRows, kCols, 9);
  std::fill_n(matrix.weights.begin(), kCols, 0.0f);
  matrix.Pack();
  for (const Isa isa : SupportedTiers()) {
    SetIsa(isa);
    Floats x = RandomFloats(3 * kCols, 10);
    std::fill_n(x.begin(), kCols, 0.0f);
    x[kCols + 33] = std::numeric_limits<float>::infinity();
    const Floats out = Multiply(1, matrix, x.data(), 3);
    for (int64_t n = 0; n < kRows; ++n) {
      EXPECT_EQ(out[n], 0.0f);
      EXPECT_TRUE(std::isnan(out[kRows + n]));
      EXPECT_TRUE(std::isfinite(out[2 * kRows + n]));
    }
    EXPECT_EQ(out[2 * kRows], 0.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RotatedTest, ::testing::ValuesIn(kFormats));

#if defined(__x86_64__)

TEST_F(RotatedFormats, TileRegistersHaveTheBitsOfAvx512) {
  if (SupportedIsa() < Isa::kAvx512) GTEST_SKIP() << "needs AVX-512";
  SetIsa(Isa::kAvx512);
  for (const auto& [outputs, cols] :
       {std::pair<int64_t, int64_t>{16, 64}, {17, 31}, {50, 257}, {120, 4100}}) {
    const Matrix matrix(WeightFormat::kProgressive, outputs, cols, 11);
    const RowLayout layout(RowForm::kRotated, cols);
    for (const int64_t m : {1, 3, 4, 15, 16, 17, 33, 130}) {
      SCOPED_TRACE(std::to_string(outputs) + "x" + std::to_string(cols) + " m " +
                   std::to_string(m));
      const Floats x = RandomFloats(m * cols, 12);
      std::vector<std::byte> panels(m * layout.row_bytes());
      layout.Quantize(x.data(), FloatType::kF32, m, 0, m, panels.data());
      const Floats bias = RandomFloats(outputs, 13);
      const auto multiply = [&](void (*kernel)(const LinearBlock&)) {
        Floats out(m * outputs);
        LinearBlock block = {};
        layout.SetActivations(panels.data(), block);
        block.packed = matrix.packed.data();
        block.num_outputs = block.out_stride = outputs;
        block.tile_end = (outputs + kTileRows - 1) / kTileRows;
        block.row_end = m;
        block.bias = bias.data();
        block.out = out.data();
        block.out_type = FloatType::kF32;
        kernel(block);
        return out;
      };
      const Floats expected = multiply(kChannelAvx512.multiply_progressive);
      ExpectSameBits(multiply(ProgressiveOnSoftwareTiles), expected);
    }
  }
}

#endif  // defined(__x86_64__)

}  // namespace
}  // namespace aiomlc
