#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear/amx_support.h"
#include "kernels/linear/format/pack.h"
#include "kernels/linear/linear.h"
#include "platform/isa.h"
#include "tests/doubles/kernel_testing.h"
#include "tests/doubles/software_tiles.h"

#if defined(__x86_64__)

namespace aiomlc {
namespace {

using Floats = std::vector<float>;
using Kernel = void (*)(const LinearBlock&);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kShapes[][2] = {{16, 32}, {1, 1},   {17, 31},  {40, 96},  {100, 70},
                                  {7, 257}, {33, 33}, {48, 515}, {20, 2100}};
constexpr int64_t kBatches[] = {1, 2, 5, 6, 15, 16, 17, 21, 22, 33, 64, 65, 81, 130};
// Relative to the sum of the absolute terms; linear_test.cc allows 2e-6 for float weights.
constexpr double kTolerance = 5e-7;

int64_t GroupsOf(int64_t cols) { return (cols + kGroupSize - 1) / kGroupSize; }

/*! \brief A layer of bf16 weights with activations that bf16 represents. */
class Layer {
 public:
  Layer(int64_t outputs, int64_t inputs, int64_t rows)
      : Layer(outputs, inputs, RandomFloats(outputs * inputs, 1, 0.05f),
              RandomFloats(rows * inputs, 2, 3.0f)) {}

  Layer(int64_t outputs, int64_t inputs, Floats weights, Floats x)
      : outputs_(outputs),
        inputs_(inputs),
        rows_(static_cast<int64_t>(x.size()) / inputs),
        x_(std::move(x)),
        weights_(std::move(weights)),
        bias_(RandomFloats(outputs, 3)) {
    for (float& weight : weights_) weight = BFloat16ToFloat(FloatToBFloat16(weight));
    for (float& value : x_) value = BFloat16ToFloat(FloatToBFloat16(value));
    // The exact size, so that a sanitizer detects reads after the end.
    packed_.resize(PackedMatrixBytes(WeightFormat::kBF16, outputs, inputs));
    PackMatrixF32(WeightFormat::kBF16, weights_.data(), outputs, inputs, 0, outputs,
                  packed_.data());
  }

  int64_t tiles() const { return (outputs_ + kTileRows - 1) / kTileRows; }
  int64_t rows() const { return rows_; }
  int64_t outputs() const { return outputs_; }

  /*!
   * \return The output of rows [first, first + count), computed in blocks of at most `block_tiles`
   * by `block_rows`.
   */
  std::vector<uint8_t> Multiply(Kernel kernel, int64_t first, int64_t count, int64_t block_tiles,
                                int64_t block_rows, FloatType type = FloatType::kF32,
                                bool biased = true) const {
    std::vector<BF16Group> rounded(count * GroupsOf(inputs_));
    kLinearAvx512.quantize_bf16({.x = x_.data() + first * inputs_,
                                 .x_type = FloatType::kF32,
                                 .rows = count,
                                 .cols = inputs_,
                                 .groups = GroupsOf(inputs_),
                                 .row_begin = 0,
                                 .row_end = count,
                                 .result = rounded.data()});
    FloatTensor out(type, Floats(count * outputs_ + 16, 1234.0f));
    LinearBlock block = {};
    block.packed = packed_.data();
    block.num_outputs = outputs_;
    block.out_stride = outputs_;
    block.num_inputs = inputs_;
    block.bf16_rows = rounded.data();
    block.bias = biased ? bias_.data() : nullptr;
    block.out = out.data();
    block.out_type = type;
    for (; block.tile_begin < tiles(); block.tile_begin = block.tile_end) {
      block.tile_end = std::min(tiles(), block.tile_begin + block_tiles);
      for (block.row_begin = 0; block.row_begin < count; block.row_begin = block.row_end) {
        block.row_end = std::min(count, block.row_begin + block_rows);
        kernel(block);
      }
    }
    for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(out[count * outputs_ + i], 1234.0f);
    return out.Slice(0, count * outputs_);
  }

  Floats Multiply(Kernel kernel) const {
    const std::vector<uint8_t> bytes = Multiply(kernel, 0, rows_, tiles(), rows_);
    Floats floats(bytes.size() / sizeof(float));
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    return floats;
  }

  /*! \return The largest error of an output, relative to the sum of its absolute terms. */
  double Error(const Floats& out) const {
    double largest = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t n = 0; n < outputs_; ++n) {
        double exact = bias_[n], magnitude = std::fabs(exact);
        for (int64_t k = 0; k < inputs_; ++k) {
          const double term = double{x_[row * inputs_ + k]} * weights_[n * inputs_ + k];
          exact += term;
          magnitude += std::fabs(term);
        }
        const double error = std::fabs(out[row * outputs_ + n] - exact) / magnitude;
        if (!(error <= largest)) largest = error;  // Also if the error is NaN.
      }
    }
    return largest;
  }

 private:
  int64_t outputs_, inputs_, rows_;
  Floats x_, weights_, bias_;
  std::vector<uint8_t> packed_;
};

struct NamedKernel {
  const char* name;
  Kernel kernel;
};

/*! \brief Kernels on software tiles, and on hardware tiles if the processor has them. */
class LinearAmxBF16Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (SupportedIsa() < Isa::kAvx512) GTEST_SKIP() << "needs AVX-512";
    if (AmxTrialResult().bf16) kernels_.push_back({"hardware", kBF16Amx});
  }

  std::vector<NamedKernel> kernels_ = {{"manual", BF16OnSoftwareTiles},
                                       {"sequential", BF16OnSequentialTiles}};
};

std::string Describe(const char* name, const Layer& layer) {
  return std::string(name) + " n " + std::to_string(layer.outputs()) + " m " +
         std::to_string(layer.rows());
}

TEST_F(LinearAmxBF16Test, OutputsAreMoreAccurateThanOtherTiersMustBe) {
  for (const auto& [outputs, inputs] : kShapes) {
    for (const int64_t rows : {1, 5, 7, 16, 35}) {
      const Layer layer(outputs, inputs, rows);
      for (const auto& [name, kernel] : kernels_) {
        EXPECT_LE(layer.Error(layer.Multiply(kernel)), kTolerance)
            << Describe(name, layer) << " k " << inputs;
      }
    }
  }
}

TEST_F(LinearAmxBF16Test, ARowHasTheSameBitsAloneAndInAnyBatch) {
  for (const auto& [outputs, inputs] : kShapes) {
    const Layer layer(outputs, inputs, 140);
    for (const auto& [name, kernel] : kernels_) {
      const Floats all = layer.Multiply(kernel);
      for (const int64_t count : kBatches) {
        SCOPED_TRACE(Describe(name, layer) + " of " + std::to_string(count));
        const int64_t first = 140 - count;
        const std::vector<uint8_t> part =
            layer.Multiply(kernel, first, count, layer.tiles(), count);
        ASSERT_EQ(std::memcmp(part.data(), all.data() + first * outputs, part.size()), 0);
      }
    }
  }
}

TEST_F(LinearAmxBF16Test, HasTheSameBitsForAnyDivisionIntoBlocks) {
  const Layer layer(100, 300, 139);
  for (const auto& [name, kernel] : kernels_) {
    for (const FloatType type : {FloatType::kF32, FloatType::kF16}) {
      const auto expected = layer.Multiply(kernel, 0, 139, layer.tiles(), 139, type);
      for (const int64_t tiles : {1, 2, 3, 4}) {
        for (const int64_t rows : {16, 48, 64, 80}) {
          EXPECT_EQ(layer.Multiply(kernel, 0, 139, tiles, rows, type), expected)
              << name << " " << tiles << " tiles, " << rows << " rows";
        }
      }
    }
  }
}

TEST_F(LinearAmxBF16Test, ANonFiniteRowDoesNotAffectOtherRows) {
  constexpr int64_t kOutputs = 40, kInputs = 70;
  const Floats weights = RandomFloats(kOutputs * kInputs, 6);
  for (const float value : {kNan, kInfinity, -kInfinity, std::bit_cast<float>(0x7f800001u)}) {
    for (const int64_t rows : {3, 9, 20}) {
      Floats x = RandomFloats(rows * kInputs, 7);
      const Layer finite(kOutputs, kInputs, weights, x);
      x[2 * kInputs + 69] = value;
      const Layer non_finite(kOutputs, kInputs, weights, x);
      for (const auto& [name, kernel] : kernels_) {
        SCOPED_TRACE(Describe(name, non_finite));
        const Floats expected = finite.Multiply(kernel), out = non_finite.Multiply(kernel);
        for (int64_t i = 0; i < rows * kOutputs; ++i) {
          if (i / kOutputs != 2) {
            ASSERT_EQ(out[i], expected[i]);
          } else if (std::isnan(value)) {
            ASSERT_TRUE(std::isnan(out[i]));
          } else {
            const float weight = weights[i % kOutputs * kInputs + 69];
            ASSERT_EQ(out[i], std::copysign(kInfinity, weight * value)) << weight;
          }
        }
      }
    }
  }
}

TEST_F(LinearAmxBF16Test, ANonFiniteWeightDoesNotAffectOtherOutputs) {
  constexpr int64_t kOutputs = 40, kInputs = 70, kRowCount = 7;
  const Floats x = RandomFloats(kRowCount * kInputs, 8);
  Floats weights = RandomFloats(kOutputs * kInputs, 9);
  const Layer finite(kOutputs, kInputs, weights, x);
  for (const float value : {kNan, kInfinity}) {
    weights[18 * kInputs + 33] = value;
    const Layer non_finite(kOutputs, kInputs, weights, x);
    for (const auto& [name, kernel] : kernels_) {
      const Floats expected = finite.Multiply(kernel), out = non_finite.Multiply(kernel);
      for (int64_t i = 0; i < kRowCount * kOutputs; ++i) {
        if (i % kOutputs == 18) {
          ASSERT_FALSE(std::isfinite(out[i])) << name;
        } else {
          ASSERT_EQ(out[i], expected[i]) << name;
        }
      }
    }
  }
}

TEST_F(LinearAmxBF16Test, SubnormalNumbersCountAsZero) {
  constexpr float kTiny = 0x1p-130f;
  for (const auto& [name, kernel] : kernels_) {
    for (const auto& [weight, x] : {std::pair(kTiny, 1e10f), std::pair(1e10f, kTiny)}) {
      const Layer layer(1, 1, {weight}, {x});
      const std::vector<uint8_t> out = layer.Multiply(kernel, 0, 1, 1, 1, FloatType::kF32, false);
      EXPECT_EQ(out, std::vector<uint8_t>(sizeof(float), 0)) << name;
    }
  }
}

void SlightlyWrong(const LinearBlock& block) {
  BF16OnSoftwareTiles(block);
  static_cast<float*>(block.out)[17] *= 1.001f;
}

/*! \brief Leave out the last input of every group. */
void WithoutLastInputs(const LinearBlock& block) {
  std::vector<BF16Group> rows(block.bf16_rows,
                              block.bf16_rows + block.row_end * GroupsOf(block.num_inputs));
  for (BF16Group& group : rows) group.values[kGroupSize - 1] = 0;
  LinearBlock without = block;
  without.bf16_rows = rows.data();
  BF16OnSoftwareTiles(without);
}

/*! \brief Use another order of addition for a few rows. */
void OtherOrderForFewRows(const LinearBlock& block) {
  (block.row_end <= 5 ? BF16OnSequentialTiles : BF16OnSoftwareTiles)(block);
}

TEST_F(LinearAmxBF16Test, TheTrialDetectsWrongKernels) {
  for (const auto& [name, kernel] : kernels_) EXPECT_TRUE(NearAvx512(kernel)) << name;
  EXPECT_FALSE(NearAvx512(SlightlyWrong));
  EXPECT_FALSE(NearAvx512(WithoutLastInputs));
  EXPECT_FALSE(NearAvx512(OtherOrderForFewRows));
}

TEST_F(LinearAmxBF16Test, AKernelIsUsedIfItIsSupportedAndCorrect) {
  const Kernel q4 = Q4OnSoftwareTiles, grouped = GroupedOnSoftwareTiles;
  const Kernel channel = ChannelOnSoftwareTiles, bf16 = BF16OnSoftwareTiles;
  for (const bool supports_q4 : {false, true}) {
    for (const bool supports_bf16 : {false, true}) {
      const AmxTrial trial = TryKernels({supports_q4, supports_bf16}, {q4, grouped, channel, bf16});
      EXPECT_EQ(trial.q4, supports_q4);
      EXPECT_EQ(trial.grouped, supports_q4);
      EXPECT_EQ(trial.channel, supports_q4);
      EXPECT_EQ(trial.bf16, supports_bf16);
      EXPECT_TRUE(trial.rejected.empty());
    }
  }

  const AmxTrial trial = TryKernels({true, true}, {q4, grouped, channel, WithoutLastInputs});

  EXPECT_TRUE(trial.q4);
  EXPECT_FALSE(trial.bf16);
  EXPECT_EQ(trial.rejected, std::vector<std::string>{"bf16"});
}

TEST_F(LinearAmxBF16Test, LinearOnTheAmxTierHasTheBitsOfTheKernelOnAnyNumberOfThreads) {
  if (!AmxTrialResult().bf16) GTEST_SKIP() << "needs AMX bf16";
  constexpr int64_t kOutputs = 260, kInputs = 520;
  const Floats weights = RandomFloats(kOutputs * kInputs, 12, 0.05f);
  std::vector<uint8_t> packed(PackedMatrixBytes(WeightFormat::kBF16, kOutputs, kInputs));
  PackMatrixF32(WeightFormat::kBF16, weights.data(), kOutputs, kInputs, 0, kOutputs, packed.data());
  const TierScope scope(Isa::kAmx);
  for (const int64_t rows : kBatches) {
    const Floats x = RandomFloats(rows * kInputs, 13);
    const Layer layer(kOutputs, kInputs, weights, x);
    const auto expected =
        layer.Multiply(kBF16Amx, 0, rows, layer.tiles(), rows, FloatType::kF32, false);
    for (const int threads : {1, 2}) {
      ThreadPool pool(threads);
      Floats out(rows * kOutputs);
      Linear(pool, WeightFormat::kBF16, packed.data(), kOutputs, kInputs, x.data(), FloatType::kF32,
             rows, nullptr, out.data(), FloatType::kF32);
      EXPECT_EQ(std::memcmp(out.data(), expected.data(), expected.size()), 0)
          << rows << " rows, " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace aiomlc

#endif  // defined(__x86_64__)
