#include <gtest/gtest.h>

#include <algorithm>
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

using Bytes = std::vector<uint8_t>;

constexpr int64_t kShapes[][2] = {{16, 32}, {1, 1},     {17, 31},   {40, 96},  {100, 70},
                                  {7, 257}, {48, 1024}, {33, 1025}, {20, 2100}};
constexpr int64_t kBatches[] = {1, 15, 16, 17, 23, 24, 25, 31, 33, 64, 100, 128, 135, 150, 300};
constexpr std::pair<FloatType, bool> kOutputKinds[] = {{FloatType::kF32, false},
                                                       {FloatType::kF16, true}};

Bytes PackRandom(int64_t rows, int64_t cols, uint32_t seed) {
  const std::vector<float> weights = RandomFloats(rows * cols, seed, 0.05f);
  Bytes packed(PackedMatrixBytes(WeightFormat::kQ4, rows, cols));
  PackMatrixF32(WeightFormat::kQ4, weights.data(), rows, cols, 0, rows, packed.data());
  return packed;
}

/*! \brief A q4 layer with quantized activations. */
class Layer {
 public:
  Layer(int64_t outputs, int64_t inputs, int64_t rows)
      : Layer(outputs, inputs, RandomFloats(rows * inputs, 2, 3.0f)) {}

  Layer(int64_t outputs, int64_t inputs, const std::vector<float>& x)
      : outputs_(outputs),
        inputs_(inputs),
        rows_(static_cast<int64_t>(x.size()) / inputs),
        packed_(PackRandom(outputs, inputs, 1)),
        bias_(RandomFloats(outputs, 3)) {
    const int64_t groups = (inputs + kGroupSize - 1) / kGroupSize;
    // The exact size, so that a sanitizer detects reads after the end.
    activations_.resize(rows_ * groups);
    kLinearAvx512.quantize(
        {x.data(), FloatType::kF32, rows_, inputs, groups, 0, rows_, activations_.data()});
  }

  int64_t tiles() const { return (outputs_ + kTileRows - 1) / kTileRows; }

  /*! \return The output, computed in blocks of at most `block_tiles` by `block_rows`. */
  Bytes Multiply(void (*kernel)(const LinearBlock&), int64_t block_tiles, int64_t block_rows,
                 FloatType type = FloatType::kF32, bool biased = true) const {
    FloatTensor out(type, std::vector<float>(rows_ * outputs_ + 16, 1234.0f));
    LinearBlock block = {};
    block.packed = packed_.data();
    block.num_outputs = outputs_;
    block.out_stride = outputs_;
    block.num_inputs = inputs_;
    block.activations = activations_.data();
    block.bias = biased ? bias_.data() : nullptr;
    block.out = out.data();
    block.out_type = type;
    for (; block.tile_begin < tiles(); block.tile_begin = block.tile_end) {
      block.tile_end = std::min(tiles(), block.tile_begin + block_tiles);
      for (block.row_begin = 0; block.row_begin < rows_; block.row_begin = block.row_end) {
        block.row_end = std::min(rows_, block.row_begin + block_rows);
        kernel(block);
      }
    }
    return out.bytes();
  }

 private:
  int64_t outputs_, inputs_, rows_;
  Bytes packed_;
  std::vector<float> bias_;
  std::vector<ActivationGroup> activations_;
};

class LinearAmxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (SupportedIsa() < Isa::kAvx512) GTEST_SKIP() << "needs AVX-512";
  }
};

std::string Describe(int64_t outputs, int64_t inputs, int64_t rows) {
  return "n " + std::to_string(outputs) + " k " + std::to_string(inputs) + " m " +
         std::to_string(rows);
}

TEST_F(LinearAmxTest, SoftwareTilesHaveTheBitsOfAvx512) {
  for (const auto& [outputs, inputs] : kShapes) {
    for (const int64_t rows : kBatches) {
      SCOPED_TRACE(Describe(outputs, inputs, rows));
      const Layer layer(outputs, inputs, rows);
      for (const auto& [type, biased] : kOutputKinds) {
        ASSERT_EQ(layer.Multiply(Q4OnSoftwareTiles, layer.tiles(), rows, type, biased),
                  layer.Multiply(kLinearAvx512.q4, layer.tiles(), rows, type, biased));
      }
    }
  }
}

TEST_F(LinearAmxTest, SoftwareTilesHaveTheSameBitsForAnyDivisionIntoBlocks) {
  constexpr int64_t kRowCount = 200;
  const Layer layer(100, 1100, kRowCount);
  const Bytes expected = layer.Multiply(kLinearAvx512.q4, layer.tiles(), kRowCount);
  for (const int64_t tiles : {1, 2, 3, 7}) {
    for (const int64_t rows : {16, 32, 80, 144, 208}) {
      SCOPED_TRACE(std::to_string(tiles) + " tiles, " + std::to_string(rows) + " rows");
      EXPECT_EQ(layer.Multiply(Q4OnSoftwareTiles, tiles, rows), expected);
    }
  }
}

TEST_F(LinearAmxTest, NonFiniteRowsAndTinyScalesHaveTheBitsOfAvx512) {
  constexpr int64_t kRowCount = 28, kInputs = 96;
  std::vector<float> x = RandomFloats(kRowCount * kInputs, 4);
  x[3 * kInputs + 40] = std::numeric_limits<float>::quiet_NaN();
  x[20 * kInputs + 1] = std::numeric_limits<float>::infinity();
  std::fill_n(&x[5 * kInputs], kInputs, 0.0f);
  std::fill_n(&x[6 * kInputs], kInputs, -0.0f);
  std::fill_n(&x[27 * kInputs], kInputs, 1e-42f);
  const Layer layer(48, kInputs, x);

  EXPECT_EQ(layer.Multiply(Q4OnSoftwareTiles, 3, kRowCount),
            layer.Multiply(kLinearAvx512.q4, 3, kRowCount));
}

TEST_F(LinearAmxTest, HardwareTilesHaveTheBitsOfAvx512) {
  if (!AmxTrialResult().q4) GTEST_SKIP() << "needs AMX int8";
  for (const auto& [outputs, inputs] : kShapes) {
    for (const int64_t rows : kBatches) {
      SCOPED_TRACE(Describe(outputs, inputs, rows));
      const Layer layer(outputs, inputs, rows);
      for (const auto& [type, biased] : kOutputKinds) {
        ASSERT_EQ(layer.Multiply(kQ4Amx, layer.tiles(), rows, type, biased),
                  layer.Multiply(kLinearAvx512.q4, layer.tiles(), rows, type, biased));
      }
    }
  }
}

TEST_F(LinearAmxTest, LinearOnTheAmxTierHasTheBitsOfAvx512OnAnyNumberOfThreads) {
  if (!AmxTrialResult().q4) GTEST_SKIP() << "needs AMX int8";
  constexpr int64_t kOutputs = 260, kInputs = 520;
  const Bytes packed = PackRandom(kOutputs, kInputs, 5);
  for (const int64_t rows : kBatches) {
    const std::vector<float> x = RandomFloats(rows * kInputs, 6);
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(threads) + " threads");
      ThreadPool pool(threads);
      std::vector<float> out[2];
      for (const Isa isa : {Isa::kAvx512, Isa::kAmx}) {
        const TierScope scope(isa);
        std::vector<float>& result = out[isa == Isa::kAmx];
        result.resize(rows * kOutputs);
        Linear(pool, WeightFormat::kQ4, packed.data(), kOutputs, kInputs, x.data(), FloatType::kF32,
               rows, nullptr, result.data(), FloatType::kF32);
      }
      EXPECT_EQ(std::memcmp(out[0].data(), out[1].data(), out[0].size() * sizeof(float)), 0);
    }
  }
}

void WrongInOneBit(const LinearBlock& block) {
  kLinearAvx512.q4(block);
  static_cast<uint32_t*>(block.out)[17] ^= 1;
}

TEST_F(LinearAmxTest, TheTrialDetectsOneWrongBit) {
  EXPECT_TRUE(EqualsAvx512(Q4OnSoftwareTiles));
  EXPECT_FALSE(EqualsAvx512(WrongInOneBit));
}

}  // namespace
}  // namespace aiomlc

#endif  // defined(__x86_64__)
