#include "kernels/linear/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/linear/format/pack.h"
#include "platform/isa.h"
#include "tests/doubles/kernel_testing.h"
#include "tests/doubles/q4_matrix.h"

namespace aiomlc {
namespace {

using LinearTest = TierTest;

/*! \return The activations after quantization to int8, computed from the definition. */
std::vector<double> RoundedActivations(const Floats& x, int64_t m, int64_t cols) {
  std::vector<double> rounded(x.size());
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t begin = 0; begin < cols; begin += 32) {
      const int64_t end = std::min(cols, begin + 32);
      float largest = 0;
      for (int64_t k = begin; k < end; ++k) {
        largest = std::max(largest, std::fabs(x[row * cols + k]));
      }
      const float scale = largest / 127.0f;
      for (int64_t k = begin; k < end; ++k) {
        const float value = scale == 0 ? 0 : std::nearbyint(x[row * cols + k] / scale);
        rounded[row * cols + k] = static_cast<double>(value) * scale;
      }
    }
  }
  return rounded;
}

struct Product {
  std::vector<double> value;
  std::vector<double> magnitude;  // The sum of the absolute terms; errors are relative to it.
};

/*! \return The product in float64. \param weight Called as weight(n, k). */
template <typename Weight>
Product Reference(int64_t rows, int64_t cols, int64_t m, const std::vector<double>& x,
                  const float* bias, Weight weight) {
  Product product{std::vector<double>(m * rows), std::vector<double>(m * rows)};
  std::vector<double> row_weights(cols);
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < cols; ++k) row_weights[k] = weight(n, k);
    for (int64_t i = 0; i < m; ++i) {
      double sum = bias == nullptr ? 0.0 : bias[n];
      double magnitude = std::fabs(sum);
      for (int64_t k = 0; k < cols; ++k) {
        sum += row_weights[k] * x[i * cols + k];
        magnitude += std::fabs(row_weights[k] * x[i * cols + k]);
      }
      product.value[i * rows + n] = sum;
      product.magnitude[i * rows + n] = magnitude;
    }
  }
  return product;
}

void ExpectClose(const Floats& actual, const Product& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.value.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected.value[i], tolerance * expected.magnitude[i] + 1e-30) << i;
  }
}

/*! \brief Call `Linear` with float32 tensors, and check for writes after the output. */
Floats Multiply(int threads, WeightFormat format, const Bytes& packed, int64_t rows, int64_t cols,
                const float* x, int64_t m, const float* bias = nullptr) {
  constexpr float kUntouched = 12345.0f;
  ThreadPool pool(threads);
  Floats out(m * rows + 16, kUntouched);
  Linear(pool, format, packed.data(), rows, cols, x, FloatType::kF32, m, bias, out.data(),
         FloatType::kF32);
  for (size_t i = m * rows; i < out.size(); ++i) EXPECT_EQ(out[i], kUntouched);
  out.resize(m * rows);
  return out;
}

constexpr int64_t kShapes[][2] = {{16, 32}, {1, 1}, {17, 31}, {40, 96}, {100, 70}, {7, 257}};
constexpr int64_t kBatches[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 33, 130};

TEST_F(LinearTest, Q4MatchesTheReferenceOnEveryTier) {
  for (const auto& [rows, cols] : kShapes) {
    const Q4Matrix matrix(rows, cols, 1);
    const Bytes packed = matrix.Pack();
    const Floats bias = RandomFloats(rows, 5);
    for (const int64_t m : kBatches) {
      const Floats x = RandomFloats(m * cols, 2);
      const auto weight = [&](int64_t n, int64_t k) { return matrix.Weight(n, k); };
      const std::vector<double> rounded = RoundedActivations(x, m, cols);
      const Product plain = Reference(rows, cols, m, rounded, nullptr, weight);
      const Product biased = Reference(rows, cols, m, rounded, bias.data(), weight);
      const Product exact =
          Reference(rows, cols, m, std::vector<double>(x.begin(), x.end()), nullptr, weight);
      for (const Isa isa : SupportedTiers()) {
        SCOPED_TRACE(std::string(IsaName(isa)) + " n " + std::to_string(rows) + " k " +
                     std::to_string(cols) + " m " + std::to_string(m));
        SetIsa(isa);
        const Floats out = Multiply(2, WeightFormat::kQ4, packed, rows, cols, x.data(), m);
        ExpectClose(out, plain, 1e-6);
        ExpectClose(Multiply(2, WeightFormat::kQ4, packed, rows, cols, x.data(), m, bias.data()),
                    biased, 1e-6);
        // The quantization error of an activation is at most 1/2 of 1/127 of the largest.
        double largest = 0;
        for (const float value : x) largest = std::max(largest, std::fabs(double{value}));
        for (size_t i = 0; i < out.size(); ++i) {
          double weights = 0;
          for (int64_t k = 0; k < cols; ++k) weights += std::fabs(weight(i % rows, k));
          ASSERT_NEAR(out[i], exact.value[i], 0.51 / 127 * largest * weights + 1e-30);
        }
      }
    }
  }
}

TEST_F(LinearTest, FloatWeightsMatchTheReferenceOnEveryTier) {
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16}) {
    for (const auto& [rows, cols] : kShapes) {
      const Floats weights = RandomFloats(rows * cols, 3);
      Bytes packed(PackedMatrixBytes(format, rows, cols), 0xee);
      PackMatrixF32(format, weights.data(), rows, cols, 0, rows, packed.data());
      const Floats bias = RandomFloats(rows, 5);
      const auto weight = [&, cols = cols](int64_t n, int64_t k) -> double {
        const float value = weights[n * cols + k];
        return format == WeightFormat::kF32   ? value
               : format == WeightFormat::kF16 ? HalfToFloat(FloatToHalf(value))
                                              : BFloat16ToFloat(FloatToBFloat16(value));
      };
      for (const int64_t m : kBatches) {
        Floats x = RandomFloats(m * cols, 4);
        if (format == WeightFormat::kBF16) {  // Which rounds activations.
          for (float& value : x) value = BFloat16ToFloat(FloatToBFloat16(value));
        }
        const std::vector<double> exact(x.begin(), x.end());
        const Product plain = Reference(rows, cols, m, exact, nullptr, weight);
        const Product biased = Reference(rows, cols, m, exact, bias.data(), weight);
        for (const Isa isa : SupportedTiers()) {
          SCOPED_TRACE(std::string(IsaName(isa)) + " n " + std::to_string(rows) + " k " +
                       std::to_string(cols) + " m " + std::to_string(m));
          SetIsa(isa);
          ExpectClose(Multiply(2, format, packed, rows, cols, x.data(), m), plain, 2e-6);
          ExpectClose(Multiply(2, format, packed, rows, cols, x.data(), m, bias.data()), biased,
                      2e-6);
        }
      }
    }
  }
}

TEST_F(LinearTest, EveryHalfHasItsValueOnEveryTier) {
  Floats weights;
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    const float value = HalfToFloat(static_cast<uint16_t>(bits));
    if (std::isfinite(value) && bits != 0x8000) weights.push_back(value);  // -0 + 0 is 0.
  }
  const auto rows = static_cast<int64_t>(weights.size());
  Bytes packed(PackedMatrixBytes(WeightFormat::kF16, rows, 1));
  PackMatrixF32(WeightFormat::kF16, weights.data(), rows, 1, 0, rows, packed.data());
  const float one = 1.0f;
  for (const Isa isa : SupportedTiers()) {
    SCOPED_TRACE(IsaName(isa));
    SetIsa(isa);
    ExpectSameBits(Multiply(2, WeightFormat::kF16, packed, rows, 1, &one, 1), weights);
  }
}

Bytes PackRandom(WeightFormat format, int64_t rows, int64_t cols) {
  const Floats weights = RandomFloats(rows * cols, 11, 0.05f);
  Bytes packed(PackedMatrixBytes(format, rows, cols));
  PackMatrixF32(format, weights.data(), rows, cols, 0, rows, packed.data());
  return packed;
}

class LinearFormatTest : public LinearTest, public ::testing::WithParamInterface<WeightFormat> {};

TEST_P(LinearFormatTest, ARowHasTheSameBitsAloneAndInAnyBatch) {
  constexpr int64_t kN = 83, kK = 200, kM = 130;
  const Bytes packed = PackRandom(GetParam(), kN, kK);
  const Floats x = RandomFloats(kM * kK, 12);
  for (const Isa isa : SupportedTiers()) {
    SCOPED_TRACE(IsaName(isa));
    SetIsa(isa);
    const Floats all = Multiply(2, GetParam(), packed, kN, kK, x.data(), kM);
    for (const int64_t m : kBatches) {
      for (const int64_t first : {int64_t{0}, (kM - m) / 2, kM - m}) {
        const Floats part = Multiply(1, GetParam(), packed, kN, kK, x.data() + first * kK, m);
        ExpectSameBits(part, {all.begin() + first * kN, all.begin() + (first + m) * kN});
      }
    }
  }
}

TEST_P(LinearFormatTest, HasTheSameBitsOnAnyNumberOfThreads) {
  // Large enough that tiles and rows are both divided among the threads.
  constexpr int64_t kN = 1000, kK = 520, kM = 700;
  const Bytes packed = PackRandom(GetParam(), kN, kK);
  const Floats x = RandomFloats(kM * kK, 13);
  SetIsa(SupportedIsa());
  const Floats many = Multiply(1, GetParam(), packed, kN, kK, x.data(), kM);
  const Floats one = Multiply(1, GetParam(), packed, kN, kK, x.data(), 1);

  for (const int threads : {2, 3, 5}) {
    ExpectSameBits(Multiply(threads, GetParam(), packed, kN, kK, x.data(), kM), many);
    ExpectSameBits(Multiply(threads, GetParam(), packed, kN, kK, x.data(), 1), one);
  }
  ExpectSameBits(one, {many.begin(), many.begin() + kN});
}

TEST_P(LinearFormatTest, HasTheSameBitsOnEveryTier) {
  for (const auto& [rows, cols] : kShapes) {
    const Bytes packed = PackRandom(GetParam(), rows, cols);
    for (const int64_t m : {1, 7, 33}) {
      const Floats x = RandomFloats(m * cols, 14, 30.0f);
      SetIsa(Isa::kPortable);
      const Floats expected = Multiply(2, GetParam(), packed, rows, cols, x.data(), m);
      for (const Isa isa : SupportedTiers()) {
        // AMX adds bf16 products in another order.
        if (isa == Isa::kAmx && GetParam() == WeightFormat::kBF16) continue;
        SCOPED_TRACE(IsaName(isa));
        SetIsa(isa);
        ExpectSameBits(Multiply(2, GetParam(), packed, rows, cols, x.data(), m), expected);
      }
    }
  }
}

TEST_P(LinearFormatTest, Float16InputsAndOutputsEqualConvertedFloat32) {
  constexpr int64_t kN = 37, kK = 75, kM = 5;
  const Bytes packed = PackRandom(GetParam(), kN, kK);
  const Floats bias = RandomFloats(kN, 15);
  const std::vector<uint16_t> x = Halves(RandomFloats(kM * kK, 16));
  Floats wide(x.size());
  std::transform(x.begin(), x.end(), wide.begin(), HalfToFloat);
  ThreadPool pool(2);
  for (const Isa isa : SupportedTiers()) {
    SCOPED_TRACE(IsaName(isa));
    SetIsa(isa);
    const Floats expected = Multiply(2, GetParam(), packed, kN, kK, wide.data(), kM, bias.data());

    Floats out(kM * kN);
    Linear(pool, GetParam(), packed.data(), kN, kK, x.data(), FloatType::kF16, kM, bias.data(),
           out.data(), FloatType::kF32);
    ExpectSameBits(out, expected);

    std::vector<uint16_t> halves(kM * kN + 8, 0x1234);
    Linear(pool, GetParam(), packed.data(), kN, kK, wide.data(), FloatType::kF32, kM, bias.data(),
           halves.data(), FloatType::kF16);
    std::vector<uint16_t> expected_halves = Halves(expected);
    expected_halves.insert(expected_halves.end(), 8, 0x1234);
    EXPECT_EQ(halves, expected_halves);
  }
}

TEST_P(LinearFormatTest, ANonFiniteRowDoesNotAffectOtherRows) {
  constexpr int64_t kN = 20, kK = 64, kM = 4;
  const Bytes packed = PackRandom(GetParam(), kN, kK);
  const Floats finite = RandomFloats(kM * kK, 17);
  for (const Isa isa : SupportedTiers()) {
    SCOPED_TRACE(IsaName(isa));
    SetIsa(isa);
    const Floats expected = Multiply(1, GetParam(), packed, kN, kK, finite.data(), kM);
    for (const float non_finite :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Floats x = finite;
      x[2 * kK + 40] = non_finite;
      const Floats out = Multiply(1, GetParam(), packed, kN, kK, x.data(), kM);
      for (int64_t i = 0; i < kM * kN; ++i) {
        if (i / kN == 2) {
          EXPECT_FALSE(std::isfinite(out[i])) << i;
        } else {
          EXPECT_EQ(out[i], expected[i]) << i;
        }
      }
    }
  }
}

TEST_P(LinearFormatTest, AnEmbeddingIsARowOfTheMatrixOfALinearLayer) {
  constexpr int64_t kVocab = 45, kHidden = 70;
  const Bytes packed = PackRandom(GetParam(), kVocab, kHidden);
  const std::vector<int32_t> ids = {44, 0, 17, 17, 16, 15};
  ThreadPool pool(2);
  Floats rows(ids.size() * kHidden);

  EmbedRows(pool, GetParam(), packed.data(), kVocab, kHidden, ids.data(), ids.size(), rows.data());

  // A unit vector selects one weight; 127 * (1 / 127) is 1 only up to rounding.
  for (int64_t k = 0; k < kHidden; ++k) {
    Floats unit(kHidden, 0.0f);
    unit[k] = 1.0f;
    const Floats column = Multiply(1, GetParam(), packed, kVocab, kHidden, unit.data(), 1);
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_NEAR(rows[i * kHidden + k], column[ids[i]], 1e-6f * std::fabs(column[ids[i]]));
    }
  }
}

TEST_P(LinearFormatTest, PackingInPartsEqualsPackingAtOnce) {
  constexpr int64_t kN = 75, kK = 50;
  const Floats weights = RandomFloats(kN * kK, 18);
  Bytes at_once(PackedMatrixBytes(GetParam(), kN, kK), 0x11);
  Bytes parts(at_once.size(), 0x22);

  PackMatrixF32(GetParam(), weights.data(), kN, kK, 0, kN, at_once.data());
  PackMatrixF32(GetParam(), weights.data(), kN, kK, 64, kN, parts.data());
  PackMatrixF32(GetParam(), weights.data(), kN, kK, 0, 16, parts.data());
  PackMatrixF32(GetParam(), weights.data(), kN, kK, 16, 64, parts.data());

  EXPECT_EQ(parts, at_once);
}

INSTANTIATE_TEST_SUITE_P(Formats, LinearFormatTest,
                         ::testing::Values(WeightFormat::kF32, WeightFormat::kF16,
                                           WeightFormat::kBF16, WeightFormat::kQ4),
                         [](const auto& info) { return MatrixFormat(info.param).Name(); });

TEST_F(LinearTest, SubnormalScalesStayFiniteAndAccurate) {
  constexpr int64_t kN = 16, kK = 64;
  const Q4Matrix matrix(kN, kK, 21);
  const Bytes packed = matrix.Pack();
  for (const Isa isa : SupportedTiers()) {
    SetIsa(isa);
    for (const float size : {0.0f, 1e-44f, 1e-42f, 1e-38f, 1e30f}) {
      Floats x(kK, 0.0f);
      x[3] = size;
      const Floats out = Multiply(1, WeightFormat::kQ4, packed, kN, kK, x.data(), 1);
      for (int64_t n = 0; n < kN; ++n) {
        const double exact = matrix.Weight(n, 3) * size;
        EXPECT_NEAR(out[n], exact, 1e-3 * std::fabs(exact) + 1e-42) << size;
      }
    }
  }
}

TEST_F(LinearTest, ExtremeNibblesDoNotOverflow) {
  constexpr int64_t kN = 16, kK = 32;
  Q4Matrix matrix(kN, kK, 22);
  // PackMatrixF32 never writes 15, but weights quantized elsewhere may contain it.
  std::fill(matrix.words.begin(), matrix.words.end(), 0xffffffffu);
  const Bytes packed = matrix.Pack();
  const Floats x(kK, 1.0f);
  for (const Isa isa : SupportedTiers()) {
    SetIsa(isa);
    const Floats out = Multiply(1, WeightFormat::kQ4, packed, kN, kK, x.data(), 1);
    for (int64_t n = 0; n < kN; ++n) {
      const double exact = 32 * 8 * double{HalfToFloat(matrix.scales[n])};
      EXPECT_NEAR(out[n], exact, 1e-6 * exact);
    }
  }
}

TEST(EmbedRows, ThrowsForAnIdOutsideTheTable) {
  constexpr int64_t kVocab = 10, kHidden = 32;
  const Bytes packed = PackRandom(WeightFormat::kQ4, kVocab, kHidden);
  ThreadPool pool(1);
  Floats out(2 * kHidden, 5.0f);
  for (const int32_t invalid : {-1, 10}) {
    const int32_t ids[] = {3, invalid};
    EXPECT_THROW(
        EmbedRows(pool, WeightFormat::kQ4, packed.data(), kVocab, kHidden, ids, 2, out.data()),
        std::out_of_range);
  }
  EXPECT_EQ(out, Floats(2 * kHidden, 5.0f));
}

}  // namespace
}  // namespace aiomlc
