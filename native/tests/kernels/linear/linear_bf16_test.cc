#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear/base/linear_kernels.h"
#include "kernels/linear/format/pack.h"
#include "kernels/linear/linear.h"
#include "platform/isa.h"
#include "tests/doubles/kernel_testing.h"

namespace aiomlc {
namespace {

using Floats = std::vector<float>;

constexpr int64_t kShapes[][2] = {{16, 32}, {1, 1}, {17, 31}, {63, 96}, {100, 70}, {7, 257}};
constexpr int64_t kBatches[] = {1, 2, 3, 5, 8, 15, 16, 17, 33, 130, 145};

float Rounded(float value) { return BFloat16ToFloat(FloatToBFloat16(value)); }

float Flushed(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
}

/*! \brief A bf16 layer, and its outputs by the definition of its arithmetic. */
class Layer {
 public:
  Layer(int64_t outputs, int64_t inputs, Floats weights, Floats x)
      : outputs_(outputs), inputs_(inputs), weights_(std::move(weights)), x_(std::move(x)) {
    packed_.assign(PackedMatrixBytes(WeightFormat::kBF16, outputs, inputs), 0xee);
    PackMatrixF32(WeightFormat::kBF16, weights_.data(), outputs, inputs, 0, outputs,
                  packed_.data());
  }

  int64_t rows() const { return static_cast<int64_t>(x_.size()) / inputs_; }

  Floats Multiply(int threads, int64_t first, int64_t count) const {
    ThreadPool pool(threads);
    Floats out(count * outputs_);
    Linear(pool, WeightFormat::kBF16, packed_.data(), outputs_, inputs_,
           x_.data() + first * inputs_, FloatType::kF32, count, nullptr, out.data(),
           FloatType::kF32);
    return out;
  }

  Floats Expected(int64_t first, int64_t count) const {
    Floats out;
    for (int64_t row = first; row < first + count; ++row) {
      for (int64_t n = 0; n < outputs_; ++n) out.push_back(Output(row, n));
    }
    return out;
  }

 private:
  /*! \return A chain of multiply-adds, the odd input of each pair first. */
  float Output(int64_t row, int64_t output) const {
    float sum = 0;
    for (int64_t k = 0; k < inputs_; k += 2) {
      for (const int64_t at : {k + 1, k}) {
        if (at >= inputs_) continue;
        const float x = Flushed(Rounded(x_[row * inputs_ + at]));
        sum = Flushed(std::fma(x, Flushed(Rounded(weights_[output * inputs_ + at])), sum));
      }
    }
    return sum;
  }

  int64_t outputs_, inputs_;
  Floats weights_, x_;
  std::vector<uint8_t> packed_;
};

/*! \brief The tiers whose sums are one chain: all but AMX. */
std::vector<Isa> ChainTiers() {
  std::vector<Isa> tiers = SupportedTiers();
  std::erase(tiers, Isa::kAmx);
  return tiers;
}

TEST(LinearBF16Test, EveryTierHasTheBitsOfTheDefinition) {
  for (const auto& [outputs, inputs] : kShapes) {
    const Layer layer(outputs, inputs, RandomFloats(outputs * inputs, 1, 0.05f),
                      RandomFloats(145 * inputs, 2, 3.0f));
    const Floats expected = layer.Expected(0, 145);
    for (const Isa isa : ChainTiers()) {
      const TierScope scope(isa);
      for (const int64_t count : kBatches) {
        for (const int threads : {1, 2}) {
          SCOPED_TRACE(std::string(IsaName(isa)) + " n " + std::to_string(outputs) + " k " +
                       std::to_string(inputs) + " m " + std::to_string(count));
          const int64_t first = 145 - count;
          ExpectSameBits(layer.Multiply(threads, first, count),
                         {expected.begin() + first * outputs, expected.end()});
        }
      }
    }
  }
}

TEST(LinearBF16Test, NumbersOfAllMagnitudesHaveTheBitsOfTheDefinition) {
  constexpr int64_t kOutputs = 35, kInputs = 66, kRowCount = 21;
  std::mt19937 random(3);
  const auto numbers = [&random](int64_t size) {
    Floats values(size);
    for (float& value : values) {
      // Exponents whose products are denormal, normal, and sometimes both in one sum.
      const auto exponent = static_cast<uint32_t>(random() % 10 == 0 ? 0 : 45 + random() % 30);
      const auto fraction = static_cast<uint32_t>(random()) & 0x807fffffu;
      value = std::bit_cast<float>(fraction | exponent << 23);
    }
    return values;
  };
  const Layer layer(kOutputs, kInputs, numbers(kOutputs * kInputs), numbers(kRowCount * kInputs));
  const Floats expected = layer.Expected(0, kRowCount);
  for (const Isa isa : ChainTiers()) {
    const TierScope scope(isa);
    SCOPED_TRACE(IsaName(isa));
    ExpectSameBits(layer.Multiply(1, 0, kRowCount), expected);
  }
}

TEST(LinearBF16Test, ActivationsAreRoundedToNearestEven) {
  // One input: the output is the rounded activation.
  Floats x = {1.0f, 1.00390625f, 1.01171875f, 1.0039063f, -1.0039063f, 3e38f, 0.0f};
  const auto count = static_cast<int64_t>(x.size());
  const Layer layer(1, 1, {1.0f}, x);
  for (const Isa isa : SupportedTiers()) {
    const TierScope scope(isa);
    const Floats out = layer.Multiply(1, 0, count);
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(out[i], Rounded(x[i])) << IsaName(isa) << x[i];
  }
}

TEST(LinearBF16Test, ANonFiniteRowDoesNotAffectOtherRows) {
  constexpr int64_t kOutputs = 40, kInputs = 70, kRowCount = 20;
  const Floats weights = RandomFloats(kOutputs * kInputs, 4);
  const Floats x = RandomFloats(kRowCount * kInputs, 5);
  // The upper half of the last number, a NaN, is infinity.
  for (const float value : {std::numeric_limits<float>::infinity(),
                            std::bit_cast<float>(0x7fc00000u), std::bit_cast<float>(0x7f800001u)}) {
    Floats changed = x;
    changed[2 * kInputs + 69] = value;
    const Layer finite(kOutputs, kInputs, weights, x);
    const Layer non_finite(kOutputs, kInputs, weights, changed);
    for (const Isa isa : SupportedTiers()) {
      const TierScope scope(isa);
      const Floats expected = finite.Multiply(1, 0, kRowCount);
      const Floats out = non_finite.Multiply(1, 0, kRowCount);
      for (int64_t i = 0; i < kRowCount * kOutputs; ++i) {
        if (i / kOutputs != 2) {
          ASSERT_EQ(out[i], expected[i]) << IsaName(isa);
        } else if (std::isnan(value)) {
          ASSERT_TRUE(std::isnan(out[i])) << IsaName(isa);
        } else {
          ASSERT_FALSE(std::isfinite(out[i])) << IsaName(isa);
        }
      }
    }
  }
}

#if defined(__x86_64__)
TEST(LinearBF16Test, Avx512WithoutItsBF16InstructionHasTheSameBits) {
  if (!HasAvx512BF16()) GTEST_SKIP() << "needs AVX512-BF16";
  constexpr int64_t kOutputs = 100, kInputs = 300, kRowCount = 37;
  constexpr int64_t kGroups = (kInputs + kGroupSize - 1) / kGroupSize;
  const Floats weights = RandomFloats(kOutputs * kInputs, 6),
               x = RandomFloats(kRowCount * kInputs, 7);
  std::vector<uint8_t> packed(PackedMatrixBytes(WeightFormat::kBF16, kOutputs, kInputs));
  PackMatrixF32(WeightFormat::kBF16, weights.data(), kOutputs, kInputs, 0, kOutputs, packed.data());
  std::vector<BF16Group> rounded(kRowCount * kGroups);
  kLinearAvx512.quantize_bf16({.x = x.data(),
                               .x_type = FloatType::kF32,
                               .rows = kRowCount,
                               .cols = kInputs,
                               .groups = kGroups,
                               .row_begin = 0,
                               .row_end = kRowCount,
                               .result = rounded.data()});
  const auto multiply = [&](void (*kernel)(const LinearBlock&)) {
    Floats out(kRowCount * kOutputs);
    LinearBlock block = {};
    block.packed = packed.data();
    block.num_outputs = block.out_stride = kOutputs;
    block.num_inputs = kInputs;
    block.tile_end = (kOutputs + kTileRows - 1) / kTileRows;
    block.row_end = kRowCount;
    block.bf16_rows = rounded.data();
    block.out = out.data();
    block.out_type = FloatType::kF32;
    kernel(block);
    return out;
  };
  ExpectSameBits(multiply(kBF16Avx512BF16), multiply(kLinearAvx512.bf16));
}
#endif

}  // namespace
}  // namespace aiomlc
