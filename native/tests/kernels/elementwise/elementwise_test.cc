#include "kernels/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/simd/simd_math.h"
#include "kernels/simd/simd_portable.h"
#include "tests/doubles/kernel_testing.h"

namespace aiomlc {
namespace {

float ScalarExp(float x) { return PortableLanes::First(Exp<PortableLanes>(PortableLanes::Set(x))); }

TEST(Exp, IsWithinTwoUnitsInTheLastPlace) {
  for (float x = -87.0f; x <= 88.0f; x += 0.00371f) {
    const double expected = std::exp(double{x});
    const double unit = std::ldexp(1.0, std::ilogb(expected) - 23);
    ASSERT_NEAR(ScalarExp(x), expected, 2 * unit) << x;
  }
}

TEST(Exp, HandlesLimitsAndSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ScalarExp(0.0f), 1.0f);
  EXPECT_EQ(ScalarExp(-0.0f), 1.0f);
  EXPECT_EQ(ScalarExp(-infinity), 0.0f);
  EXPECT_EQ(ScalarExp(-88.0f), 0.0f);
  EXPECT_EQ(ScalarExp(infinity), ScalarExp(88.0f));
  EXPECT_TRUE(std::isnan(ScalarExp(std::numeric_limits<float>::quiet_NaN())));
}

class ElementwiseOnTier : public ::testing::TestWithParam<Isa> {
 protected:
  TierScope tier_{GetParam()};
  ThreadPool pool_{2};
};

/*! \brief Enough rows for several tasks, of a size that is not a multiple of the vector width. */
constexpr int64_t kRows = 150;
constexpr int64_t kSize = 245;

TEST_P(ElementwiseOnTier, RmsNormMatchesTheReference) {
  const std::vector<float> x = RandomFloats(kRows * kSize, 1, 3.0f);
  const std::vector<float> weight = RandomFloats(kSize, 2);
  std::vector<float> out(kRows * kSize);

  RmsNorm(pool_, x.data(), weight.data(), 1e-5f, kRows, kSize, out.data());

  for (int64_t row = 0; row < kRows; ++row) {
    double squares = 0;
    for (int64_t i = 0; i < kSize; ++i) squares += double{x[row * kSize + i]} * x[row * kSize + i];
    const double scale = 1 / std::sqrt(squares / kSize + 1e-5);
    for (int64_t i = 0; i < kSize; ++i) {
      const double expected = x[row * kSize + i] * scale * weight[i];
      ASSERT_NEAR(out[row * kSize + i], expected, 1e-6 * (std::abs(expected) + 1e-3));
    }
  }
}

TEST_P(ElementwiseOnTier, RmsNormOfARowDoesNotDependOnItsBatch) {
  const std::vector<float> x = RandomFloats(kRows * kSize, 3);
  const std::vector<float> weight = RandomFloats(kSize, 4);
  std::vector<float> out(kRows * kSize);
  std::vector<float> alone(kSize);
  RmsNorm(pool_, x.data(), weight.data(), 1e-5f, kRows, kSize, out.data());

  for (int64_t row = 0; row < kRows; ++row) {
    RmsNorm(pool_, x.data() + row * kSize, weight.data(), 1e-5f, 1, kSize, alone.data());
    ASSERT_EQ(alone,
              std::vector<float>(out.begin() + row * kSize, out.begin() + (row + 1) * kSize));
  }
}

TEST_P(ElementwiseOnTier, AddRmsNormEqualsAddThenRmsNorm) {
  const std::vector<float> x = RandomFloats(kRows * kSize, 5);
  const std::vector<float> residual = RandomFloats(kRows * kSize, 6);
  const std::vector<float> weight = RandomFloats(kSize, 7);
  std::vector<float> sum(kRows * kSize), norm(kRows * kSize);
  std::vector<float> fused_sum(kRows * kSize), fused_norm(kRows * kSize);
  Add(pool_, x.data(), residual.data(), kRows * kSize, sum.data());
  RmsNorm(pool_, sum.data(), weight.data(), 1e-6f, kRows, kSize, norm.data());

  AddRmsNorm(pool_, x.data(), residual.data(), weight.data(), 1e-6f, kRows, kSize,
             fused_norm.data(), fused_sum.data());

  EXPECT_EQ(sum[1234], x[1234] + residual[1234]);
  EXPECT_EQ(fused_sum, sum);
  EXPECT_EQ(fused_norm, norm);
}

TEST_P(ElementwiseOnTier, SiluMulMatchesTheReference) {
  std::vector<float> gate_up = RandomFloats(kRows * 2 * kSize, 8, 4.0f);
  gate_up[0] = 100.0f;
  gate_up[1] = -100.0f;
  std::vector<float> out(kRows * kSize);

  SiluMul(pool_, gate_up.data(), kRows, kSize, out.data());

  for (int64_t i = 0; i < kRows * kSize; ++i) {
    const int64_t at = i / kSize * 2 * kSize + i % kSize;
    const double gate = gate_up[at];
    const double expected = gate / (1 + std::exp(-gate)) * gate_up[at + kSize];
    ASSERT_NEAR(out[i], expected, 1e-6 * std::abs(expected) + 1e-35) << gate;
  }
}

TEST_P(ElementwiseOnTier, ClampedSwiGluMatchesTheReference) {
  std::vector<float> gate_up = RandomFloats(kRows * 2 * kSize, 23, 10.0f);
  gate_up[0] = 1000.0f;
  gate_up[1] = -1000.0f;
  gate_up[2] = std::numeric_limits<float>::quiet_NaN();
  gate_up[kSize + 3] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> out(kRows * kSize);

  GatedMul(pool_, Activation::kClampedSwiGlu, gate_up.data(), kRows, kSize, out.data());

  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_TRUE(std::isnan(out[3]));
  for (int64_t i = 0; i < kRows * kSize; ++i) {
    if (i == 2 || i == 3) continue;
    const int64_t at = i / kSize * 2 * kSize + i % kSize;
    const double gate = std::min(7.0, double{gate_up[at]});
    const double up = std::clamp(double{gate_up[at + kSize]}, -7.0, 7.0) + 1;
    const double expected = gate / (1 + std::exp(-1.702 * gate)) * up;
    ASSERT_NEAR(out[i], expected, 2e-6 * std::abs(expected) + 1e-6 * std::abs(gate) + 1e-35) << i;
  }
}

TEST_P(ElementwiseOnTier, GeluMulMatchesTheReference) {
  std::vector<float> gate_up = RandomFloats(kRows * 2 * kSize, 27, 4.0f);
  gate_up[0] = 100.0f;
  gate_up[1] = -100.0f;
  std::vector<float> out(kRows * kSize);

  GatedMul(pool_, Activation::kGelu, gate_up.data(), kRows, kSize, out.data());

  for (int64_t i = 0; i < kRows * kSize; ++i) {
    const int64_t at = i / kSize * 2 * kSize + i % kSize;
    const double gate = gate_up[at];
    const double expected = gate * std::erfc(-gate / std::sqrt(2.0)) / 2 * gate_up[at + kSize];
    ASSERT_NEAR(out[i], expected, 3e-6 * std::abs(expected) + 1e-6 * std::abs(gate_up[at + kSize]))
        << gate;
  }
}

TEST_P(ElementwiseOnTier, GeluTanhMulMatchesTheReference) {
  std::vector<float> gate_up = RandomFloats(kRows * 2 * kSize, 19, 4.0f);
  gate_up[0] = 100.0f;
  gate_up[1] = -100.0f;
  std::vector<float> out(kRows * kSize);

  GatedMul(pool_, Activation::kGeluTanh, gate_up.data(), kRows, kSize, out.data());

  for (int64_t i = 0; i < kRows * kSize; ++i) {
    const int64_t at = i / kSize * 2 * kSize + i % kSize;
    const double gate = gate_up[at];
    const double u = std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);
    const double expected = gate / (1 + std::exp(-2 * u)) * gate_up[at + kSize];
    ASSERT_NEAR(out[i], expected, 3e-6 * std::abs(expected) + 1e-6 * std::abs(gate_up[at + kSize]))
        << gate;
  }
}

TEST_P(ElementwiseOnTier, SoftCapMatchesTheReference) {
  std::vector<float> x = RandomFloats(kRows * kSize, 21, 20.0f);
  x[0] = std::numeric_limits<float>::infinity();
  x[1] = -x[0];
  x[2] = 0.0f;
  std::vector<float> out(kRows * kSize);

  SoftCap(pool_, x.data(), 30.0f, kRows * kSize, out.data());

  for (int64_t i = 0; i < kRows * kSize; ++i) {
    ASSERT_NEAR(out[i], 30 * std::tanh(x[i] / 30.0), 30 * 2e-7) << x[i];
  }
  EXPECT_EQ(out[2], 0.0f);
}

TEST_P(ElementwiseOnTier, ScaleMultipliesEveryElement) {
  const std::vector<float> x = RandomFloats(kRows * kSize, 20);
  std::vector<float> out(kRows * kSize);

  Scale(pool_, x.data(), 8.5f, kRows * kSize, out.data());

  for (int64_t i = 0; i < kRows * kSize; ++i) ASSERT_EQ(out[i], x[i] * 8.5f);
}

TEST_P(ElementwiseOnTier, LayerNormMatchesTheReference) {
  const std::vector<float> x = RandomFloats(kRows * kSize, 15, 3.0f);
  const std::vector<float> residual = RandomFloats(kRows * kSize, 16, 3.0f);
  const std::vector<float> weight = RandomFloats(kSize, 17);
  const std::vector<float> bias = RandomFloats(kSize, 18);
  std::vector<float> sum(kRows * kSize), norm(kRows * kSize), fused(kRows * kSize);
  std::vector<float> fused_sum(kRows * kSize);
  Add(pool_, x.data(), residual.data(), kRows * kSize, sum.data());

  LayerNorm(pool_, sum.data(), weight.data(), bias.data(), 1e-5f, kRows, kSize, norm.data());
  AddLayerNorm(pool_, x.data(), residual.data(), weight.data(), bias.data(), 1e-5f, kRows, kSize,
               fused.data(), fused_sum.data());

  EXPECT_EQ(fused_sum, sum);
  EXPECT_EQ(fused, norm);
  for (int64_t row = 0; row < kRows; ++row) {
    const float* values = sum.data() + row * kSize;
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < kSize; ++i) mean += values[i] / double{kSize};
    for (int64_t i = 0; i < kSize; ++i) squares += (values[i] - mean) * (values[i] - mean);
    const double scale = 1 / std::sqrt(squares / kSize + 1e-5);
    for (int64_t i = 0; i < kSize; ++i) {
      const double expected = (values[i] - mean) * scale * weight[i] + bias[i];
      ASSERT_NEAR(norm[row * kSize + i], expected, 3e-6);
    }
  }
}

TEST_P(ElementwiseOnTier, LayerNormWithoutABiasEqualsAZeroBias) {
  const std::vector<float> x = RandomFloats(kRows * kSize, 15, 3.0f);
  const std::vector<float> residual = RandomFloats(kRows * kSize, 16, 3.0f);
  const std::vector<float> weight = RandomFloats(kSize, 17);
  const std::vector<float> zeros(kSize, 0.0f);
  std::vector<float> expected(kRows * kSize), norm(kRows * kSize), sum(kRows * kSize);
  LayerNorm(pool_, x.data(), weight.data(), zeros.data(), 1e-5f, kRows, kSize, expected.data());

  LayerNorm(pool_, x.data(), weight.data(), nullptr, 1e-5f, kRows, kSize, norm.data());

  EXPECT_EQ(norm, expected);
  AddLayerNorm(pool_, x.data(), residual.data(), weight.data(), zeros.data(), 1e-5f, kRows, kSize,
               expected.data(), sum.data());
  AddLayerNorm(pool_, x.data(), residual.data(), weight.data(), nullptr, 1e-5f, kRows, kSize,
               norm.data(), sum.data());
  EXPECT_EQ(norm, expected);
}

TEST_P(ElementwiseOnTier, GeluMatchesTheReference) {
  std::vector<float> x = RandomFloats(kRows * kSize, 19, 4.0f);
  x[0] = 0.0f;
  x[1] = 100.0f;
  x[2] = -100.0f;
  std::vector<float> out(kRows * kSize);

  Gelu(pool_, x.data(), kRows * kSize, out.data());

  for (int64_t i = 0; i < kRows * kSize; ++i) {
    const double expected = 0.5 * x[i] * std::erfc(-double{x[i]} / std::sqrt(2.0));
    ASSERT_NEAR(out[i], expected, 4e-7 * std::max(1.0, std::abs(double{x[i]}))) << x[i];
  }
}

TEST_P(ElementwiseOnTier, GeluTanhMatchesTheReference) {
  std::vector<float> x = RandomFloats(kRows * kSize, 20, 4.0f);
  x[0] = 0.0f;
  x[1] = 100.0f;
  x[2] = -100.0f;
  x[3] = 1e20f;
  std::vector<float> out(kRows * kSize);

  GeluTanh(pool_, x.data(), kRows * kSize, out.data());

  for (int64_t i = 0; i < kRows * kSize; ++i) {
    const double value = x[i];
    const double inner = std::sqrt(2 / M_PI) * (value + 0.044715 * value * value * value);
    const double expected = value / (1 + std::exp(-2 * inner));
    ASSERT_NEAR(out[i], expected, 4e-7 * std::max(1.0, std::abs(value))) << value;
  }
}

TEST_P(ElementwiseOnTier, QuickGeluMatchesTheReference) {
  std::vector<float> x = RandomFloats(kRows * kSize, 20, 4.0f);
  x[0] = 0.0f;
  x[1] = 100.0f;
  x[2] = -100.0f;
  std::vector<float> out(kRows * kSize);

  QuickGelu(pool_, x.data(), kRows * kSize, out.data());

  for (int64_t i = 0; i < kRows * kSize; ++i) {
    const double value = x[i];
    const double expected = value / (1 + std::exp(-1.702 * value));
    ASSERT_NEAR(out[i], expected, 4e-7 * std::max(1.0, std::abs(value))) << value;
  }
}

TEST_P(ElementwiseOnTier, ScaleColumnsMultipliesEachRowByTheFactors) {
  const std::vector<float> x = RandomFloats(kRows * kSize, 21);
  const std::vector<float> factors = RandomFloats(kSize, 22);
  std::vector<float> out(kRows * kSize);

  ScaleColumns(pool_, x.data(), factors.data(), kRows, kSize, out.data());

  for (int64_t i = 0; i < kRows * kSize; ++i) ASSERT_EQ(out[i], x[i] * factors[i % kSize]);
}

TEST_P(ElementwiseOnTier, SquaredReluSquaresPositiveElements) {
  std::vector<float> x = RandomFloats(kRows * kSize, 21, 4.0f);
  x[0] = -0.0f;
  x[1] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> out(kRows * kSize);

  SquaredRelu(pool_, x.data(), kRows * kSize, out.data());

  EXPECT_EQ(out[0], 0.0f);
  EXPECT_TRUE(std::isnan(out[1]));
  for (int64_t i = 2; i < kRows * kSize; ++i) {
    ASSERT_EQ(out[i], x[i] > 0 ? x[i] * x[i] : 0.0f);
  }
}

TEST_P(ElementwiseOnTier, AnElementDoesNotDependOnItsLane) {
  for (int64_t size = 1; size <= 40; ++size) {
    std::vector<float> gate_up(2 * size, 0.7f);
    std::vector<float> out(size);

    SiluMul(pool_, gate_up.data(), 1, size, out.data());

    EXPECT_EQ(out, std::vector<float>(size, out[0]));
  }
}

TEST_P(ElementwiseOnTier, QkNormNormalizesQueryAndKeyHeadsButNotValues) {
  const HeadLayout heads{3, 2, 20};
  const int64_t rows = 9;
  const std::vector<float> qkv = RandomFloats(rows * 7 * 20, 9);
  const std::vector<float> query_weight = RandomFloats(20, 10);
  const std::vector<float> key_weight = RandomFloats(20, 11);
  for (const FloatType type : {FloatType::kF32, FloatType::kF16}) {
    FloatTensor out(type, rows * 7 * 20);

    QkNorm(pool_, heads, QkSpan::kHead, qkv.data(), query_weight.data(), key_weight.data(), 1e-6f,
           rows, out.data(), type);

    std::vector<float> norm(20);
    for (int64_t i = 0; i < rows * 7; ++i) {
      const float* source = qkv.data() + i * 20;
      const std::vector<float>& weight = i % 7 < 3 ? query_weight : key_weight;
      RmsNorm(pool_, source, weight.data(), 1e-6f, 1, 20, norm.data());
      if (i % 7 >= 5) norm.assign(source, source + 20);
      EXPECT_EQ(out.Slice(i * 20, 20), FloatTensor(type, norm).bytes());
    }
  }
}

TEST_P(ElementwiseOnTier, QkvNormNormalizesValuesWithoutWeights) {
  const HeadLayout heads{3, 2, 20};
  const int64_t rows = 9;
  const std::vector<float> query_weight = RandomFloats(20, 10);
  const std::vector<float> key_weight = RandomFloats(20, 11);
  const std::vector<float> ones(20, 1.0f);
  for (const ValueSource values : {ValueSource::kValues, ValueSource::kKeys}) {
    const int64_t read = values == ValueSource::kValues ? 7 : 5;
    const std::vector<float> qkv = RandomFloats(rows * read * 20, 9);
    for (const FloatType type : {FloatType::kF32, FloatType::kF16}) {
      FloatTensor out(type, rows * 7 * 20);

      QkvNorm(pool_, heads, values, qkv.data(), query_weight.data(), key_weight.data(), 1e-6f, rows,
              out.data(), type);

      std::vector<float> norm(20);
      for (int64_t i = 0; i < rows * 7; ++i) {
        const int64_t head = i % 7;
        const int64_t source = head >= 5 && read == 5 ? head - 2 : head;
        const std::vector<float>& weight = head < 3 ? query_weight : head < 5 ? key_weight : ones;
        RmsNorm(pool_, qkv.data() + (i / 7 * read + source) * 20, weight.data(), 1e-6f, 1, 20,
                norm.data());
        EXPECT_EQ(out.Slice(i * 20, 20), FloatTensor(type, norm).bytes());
      }
    }
  }
}

TEST(ReplaceUnknownIds, IdsBeyondTheLimitAreZero) {
  const std::vector<int32_t> ids{4, 5, -1, 0, 900};
  std::vector<int32_t> out(5, 7);

  ReplaceUnknownIds(ids.data(), 5, 5, out.data());

  EXPECT_EQ(out, (std::vector<int32_t>{4, 0, 0, 0, 0}));
}

TEST_P(ElementwiseOnTier, TheLargestElementIsNaNIfAnElementIs) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (int64_t size : {1, 15, 16, 50}) {
    std::vector<float> x = RandomFloats(size, 7);
    for (float& value : x) value = -std::abs(value) - 1;
    EXPECT_EQ(LargestElement(x.data(), size), *std::max_element(x.begin(), x.end()));
    for (int64_t place : {int64_t{0}, size / 2, size - 1}) {
      const float original = std::exchange(x[place], -0.5f);
      EXPECT_EQ(LargestElement(x.data(), size), -0.5f);
      x[place] = infinity;
      EXPECT_EQ(LargestElement(x.data(), size), infinity);
      for (float nan : {std::numeric_limits<float>::quiet_NaN(), std::copysign(NAN, -1.0f)}) {
        x[place] = nan;
        EXPECT_TRUE(std::isnan(LargestElement(x.data(), size)));
      }
      x[place] = original;
    }
    std::fill(x.begin(), x.end(), -infinity);
    EXPECT_EQ(LargestElement(x.data(), size), -infinity);
  }
}

TEST_P(ElementwiseOnTier, SumsAtMostAddsTheElementsThatExceedNoLimit) {
  const float limits[kSumLimits] = {0.5f, 1e-6f, 3.0f, 0.75f};
  for (int64_t size : {1, 16, 33, 4000}) {
    std::vector<float> x = RandomFloats(size, 5);
    for (float& value : x) value = std::abs(value);
    x[0] = 0.75f;
    float sums[kSumLimits];

    SumsAtMost(x.data(), size, limits, sums);

    for (int j = 0; j < kSumLimits; ++j) {
      double expected = 0;
      for (float value : x) expected += value <= limits[j] ? value : 0.0f;
      EXPECT_NEAR(sums[j], expected, expected * static_cast<double>(size + 16) * 0x1p-28);
    }
  }
}

TEST_P(ElementwiseOnTier, CollectBetweenCopiesTheElementsOfARange) {
  std::vector<float> x = RandomFloats(3000, 6);
  x[40] = 0.25f;
  x[41] = 0.5f;
  for (const auto& [begin, end] :
       {std::pair<int64_t, int64_t>{0, 3000}, {37, 100}, {40, 41}, {7, 7}}) {
    for (float high : {0.5f, std::numeric_limits<float>::infinity(), 0.25f}) {
      std::vector<float> values(3000 + kCollectPadding);
      std::vector<int32_t> ids(values.size());

      const int64_t count =
          CollectBetween(x.data(), begin, end, 0.25f, high, values.data(), ids.data());

      values.resize(static_cast<size_t>(count));
      ids.resize(static_cast<size_t>(count));
      std::vector<float> expected;
      std::vector<int32_t> expected_ids;
      for (int64_t i = begin; i < end; ++i) {
        if (x[i] < 0.25f || x[i] >= high) continue;
        expected.push_back(x[i]);
        expected_ids.push_back(static_cast<int32_t>(i));
      }
      EXPECT_EQ(values, expected);
      EXPECT_EQ(ids, expected_ids);
    }
  }
}

TEST_P(ElementwiseOnTier, ConcatColumnsCopiesRangesOfBothRows) {
  for (const FloatType type : {FloatType::kF32, FloatType::kF16}) {
    const FloatTensor a(type, RandomFloats(kRows * 5, 1));
    const FloatTensor b(type, RandomFloats(kRows * 7, 2));
    FloatTensor out(type, kRows * 6);

    ConcatColumns(pool_, {a.data(), 5, 1, 3}, {b.data(), 7, 4, 3}, kRows, type, out.data());

    for (int64_t row = 0; row < kRows; ++row) {
      EXPECT_EQ(out.Slice(row * 6, 3), a.Slice(row * 5 + 1, 3));
      EXPECT_EQ(out.Slice(row * 6 + 3, 3), b.Slice(row * 7 + 4, 3));
    }
  }
}

TEST_P(ElementwiseOnTier, QkNormOfAllHeadsComputesOneNormOfQueriesAndOneOfKeys) {
  const HeadLayout heads{3, 2, 20};
  const int64_t rows = 9;
  const std::vector<float> qkv = RandomFloats(rows * 7 * 20, 9);
  const std::vector<float> query_weight = RandomFloats(60, 10);
  const std::vector<float> key_weight = RandomFloats(40, 11);
  for (const FloatType type : {FloatType::kF32, FloatType::kF16}) {
    FloatTensor out(type, rows * 7 * 20);

    QkNorm(pool_, heads, QkSpan::kAllHeads, qkv.data(), query_weight.data(), key_weight.data(),
           1e-6f, rows, out.data(), type);

    for (int64_t row = 0; row < rows; ++row) {
      std::vector<float> expected(qkv.begin() + row * 140, qkv.begin() + (row + 1) * 140);
      const float* source = qkv.data() + row * 140;
      RmsNorm(pool_, source, query_weight.data(), 1e-6f, 1, 60, expected.data());
      RmsNorm(pool_, source + 60, key_weight.data(), 1e-6f, 1, 40, expected.data() + 60);
      EXPECT_EQ(out.Slice(row * 140, 140), FloatTensor(type, expected).bytes());
    }
  }
}

TEST_P(ElementwiseOnTier, SplitRotaryRotatesTheRotaryDimensionsAndCopiesTheRest) {
  const HeadLayout heads{3, 2, 24};
  const std::vector<int32_t> positions{0, 1, 70000, 5};
  const std::vector<float> frequencies = [] {
    std::vector<float> result;
    for (int i = 0; i < 10; ++i) result.push_back(std::pow(10000.0f, -i / 10.0f));
    return result;
  }();
  for (const FloatType type : {FloatType::kF32, FloatType::kF16}) {
    const FloatTensor qkv(type, RandomFloats(4 * 7 * 24, 12));
    FloatTensor q(type, 4 * 3 * 24), k(type, 4 * 2 * 24), v(type, 4 * 2 * 24);
    const double tolerance = type == FloatType::kF16 ? 2e-3 : 1e-6;

    SplitRotary(pool_, {heads, type, 4, qkv.data(), positions.data(), frequencies.data(), 10,
                        q.data(), k.data(), v.data()});

    for (int64_t row = 0; row < 4; ++row) {
      for (int64_t head = 0; head < 5; ++head) {
        const FloatTensor& out = head < 3 ? q : k;
        const int64_t base = head < 3 ? (row * 3 + head) * 24 : (row * 2 + head - 3) * 24;
        const int64_t source = (row * 7 + head) * 24;
        for (int64_t i = 0; i < 10; ++i) {
          const double angle = static_cast<float>(positions[row]) * frequencies[i];
          const double low = qkv[source + i], high = qkv[source + 10 + i];
          ASSERT_NEAR(out[base + i], low * std::cos(angle) - high * std::sin(angle), tolerance);
          ASSERT_NEAR(out[base + 10 + i], high * std::cos(angle) + low * std::sin(angle),
                      tolerance);
        }
        EXPECT_EQ(out.Slice(base + 20, 4), qkv.Slice(source + 20, 4));
      }
      EXPECT_EQ(v.Slice(row * 48, 48), qkv.Slice((row * 7 + 5) * 24, 48));
    }
  }
}

TEST_P(ElementwiseOnTier, SplitRotaryDoesNotReuseATableForOtherArguments) {
  const HeadLayout heads{1, 1, 2};
  const FloatTensor qkv(FloatType::kF32, {1, 0, 1, 0, 1, 0});
  FloatTensor q(FloatType::kF32, 2), k(FloatType::kF32, 2), v(FloatType::kF32, 2);
  const auto rotated = [&](int32_t position, float frequency, float amplitude = 1.0f) {
    SplitRotary(pool_, {heads, FloatType::kF32, 1, qkv.data(), &position, &frequency, 1, q.data(),
                        k.data(), v.data(), amplitude});
    return q[1];
  };

  EXPECT_NEAR(rotated(1, 1.0f), std::sin(1.0), 1e-6);
  EXPECT_NEAR(rotated(2, 1.0f), std::sin(2.0), 1e-6);
  EXPECT_NEAR(rotated(2, 0.25f), std::sin(0.5), 1e-6);
  EXPECT_NEAR(rotated(2, 0.25f, 1.5f), 1.5 * std::sin(0.5), 1e-6);
  EXPECT_NEAR(rotated(2, 0.25f), std::sin(0.5), 1e-6);
}

TEST_P(ElementwiseOnTier, EachFrequencyMultipliesThePositionOnItsAxis) {
  const HeadLayout heads{2, 1, 12};
  const std::vector<int32_t> positions{3, 9, 4, 9, 7, 9};  // Of two rows on three axes.
  const std::vector<float> frequencies{1.0f, 0.5f, 0.25f, 0.125f, 0.1f};
  const std::vector<uint8_t> axes{0, 2, 1, 2, 0};
  const FloatTensor qkv(FloatType::kF32, RandomFloats(2 * 4 * 12, 13));
  const auto rotated = [&](int64_t rows, const int32_t* of_rows, const float* of_pairs,
                           int64_t pairs, const uint8_t* pair_axes) {
    FloatTensor q(FloatType::kF32, 2 * 2 * 12), k(FloatType::kF32, 2 * 12), v(k);
    SplitRotary(pool_, {heads, FloatType::kF32, rows, qkv.data(), of_rows, of_pairs, pairs,
                        q.data(), k.data(), v.data(), 1.0f, pair_axes});
    return q;
  };
  const FloatTensor out = rotated(2, positions.data(), frequencies.data(), 5, axes.data());
  for (int64_t row = 0; row < 2; ++row) {
    for (size_t i = 0; i < axes.size(); ++i) {
      const double angle = double{frequencies[i]} * positions[axes[i] * 2 + row];
      const double low = qkv[row * 48 + i], high = qkv[row * 48 + 5 + i];
      ASSERT_NEAR(out[row * 24 + i], low * std::cos(angle) - high * std::sin(angle), 1e-6);
    }
  }
  // With equal positions on all axes, the bits are those of one axis.
  const std::vector<int32_t> text{8, 9};
  const std::vector<int32_t> all{8, 9, 8, 9, 8, 9};
  const FloatTensor plain = rotated(2, text.data(), frequencies.data(), 5, nullptr);
  EXPECT_EQ(rotated(2, all.data(), frequencies.data(), 5, axes.data()).bytes(), plain.bytes());
}

TEST_P(ElementwiseOnTier, GatherRowsCopiesTheGivenRows) {
  const std::vector<float> x{0, 1, 2, 3, 4, 5};
  const std::vector<int32_t> ids{2, 0, 2};
  std::vector<float> out(6);

  GatherRows(x.data(), ids.data(), 3, 2, out.data());

  EXPECT_EQ(out, (std::vector<float>{4, 5, 0, 1, 4, 5}));
}

INSTANTIATE_TEST_SUITE_P(Tiers, ElementwiseOnTier, ::testing::ValuesIn(SupportedTiers()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

TEST(Elementwise, HasTheSameBitsOnEveryTier) {
  ThreadPool pool(2);
  const std::vector<float> x = RandomFloats(kRows * kSize, 13, 5.0f);
  const std::vector<float> weight = RandomFloats(kSize, 14);
  std::vector<std::vector<float>> norms, layer_norms, activations, gates, swiglus, gelus,
      tanh_gelus, quick_gelus, caps;

  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);
    norms.emplace_back(kRows * kSize);
    RmsNorm(pool, x.data(), weight.data(), 1e-5f, kRows, kSize, norms.back().data());
    layer_norms.emplace_back(kRows * kSize);
    LayerNorm(pool, x.data(), weight.data(), x.data(), 1e-5f, kRows, kSize,
              layer_norms.back().data());
    gelus.emplace_back(kRows * kSize);
    Gelu(pool, x.data(), kRows * kSize, gelus.back().data());
    tanh_gelus.emplace_back(kRows * kSize);
    GeluTanh(pool, x.data(), kRows * kSize, tanh_gelus.back().data());
    quick_gelus.emplace_back(kRows * kSize);
    QuickGelu(pool, x.data(), kRows * kSize, quick_gelus.back().data());
    activations.emplace_back(kRows / 2 * kSize);
    SiluMul(pool, x.data(), kRows / 2, kSize, activations.back().data());
    caps.emplace_back(kRows * kSize);
    SoftCap(pool, x.data(), 3.0f, kRows * kSize, caps.back().data());
    gates.emplace_back(kRows / 2 * kSize);
    GatedMul(pool, Activation::kGeluTanh, x.data(), kRows / 2, kSize, gates.back().data());
    swiglus.emplace_back(kRows / 2 * kSize);
    GatedMul(pool, Activation::kClampedSwiGlu, x.data(), kRows / 2, kSize, swiglus.back().data());
  }

  for (const std::vector<float>& norm : norms) EXPECT_EQ(norm, norms[0]);
  for (const std::vector<float>& norm : layer_norms) EXPECT_EQ(norm, layer_norms[0]);
  for (const std::vector<float>& gelu : gelus) EXPECT_EQ(gelu, gelus[0]);
  for (const std::vector<float>& gelu : tanh_gelus) EXPECT_EQ(gelu, tanh_gelus[0]);
  for (const std::vector<float>& gelu : quick_gelus) EXPECT_EQ(gelu, quick_gelus[0]);
  for (const std::vector<float>& activation : activations) EXPECT_EQ(activation, activations[0]);
  for (const std::vector<float>& cap : caps) EXPECT_EQ(cap, caps[0]);
  for (const std::vector<float>& gate : gates) EXPECT_EQ(gate, gates[0]);
  for (const std::vector<float>& gate : swiglus) EXPECT_EQ(gate, swiglus[0]);
}

}  // namespace
}  // namespace aiomlc
