#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "kernels/linear/amx_support.h"
#include "kernels/linear/linear.h"
#include "platform/isa.h"
#include "tests/doubles/grouped_matrix.h"
#include "tests/doubles/kernel_testing.h"
#include "tests/doubles/software_tiles.h"

#if defined(__x86_64__)

namespace aiomlc {
namespace {

using Bytes = std::vector<uint8_t>;
using Kernel = void (*)(const LinearBlock&);

constexpr int64_t kShapes[][2] = {{16, 32}, {17, 31}, {40, 96}, {20, 257}, {33, 520}};
constexpr int64_t kBatches[] = {1, 15, 16, 23, 24, 25, 31, 128, 135, 150};

/*! \brief A layer in a grouped format with quantized activations. */
class Layer {
 public:
  Layer(MatrixFormat format, int64_t outputs, int64_t inputs, const std::vector<float>& x)
      : format_(format),
        outputs_(outputs),
        inputs_(inputs),
        rows_(static_cast<int64_t>(x.size()) / inputs),
        packed_(GroupedMatrix(format, outputs, inputs, 1).Pack()) {
    const int64_t groups = (inputs + kGroupSize - 1) / kGroupSize;
    // The exact size, so that a sanitizer detects reads after the end.
    biased_.resize(rows_ * groups);
    signed_.resize(rows_ * groups);
    QuantizeBlock rows = {x.data(), FloatType::kF32, rows_, inputs, groups, 0, rows_, nullptr};
    rows.result = biased_.data();
    kLinearAvx512.quantize_biased(rows);
    rows.result = signed_.data();
    QuantizeSignedAvx512(rows);
  }

  /*! \return The output, computed from `BiasedGroup` in blocks of at most `block_rows`. */
  Bytes Multiply(Kernel kernel, int64_t block_rows) const {
    LinearBlock block = {};
    block.biased = biased_.data();
    return Multiply(kernel, block_rows, block);
  }

  /*! \return The same, computed from `SignedGroup`. */
  Bytes MultiplySigned(Kernel kernel, int64_t block_rows) const {
    LinearBlock block = {};
    block.signed_groups = signed_.data();
    return Multiply(kernel, block_rows, block);
  }

 private:
  /*! \param block Its activations are used. */
  Bytes Multiply(Kernel kernel, int64_t block_rows, LinearBlock block) const {
    FloatTensor out(FloatType::kF32, std::vector<float>(rows_ * outputs_ + 16, 1234.0f));
    block.packed = packed_.data();
    block.tile = GroupedTileOf(format_);
    block.num_outputs = outputs_;
    block.out_stride = outputs_;
    block.num_inputs = inputs_;
    block.tile_end = (outputs_ + kTileRows - 1) / kTileRows;
    block.out = out.data();
    block.out_type = FloatType::kF32;
    for (block.row_begin = 0; block.row_begin < rows_; block.row_begin = block.row_end) {
      block.row_end = std::min(rows_, block.row_begin + block_rows);
      kernel(block);
    }
    return out.bytes();
  }

  MatrixFormat format_;
  int64_t outputs_, inputs_, rows_;
  Bytes packed_;
  std::vector<BiasedGroup> biased_;
  std::vector<SignedGroup> signed_;
};

class GroupedAmxTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (SupportedIsa() < Isa::kAvx512) GTEST_SKIP() << "needs AVX-512";
  }
  static MatrixFormat Format() { return MatrixFormat::Parse(GetParam()); }
  /*! \return Whether the kernel reads `SignedGroup`. */
  static bool ReadsSigned() {
    return Format().code == CodeType::kUnsigned && GroupedTileOf(Format()).parts == 1;
  }
};

TEST_P(GroupedAmxTest, TilesHaveTheBitsOfAvx512) {
  for (const auto& [outputs, inputs] : kShapes) {
    for (const int64_t rows : kBatches) {
      SCOPED_TRACE(std::to_string(outputs) + "x" + std::to_string(inputs) + ", " +
                   std::to_string(rows) + " rows");
      const Layer layer(Format(), outputs, inputs, RandomFloats(rows * inputs, 2, 3.0f));
      const Bytes expected = layer.Multiply(GroupedAvx512, rows);
      ASSERT_EQ(layer.Multiply(GroupedOnSoftwareTiles, rows), expected);
      ASSERT_EQ(layer.Multiply(GroupedOnSoftwareTiles, 48), expected);
      if (AmxTrialResult().grouped) {
        ASSERT_EQ(layer.Multiply(kGroupedAmx, rows), expected);
      }
      if (!ReadsSigned()) continue;
      ASSERT_EQ(layer.MultiplySigned(GroupedOnSoftwareTiles, rows), expected);
      ASSERT_EQ(layer.MultiplySigned(GroupedOnSoftwareTiles, 48), expected);
      if (AmxTrialResult().grouped) {
        ASSERT_EQ(layer.MultiplySigned(kGroupedAmx, rows), expected);
      }
    }
  }
}

TEST_P(GroupedAmxTest, NonFiniteRowsHaveTheBitsOfAvx512) {
  constexpr int64_t kRowCount = 28, kInputs = 96;
  std::vector<float> x = RandomFloats(kRowCount * kInputs, 4);
  x[3 * kInputs + 40] = std::numeric_limits<float>::quiet_NaN();
  x[20 * kInputs + 1] = std::numeric_limits<float>::infinity();
  std::fill_n(&x[27 * kInputs], kInputs, 1e-42f);
  const Layer layer(Format(), 48, kInputs, x);

  const Bytes expected = layer.Multiply(GroupedAvx512, kRowCount);
  EXPECT_EQ(layer.Multiply(GroupedOnSoftwareTiles, kRowCount), expected);
  if (ReadsSigned()) {
    EXPECT_EQ(layer.MultiplySigned(GroupedOnSoftwareTiles, kRowCount), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GroupedAmxTest,
                         ::testing::Values("u4g32f16z8", "u4g128f16zp", "u4g32k8m", "u8g32f16z128",
                                           "u8g32f32m", "u5g32k8m", "u2g64f16z1", "u3g128f32m",
                                           "e2m1g32bf16", "iq4nlg32f16",
                                           // Several scales per chunk, which AVX-512 multiplies.
                                           "u6g16k8sz32", "u3g8f16z3"),
                         [](const auto& info) { return std::string(info.param); });

void WrongInOneBit(const LinearBlock& block) {
  GroupedAvx512(block);
  static_cast<uint32_t*>(block.out)[17] ^= 1;
}

void WrongWithSignedRows(const LinearBlock& block) {
  GroupedOnSoftwareTiles(block);
  if (block.signed_groups != nullptr) static_cast<uint32_t*>(block.out)[17] ^= 1;
}

TEST(GroupedAmxTrial, DetectsOneWrongBit) {
  if (SupportedIsa() < Isa::kAvx512) GTEST_SKIP() << "needs AVX-512";
  EXPECT_TRUE(GroupedEqualsAvx512(GroupedOnSoftwareTiles));
  EXPECT_FALSE(GroupedEqualsAvx512(WrongInOneBit));
  EXPECT_FALSE(GroupedEqualsAvx512(WrongWithSignedRows));
  const AmxTrial trial = TryKernels({true, true}, {Q4OnSoftwareTiles, WrongInOneBit,
                                                   ChannelOnSoftwareTiles, BF16OnSoftwareTiles});
  EXPECT_EQ(trial.rejected, std::vector<std::string>{"grouped"});
}

}  // namespace
}  // namespace aiomlc

#endif  // defined(__x86_64__)
