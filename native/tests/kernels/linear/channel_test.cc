#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/linear/amx_support.h"
#include "kernels/linear/channel/channel_kernels.h"
#include "kernels/linear/format/pack.h"
#include "kernels/linear/format/panel.h"
#include "kernels/linear/linear.h"
#include "platform/isa.h"
#include "tests/doubles/channel_matrix.h"
#include "tests/doubles/kernel_testing.h"
#include "tests/doubles/software_tiles.h"

namespace aiomlc {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

constexpr MatrixFormat kFormat = WeightFormat::kChannel;
constexpr int64_t kShapes[][2] = {{16, 64}, {1, 1},     {17, 31},   {40, 96},
                                  {7, 257}, {100, 130}, {33, 1100}, {52, 4097}};
constexpr int64_t kBatches[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 130, 145};
constexpr int64_t kMostRows = 145;

/*! \return The largest magnitude of a row of x over 127. */
float ScaleOf(const float* x, int64_t cols) {
  float largest = 0;
  for (int64_t k = 0; k < cols; ++k) largest = std::max(largest, std::fabs(x[k]));
  return largest / 127.0f;
}

/*! \return The outputs of a row, by exact integers and the float operations of the format. */
Floats Expected(const ChannelMatrix& matrix, const float* x, const float* bias) {
  const float scale = ScaleOf(x, matrix.cols);
  Floats out(matrix.rows);
  for (int64_t n = 0; n < matrix.rows; ++n) {
    int64_t sum = 0;
    for (int64_t k = 0; k < matrix.cols && scale != 0; ++k) {
      sum += static_cast<int64_t>(std::nearbyint(x[k] / scale)) * matrix.Value(n, k);
    }
    const float factor = matrix.scales[n] * scale;
    out[n] = static_cast<float>(sum) * factor;
    if (bias != nullptr) out[n] = out[n] + bias[n];
  }
  return out;
}

/*! \return The outputs, computed by the active tier. */
Floats Multiply(int threads, const ChannelMatrix& matrix, const Bytes& packed, const float* x,
                int64_t m, const float* bias = nullptr) {
  constexpr float kUntouched = 12345.0f;
  ThreadPool pool(threads);
  Floats out(m * matrix.rows + 16, kUntouched);
  Linear(pool, kFormat, packed.data(), matrix.rows, matrix.cols, x, FloatType::kF32, m, bias,
         out.data(), FloatType::kF32);
  for (size_t i = m * matrix.rows; i < out.size(); ++i) EXPECT_EQ(out[i], kUntouched);
  out.resize(m * matrix.rows);
  return out;
}

using ChannelTest = TierTest;

TEST_F(ChannelTest, HasTheBitsOfTheReferenceOnEveryTierAndInAnyBatch) {
  for (const auto& [rows, cols] : kShapes) {
    const ChannelMatrix matrix(rows, cols, 1);
    const Bytes packed = matrix.Pack();
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
        ExpectSameBits(Multiply(2, matrix, packed, &x[first * cols], m, bias.data()),
                       {expected.begin() + first * rows, expected.begin() + (first + m) * rows});
      }
    }
  }
}

TEST_F(ChannelTest, IsNearTheProductInFloat64) {
  constexpr int64_t kRows = 48, kCols = 2000;
  const ChannelMatrix matrix(kRows, kCols, 4);
  const Floats x = RandomFloats(kCols, 5);
  const double rounding = 0.5 * ScaleOf(x.data(), kCols);
  const Floats out = Multiply(1, matrix, matrix.Pack(), x.data(), 1);
  for (int64_t n = 0; n < kRows; ++n) {
    double sum = 0;
    double error = 0;
    for (int64_t k = 0; k < kCols; ++k) {
      const double weight = matrix.Value(n, k) * double{matrix.scales[n]};
      sum += weight * x[k];
      error += std::pow(weight * rounding, 2);
    }
    EXPECT_NEAR(out[n], sum, 4 * std::sqrt(error)) << n;
  }
}

TEST_F(ChannelTest, TheLargestSumsDoNotOverflow) {
  constexpr int64_t kRows = 17;
  ChannelMatrix matrix(kRows, kMaxChannelInputs, 6);
  Floats x(4 * kMaxChannelInputs, 1.0f);
  for (int64_t k = 0; k < kMaxChannelInputs; ++k) {
    x[kMaxChannelInputs + k] = -1.0f;
    x[2 * kMaxChannelInputs + k] = k % 2 == 0 ? 1.0f : -1.0f;
    x[3 * kMaxChannelInputs + k] = k % 4 < 2 ? 1.0f : -1.0f;
  }
  for (const uint8_t code : {0, 1, 255}) {
    std::fill(matrix.codes.begin(), matrix.codes.end(), code);
    const Bytes packed = matrix.Pack();
    for (const Isa isa : SupportedTiers()) {
      SetIsa(isa);
      const Floats out = Multiply(1, matrix, packed, x.data(), 4);
      for (int64_t row = 0; row < 4; ++row) {
        ExpectSameBits({out.begin() + row * kRows, out.begin() + (row + 1) * kRows},
                       Expected(matrix, &x[row * kMaxChannelInputs], nullptr));
      }
    }
  }
}

TEST_F(ChannelTest, HalfActivationsAndOutputsAreConverted) {
  constexpr int64_t kRows = 30, kCols = 150, kM = 19;
  const ChannelMatrix matrix(kRows, kCols, 7);
  const Bytes packed = matrix.Pack();
  const FloatTensor x(FloatType::kF16, RandomFloats(kM * kCols, 8));
  Floats wide(kM * kCols);
  for (int64_t i = 0; i < kM * kCols; ++i) wide[i] = x[i];
  ThreadPool pool(2);
  for (const Isa isa : SupportedTiers()) {
    SetIsa(isa);
    FloatTensor out(FloatType::kF16, kM * kRows);
    Linear(pool, kFormat, packed.data(), kRows, kCols, x.data(), FloatType::kF16, kM, nullptr,
           out.data(), FloatType::kF16);
    EXPECT_EQ(out.bytes(),
              FloatTensor(FloatType::kF16, Multiply(1, matrix, packed, wide.data(), kM)).bytes());
  }
}

TEST_F(ChannelTest, HasTheSameBitsOnAnyNumberOfThreads) {
  constexpr int64_t kRows = 1000, kCols = 520, kM = 300;
  const ChannelMatrix matrix(kRows, kCols, 9);
  const Bytes packed = matrix.Pack();
  const Floats x = RandomFloats(kM * kCols, 10);
  for (const int64_t m : {int64_t{1}, kM}) {
    const Floats expected = Multiply(1, matrix, packed, x.data(), m);
    for (const int threads : {2, 5}) {
      ExpectSameBits(Multiply(threads, matrix, packed, x.data(), m), expected);
    }
  }
}

TEST_F(ChannelTest, QuantizesToRoundedQuotientsAlsoNextToHalves) {
  constexpr int64_t kCols = 512;
  std::minstd_rand random(20);
  for (int exponent = -148; exponent < 128; ++exponent) {
    const auto fraction = static_cast<float>(random() % (1u << 23)) * 0x1p-23f;
    Floats x(kCols, 0.0f);  // The first stays 0: its byte is the tier's bias.
    x[1] = std::ldexp(1.0f + fraction, exponent);
    const float scale = ScaleOf(x.data(), kCols);
    if (scale == 0) continue;
    for (int64_t half = 0; half < 127; ++half) {
      const float middle = (static_cast<float>(half) + 0.5f) * scale;
      x[2 + 3 * half] = middle;
      x[3 + 3 * half] = -std::nextafter(middle, 0.0f);
      x[4 + 3 * half] = std::min(std::nextafter(middle, 2 * x[1]), x[1]);
    }
    for (const Isa isa : SupportedTiers()) {
      SetIsa(isa);
      Bytes bytes(kCols);
      float actual_scale = 0;
      ActiveChannelKernels().quantize(
          {x.data(), FloatType::kF32, 0, kCols, bytes.data(), kChannelGroup, &actual_scale});
      ASSERT_EQ(actual_scale, scale);
      for (int64_t k = 0; k < kCols; ++k) {
        // A subnormal scale is rounded so much that the largest quotients are more than 127.
        const float expected = std::min(std::nearbyint(x[k] / scale), 127.0f);
        ASSERT_EQ(static_cast<int8_t>(bytes[k] - bytes[0]), expected)
            << IsaName(isa) << " " << x[k] << "/" << scale;
      }
    }
  }
}

TEST_F(ChannelTest, RowsOfZerosAreZeroAndSubnormalRowsAreFinite) {
  constexpr int64_t kRows = 20, kCols = 70;
  const ChannelMatrix matrix(kRows, kCols, 11);
  const Bytes packed = matrix.Pack();
  Floats x(3 * kCols);
  for (int64_t k = 0; k < kCols; ++k) x[kCols + k] = 1e-44f;
  for (int64_t k = 0; k < kCols; ++k) x[2 * kCols + k] = 1e-38f;
  for (const Isa isa : SupportedTiers()) {
    SetIsa(isa);
    const Floats out = Multiply(1, matrix, packed, x.data(), 3);
    for (int64_t n = 0; n < kRows; ++n) {
      EXPECT_EQ(out[n], 0.0f);
      EXPECT_EQ(out[kRows + n], 0.0f);  // The scale underflows.
      EXPECT_TRUE(std::isfinite(out[2 * kRows + n]));
    }
  }
}

TEST_F(ChannelTest, ANonFiniteRowDoesNotAffectOtherRows) {
  constexpr int64_t kRows = 20, kCols = 130, kM = 21;
  const ChannelMatrix matrix(kRows, kCols, 12);
  const Bytes packed = matrix.Pack();
  const Floats finite = RandomFloats(kM * kCols, 13);
  for (const Isa isa : SupportedTiers()) {
    SCOPED_TRACE(IsaName(isa));
    SetIsa(isa);
    const Floats expected = Multiply(1, matrix, packed, finite.data(), kM);
    for (const float wrong :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Floats x = finite;
      x[2 * kCols + 100] = wrong;
      const Floats out = Multiply(1, matrix, packed, x.data(), kM);
      for (int64_t i = 0; i < kM * kRows; ++i) {
        if (i / kRows == 2) {
          EXPECT_TRUE(std::isnan(out[i])) << i;
        } else {
          EXPECT_EQ(out[i], expected[i]) << i;
        }
      }
    }
  }
}

TEST_F(ChannelTest, PackingInPartsEqualsPackingAtOnce) {
  constexpr int64_t kCols = 100;
  const ChannelMatrix matrix(40, kCols, 14);
  const Bytes expected = matrix.Pack();
  Bytes packed(expected.size());
  for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 32}, {32, 8}}) {
    PackChannel({.rows = count,
                 .cols = kCols,
                 .codes = &matrix.codes[begin * kCols],
                 .scales = &matrix.scales[begin]},
                &packed[PackedMatrixBytes(kFormat, begin, kCols)]);
  }
  EXPECT_EQ(packed, expected);
}

TEST_F(ChannelTest, AnEmbeddingTableIsDequantized) {
  constexpr int64_t kVocab = 37, kHidden = 70;
  const ChannelMatrix matrix(kVocab, kHidden, 15);
  const Bytes packed = matrix.Pack();
  const std::vector<int32_t> ids = {36, 0, 16, 15};
  Floats out(ids.size() * kHidden);
  ThreadPool pool(2);

  EmbedRows(pool, kFormat, packed.data(), kVocab, kHidden, ids.data(), 4, out.data());

  for (size_t i = 0; i < ids.size(); ++i) {
    for (int64_t k = 0; k < kHidden; ++k) {
      const auto value = static_cast<float>(matrix.Value(ids[i], k));
      EXPECT_EQ(out[i * kHidden + k], matrix.scales[ids[i]] * value);
    }
  }
}

#if defined(__x86_64__)

/*! \return The outputs of a kernel of AVX-512 or AMX, in blocks of at most `block_rows` rows. */
Floats MultiplyPanels(void (*kernel)(const LinearBlock&), const ChannelMatrix& matrix,
                      const Bytes& packed, const Floats& x, int64_t block_rows) {
  const int64_t rows = static_cast<int64_t>(x.size()) / matrix.cols;
  Bytes panels(rows * ChannelRowBytes(matrix.cols));  // The exact size, for sanitizers.
  for (int64_t row = 0; row < rows; ++row) {
    const PanelCursor at = PanelOf(row, rows);
    uint8_t* panel = &panels[at.panel * ChannelRowBytes(matrix.cols)];
    const int64_t scales = at.height * ChannelGroupsOf(matrix.cols) * kChannelGroup;
    kChannelAvx512.quantize({x.data(), FloatType::kF32, row * matrix.cols, matrix.cols,
                             panel + at.row * kChannelGroup, at.height * kChannelGroup,
                             panel + scales + at.row * sizeof(float)});
  }
  Floats out(rows * matrix.rows);
  LinearBlock block = {};
  block.packed = packed.data();
  block.num_outputs = block.out_stride = matrix.rows;
  block.num_inputs = matrix.cols;
  block.tile_end = (matrix.rows + kTileRows - 1) / kTileRows;
  block.int8_rows = panels.data();
  block.out = out.data();
  block.out_type = FloatType::kF32;
  for (; block.row_begin < rows; block.row_begin = block.row_end) {
    block.row_end = std::min(rows, block.row_begin + block_rows);
    kernel(block);
  }
  return out;
}

void WrongInOneBit(const LinearBlock& block) {
  kChannelAvx512.multiply(block);
  static_cast<uint32_t*>(block.out)[17] ^= 1;
}

TEST_F(ChannelTest, TileRegistersHaveTheBitsOfAvx512) {
  if (SupportedIsa() < Isa::kAvx512) GTEST_SKIP() << "needs AVX-512";
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{16, 64}, {17, 31}, {50, 257}}) {
    const ChannelMatrix matrix(rows, cols, 16);
    const Bytes packed = matrix.Pack();
    for (const int64_t m : {1, 3, 4, 15, 16, 17, 20, 31, 32, 48, 130}) {
      SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols) + " m " + std::to_string(m));
      const Floats x = RandomFloats(m * cols, 17);
      const Floats expected = MultiplyPanels(kChannelAvx512.multiply, matrix, packed, x, m);
      for (const int64_t block_rows : {m, int64_t{48}}) {
        ExpectSameBits(MultiplyPanels(ChannelOnSoftwareTiles, matrix, packed, x, block_rows),
                       expected);
      }
    }
  }
}

TEST_F(ChannelTest, TheTrialDetectsOneWrongBit) {
  if (SupportedIsa() < Isa::kAvx512) GTEST_SKIP() << "needs AVX-512";
  EXPECT_TRUE(ChannelEqualsAvx512(ChannelOnSoftwareTiles));
  EXPECT_FALSE(ChannelEqualsAvx512([](const LinearBlock& block) {
    ChannelOnSoftwareTiles(block);
    const bool is_alone = block.row_end - block.row_begin < kPanelRows;
    if (is_alone) static_cast<uint32_t*>(block.out)[block.row_begin * block.out_stride] ^= 1;
  }));
  EXPECT_FALSE(ChannelEqualsAvx512(WrongInOneBit));
  const AmxTrial trial = TryKernels({true, true}, {Q4OnSoftwareTiles, GroupedOnSoftwareTiles,
                                                   WrongInOneBit, BF16OnSoftwareTiles});
  EXPECT_EQ(trial.rejected, std::vector<std::string>{"int8"});
}

#endif  // defined(__x86_64__)

}  // namespace
}  // namespace aiomlc
