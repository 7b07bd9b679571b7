#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/linear/format/pack.h"
#include "kernels/linear/linear.h"
#include "platform/isa.h"
#include "tests/doubles/grouped_matrix.h"
#include "tests/doubles/kernel_testing.h"
#include "tests/doubles/random_matrix.h"

namespace aiomlc {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

constexpr int64_t kShapes[][2] = {{16, 32}, {1, 1},   {17, 31},  {40, 96},
                                  {7, 257}, {52, 70}, {33, 520}, {96, 300}};
constexpr int64_t kBatches[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 130};

/*! \return x, each 32 values rounded to multiples of 1 / 127 of their largest. */
std::vector<double> Rounded(const Floats& x, int64_t cols) {
  std::vector<double> rounded(x.size());
  for (size_t row = 0; row < x.size(); row += cols) {
    for (int64_t begin = 0; begin < cols; begin += 32) {
      const int64_t end = std::min(cols, begin + 32);
      float largest = 0;
      for (int64_t k = begin; k < end; ++k) largest = std::max(largest, std::fabs(x[row + k]));
      const float scale = largest / 127.0f;
      for (int64_t k = begin; k < end; ++k) {
        rounded[row + k] = scale == 0 ? 0 : std::nearbyint(x[row + k] / scale) * double{scale};
      }
    }
  }
  return rounded;
}

Floats Multiply(int threads, MatrixLayout layout, const Bytes& packed, int64_t cols, const float* x,
                int64_t m, const float* bias = nullptr) {
  constexpr float kUntouched = 12345.0f;
  const int64_t rows = RowsOf(layout);
  ThreadPool pool(threads);
  Floats out(m * rows + 16, kUntouched);
  Linear(pool, layout, packed.data(), cols, x, FloatType::kF32, m, bias, out.data(),
         FloatType::kF32);
  for (size_t i = m * rows; i < out.size(); ++i) EXPECT_EQ(out[i], kUntouched);
  out.resize(m * rows);
  return out;
}

Floats Multiply(int threads, MatrixFormat format, const Bytes& packed, int64_t rows, int64_t cols,
                const float* x, int64_t m) {
  const MatrixSegment segment{format, rows};
  return Multiply(threads, {&segment, 1}, packed, cols, x, m);
}

class GroupedLinearTest : public ::testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { SetIsa(previous_); }
  static MatrixFormat Format() { return MatrixFormat::Parse(GetParam()); }

 private:
  Isa previous_ = ActiveIsa();
};

TEST_P(GroupedLinearTest, MatchesTheReferenceOnThePortableTier) {
  SetIsa(Isa::kPortable);
  for (const auto& [rows, cols] : kShapes) {
    const GroupedMatrix matrix(Format(), rows, cols, 1);
    const Bytes packed = matrix.Pack();
    for (const int64_t m : {1, 5}) {
      const Floats x = RandomFloats(m * cols, 2);
      const std::vector<double> rounded = Rounded(x, cols);
      const Floats out = Multiply(2, Format(), packed, rows, cols, x.data(), m);
      for (int64_t i = 0; i < m * rows; ++i) {
        double sum = 0;
        double magnitude = 0;
        for (int64_t k = 0; k < cols; ++k) {
          const double value = rounded[i / rows * cols + k];
          sum += matrix.Weight(i % rows, k) * value;
          magnitude += matrix.Magnitude(i % rows, k) * std::fabs(value);
        }
        ASSERT_NEAR(out[i], sum, 1e-6 * magnitude + 1e-30) << rows << "x" << cols << " " << i;
      }
    }
  }
}

TEST_P(GroupedLinearTest, HasTheSameBitsOnEveryTierAndInAnyBatch) {
  for (const auto& [rows, cols] : kShapes) {
    const Bytes packed = GroupedMatrix(Format(), rows, cols, 3).Pack();
    const Floats x = RandomFloats(130 * cols, 4, 30.0f);
    SetIsa(Isa::kPortable);
    const Floats expected = Multiply(2, Format(), packed, rows, cols, x.data(), 130);
    for (const Isa isa : SupportedTiers()) {
      SetIsa(isa);
      for (const int64_t m : kBatches) {
        SCOPED_TRACE(std::string(IsaName(isa)) + " n " + std::to_string(rows) + " k " +
                     std::to_string(cols) + " m " + std::to_string(m));
        const int64_t first = (130 - m) / 2;
        ExpectSameBits(Multiply(2, Format(), packed, rows, cols, x.data() + first * cols, m),
                       {expected.begin() + first * rows, expected.begin() + (first + m) * rows});
      }
    }
  }
}

TEST_P(GroupedLinearTest, ExtremeCodesAndActivationsDoNotOverflow) {
  constexpr int64_t kRows = 16, kCols = 64;
  GroupedMatrix matrix(Format(), kRows, kCols, 5);
  Floats x(3 * kCols, 1.0f);
  for (int64_t k = 0; k < kCols; ++k) x[kCols + k] = -1.0f;
  for (int64_t k = 0; k < kCols; ++k) x[2 * kCols + k] = k % 2 == 0 ? 1.0f : -1.0f;
  const int largest = (1 << Format().bits) - 1;
  for (const int code : {0, largest}) {
    for (const int point : {0, largest + 1}) {
      matrix.SetCodes(static_cast<uint8_t>(code));
      if (Format().zero == ZeroType::kPoints) {
        matrix.SetZeroPoints(static_cast<uint8_t>(std::min(point, 255)));
      }
      const Bytes packed = matrix.Pack();
      for (const Isa isa : SupportedTiers()) {
        SetIsa(isa);
        const Floats out = Multiply(1, Format(), packed, kRows, kCols, x.data(), 3);
        for (int64_t i = 0; i < 3 * kRows; ++i) {
          double sum = 0;
          double magnitude = 0;
          for (int64_t k = 0; k < kCols; ++k) {
            sum += matrix.Weight(i % kRows, k) * x[i / kRows * kCols + k];
            magnitude += matrix.Magnitude(i % kRows, k);
          }
          ASSERT_NEAR(out[i], sum, 1e-6 * magnitude) << IsaName(isa) << " code " << code;
        }
      }
    }
  }
}

TEST_P(GroupedLinearTest, ANonFiniteRowDoesNotAffectOtherRows) {
  constexpr int64_t kRows = 20, kCols = 64, kM = 9;
  const Bytes packed = GroupedMatrix(Format(), kRows, kCols, 6).Pack();
  const Floats finite = RandomFloats(kM * kCols, 7);
  for (const Isa isa : SupportedTiers()) {
    SCOPED_TRACE(IsaName(isa));
    SetIsa(isa);
    const Floats expected = Multiply(1, Format(), packed, kRows, kCols, finite.data(), kM);
    for (const float non_finite :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Floats x = finite;
      x[2 * kCols + 40] = non_finite;
      const Floats out = Multiply(1, Format(), packed, kRows, kCols, x.data(), kM);
      for (int64_t i = 0; i < kM * kRows; ++i) {
        if (i / kRows == 2) {
          EXPECT_FALSE(std::isfinite(out[i])) << i;
        } else {
          EXPECT_EQ(out[i], expected[i]) << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GroupedLinearTest, ::testing::ValuesIn(kGroupedFormats),
                         [](const auto& info) { return std::string(info.param); });

using SegmentsTest = TierTest;

TEST_F(SegmentsTest, AreComputedLikeSeparateMatrices) {
  constexpr int64_t kCols = 300, kM = 37;
  const std::vector<MatrixSegment> layout = {{MatrixFormat::Parse("u4g32k8m"), 64},
                                             {MatrixFormat::Parse("u6g16k8sz32"), 17},
                                             {WeightFormat::kQ4, 40},
                                             {WeightFormat::kChannel, 25},
                                             {WeightFormat::kBF16, 3},
                                             {WeightFormat::kF32, 16},
                                             {MatrixFormat::Parse("u4g32f16z7"), 1}};
  const RandomMatrix matrix(layout, kCols, 8);
  const int64_t rows = RowsOf(matrix.layout);
  const Floats bias = RandomFloats(rows, 9);
  const Floats x = RandomFloats(kM * kCols, 10);
  for (const Isa isa : SupportedTiers()) {
    SCOPED_TRACE(IsaName(isa));
    SetIsa(isa);
    for (const int64_t m : {int64_t{1}, kM}) {
      const Floats out = Multiply(2, matrix.layout, matrix.packed, kCols, x.data(), m, bias.data());
      const uint8_t* packed = matrix.packed.data();
      int64_t first = 0;
      for (const MatrixSegment& segment : layout) {
        const size_t bytes = PackedMatrixBytes(segment.format, segment.rows, kCols);
        const Floats part = Multiply(1, {&segment, 1}, Bytes(packed, packed + bytes), kCols,
                                     x.data(), m, bias.data() + first);
        for (int64_t i = 0; i < m * segment.rows; ++i) {
          ASSERT_EQ(out[i / segment.rows * rows + first + i % segment.rows], part[i]) << first;
        }
        packed += bytes;
        first += segment.rows;
      }
    }
  }
}

TEST_F(SegmentsTest, HaveTheSameBitsOnAnyNumberOfThreads) {
  constexpr int64_t kCols = 520, kM = 300;
  const RandomMatrix matrix(Segments({"u4g32k8m", "u4g32k8m", "u6g16k8sz32"}, 1000), kCols, 11);
  const Floats x = RandomFloats(kM * kCols, 12);
  for (const int64_t m : {int64_t{1}, kM}) {
    const Floats expected = Multiply(1, matrix.layout, matrix.packed, kCols, x.data(), m);
    for (const int threads : {2, 3, 5}) {
      ExpectSameBits(Multiply(threads, matrix.layout, matrix.packed, kCols, x.data(), m), expected);
    }
  }
}

TEST_F(SegmentsTest, AnEmbeddingTableMayHaveThem) {
  constexpr int64_t kHidden = 70;
  const RandomMatrix table(Segments({"u4g32f16z8", "q4"}, 45), kHidden, 13);
  const std::vector<int32_t> ids = {44, 0, 21, 22, 23, 16};
  ThreadPool pool(2);
  Floats rows(ids.size() * kHidden);

  EmbedRows(pool, table.layout, table.packed.data(), kHidden, ids.data(), ids.size(), rows.data());

  const uint8_t* second = table.packed.data() + PackedMatrixBytes(table.layout[0].format, 22, 70);
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t local = ids[i] < 22 ? ids[i] : ids[i] - 22;
    Floats expected(kHidden);
    EmbedRows(pool, table.layout[ids[i] < 22 ? 0 : 1].format,
              ids[i] < 22 ? table.packed.data() : second, 23, kHidden, &local, 1, expected.data());
    ExpectSameBits({rows.begin() + i * kHidden, rows.begin() + (i + 1) * kHidden}, expected);
  }
}

TEST_F(SegmentsTest, FourBitsWithQ4sZeroPointHaveItsBits) {
  constexpr int64_t kRows = 50, kCols = 100, kM = 20;
  const Floats weights = RandomFloats(kRows * kCols, 14);
  Bytes q4(PackedMatrixBytes(WeightFormat::kQ4, kRows, kCols));
  PackMatrixF32(WeightFormat::kQ4, weights.data(), kRows, kCols, 0, kRows, q4.data());
  const MatrixFormat format = MatrixFormat::Parse("u4g32f16z7");
  Bytes grouped(q4.size());
  for (size_t group = 0; group < q4.size(); group += 288) {  // Codes first, then the scales.
    std::memcpy(&grouped[group], &q4[group + 256], 32);
    std::memcpy(&grouped[group + 32], &q4[group], 256);
  }
  const Floats x = RandomFloats(kM * kCols, 15);
  for (const Isa isa : SupportedTiers()) {
    SetIsa(isa);
    ExpectSameBits(Multiply(1, format, grouped, kRows, kCols, x.data(), kM),
                   Multiply(1, WeightFormat::kQ4, q4, kRows, kCols, x.data(), kM));
  }
}

}  // namespace
}  // namespace aiomlc
