#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/elementwise/streams.h"
#include "tests/doubles/kernel_testing.h"

namespace aiomlc {
namespace {

using Floats = std::vector<float>;

/*! \brief Enough rows for several tasks. */
constexpr StreamShape kShape{300, 4, 37};
constexpr int64_t kWidth = kShape.count * kShape.size;

class ResidualStreamsTest : public ::testing::Test {
 protected:
  ThreadPool pool_{2};
  Floats x_ = RandomFloats(kShape.rows * kWidth, 1);
  Floats row_ = RandomFloats(kShape.rows * kShape.size, 2);
  Floats out_ = Floats(kShape.rows * kWidth);
};

TEST_F(ResidualStreamsTest, APredictionIsTheStreamAndAMixOfAll) {
  const Floats factors = RandomFloats(kShape.rows * 16, 3);

  PredictStreams(pool_, kShape, x_.data(), factors.data(), out_.data());

  for (int64_t i = 0; i < kShape.rows * kWidth; ++i) {
    const int64_t row = i / kWidth, stream = i % kWidth / kShape.size, column = i % kShape.size;
    double expected = x_[i];
    for (int64_t t = 0; t < 4; ++t) {
      expected +=
          double{factors[(row * 4 + stream) * 4 + t]} * x_[row * kWidth + t * kShape.size + column];
    }
    ASSERT_NEAR(out_[i], expected, 1e-5);
  }
}

TEST_F(ResidualStreamsTest, ACorrectionAddsWhatTheActiveStreamDidNotPredict) {
  const Floats factors = RandomFloats(kShape.rows * 4, 3);

  CorrectStreams(pool_, kShape, 2, x_.data(), row_.data(), factors.data(), out_.data());

  for (int64_t i = 0; i < kShape.rows * kWidth; ++i) {
    const int64_t row = i / kWidth, stream = i % kWidth / kShape.size, column = i % kShape.size;
    const double innovation =
        double{row_[row * kShape.size + column]} - x_[row * kWidth + 2 * kShape.size + column];
    ASSERT_NEAR(out_[i], x_[i] + (1.0 + factors[row * 4 + stream]) * innovation, 1e-5);
  }
}

TEST_F(ResidualStreamsTest, AnUpdateIsAddedToAllStreamsButTheFirst) {
  AddToLaterStreams(pool_, kShape, x_.data(), row_.data(), out_.data());

  for (int64_t i = 0; i < kShape.rows * kWidth; ++i) {
    const float update = row_[i / kWidth * kShape.size + i % kShape.size];
    ASSERT_EQ(out_[i], i % kWidth < kShape.size ? x_[i] : x_[i] + update);
  }
}

TEST_F(ResidualStreamsTest, AMagnitudeIsThatOfTheTargetUnlessTheRowIsTiny) {
  const Floats target = RandomFloats(kShape.rows * kShape.size, 4, 3.0f);
  for (int64_t i = 0; i < kShape.size; ++i) row_[i] = 1e-6f;

  MatchMagnitude(pool_, row_.data(), target.data(), kShape.rows, kShape.size, out_.data());

  for (int64_t row = 0; row < kShape.rows; ++row) {
    double own = 0, wanted = 0;
    for (int64_t i = 0; i < kShape.size; ++i) {
      own += double{row_[row * kShape.size + i]} * row_[row * kShape.size + i] / kShape.size;
      wanted += double{target[row * kShape.size + i]} * target[row * kShape.size + i] / kShape.size;
    }
    const double factor = std::sqrt(wanted / std::max(own, 1e-5));
    for (int64_t i = row * kShape.size; i < (row + 1) * kShape.size; ++i) {
      ASSERT_NEAR(out_[i], row_[i] * factor, 1e-5);
    }
  }
}

TEST_F(ResidualStreamsTest, ColumnsAreMultipliedByTheirWeights) {
  const Floats weight = RandomFloats(kShape.size, 5);

  MultiplyColumns(pool_, row_.data(), weight.data(), kShape.rows, kShape.size, out_.data());

  for (int64_t i = 0; i < kShape.rows * kShape.size; ++i) {
    ASSERT_EQ(out_[i], row_[i] * weight[i % kShape.size]);
  }
}

TEST_F(ResidualStreamsTest, GatesBelowTheCutoffAreZero) {
  const int64_t rows = 50, size = kWidth * kShape.rows / 100;

  CutGates(pool_, x_.data(), 0.5f, rows, size, out_.data());

  for (int64_t row = 0; row < rows; ++row) {
    const float* gates = x_.data() + row * 2 * size;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < size; ++i) mean += double{gates[i]} / size;
    for (int64_t i = 0; i < size; ++i) variance += std::pow(gates[i] - mean, 2) / size;
    const double cutoff = mean + 0.5 * std::sqrt(variance);
    for (int64_t i = 0; i < size; ++i) {
      ASSERT_NEAR(out_[row * 2 * size + i], std::max(gates[i] - cutoff, 0.0), 1e-5);
      ASSERT_EQ(out_[row * 2 * size + size + i], gates[size + i]);
    }
  }
}

}  // namespace
}  // namespace aiomlc
