#include "weights/group_quantizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "platform/float_types.h"

namespace aiomlc {
namespace {

constexpr GroupFormat kFormats[] = {
    {4, 32, ModelDtype::kF16}, {4, 32, ModelDtype::kBF16}, {4, 32, ModelDtype::kF32},
    {3, 40, ModelDtype::kF16}, {3, 40, ModelDtype::kBF16}, {3, 40, ModelDtype::kF32},
};

struct Quantized {
  std::vector<uint32_t> words;
  std::vector<std::byte> scales;
};

Quantized QuantizeAll(const GroupFormat& format, const std::vector<float>& weights, int64_t rows,
                      bool search) {
  const int64_t cols = static_cast<int64_t>(weights.size()) / rows;
  const size_t scale_bytes = format.dtype == ModelDtype::kF32 ? 4 : 2;
  Quantized result;
  result.words.resize(static_cast<size_t>(rows * format.words(cols)));
  result.scales.resize(static_cast<size_t>(rows * format.groups(cols)) * scale_bytes);
  if (search) {
    const std::vector<float> importance(static_cast<size_t>(cols), 1.0f);
    SearchGroups(format, weights.data(), rows, cols, importance.data(), result.words.data(),
                 result.scales.data());
  } else {
    QuantizeGroups(format, weights.data(), rows, cols, result.words.data(), result.scales.data());
  }
  return result;
}

float ScaleAt(const GroupFormat& format, const Quantized& result, int64_t index) {
  if (format.dtype == ModelDtype::kF32) {
    float value;
    std::memcpy(&value, result.scales.data() + 4 * index, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, result.scales.data() + 2 * index, sizeof(bits));
  return format.dtype == ModelDtype::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
}

float WeightAt(const GroupFormat& format, const Quantized& result, int64_t cols, int64_t row,
               int64_t col) {
  const int64_t per_word = format.values_per_word();
  const uint32_t word =
      result.words[static_cast<size_t>(row * format.words(cols) + col / per_word)];
  const uint32_t value = (word >> (col % per_word * format.bits)) & ((1u << format.bits) - 1);
  const int zero = (1 << (format.bits - 1)) - 1;
  const float scale = ScaleAt(format, result, row * format.groups(cols) + col / format.group_size);
  return static_cast<float>(static_cast<int>(value) - zero) * scale;
}

TEST(GroupQuantizer, LevelsOfAPowerOfTwoAreExact) {
  for (const GroupFormat& format : kFormats) {
    for (const bool search : {false, true}) {
      const int zero = (1 << (format.bits - 1)) - 1;
      constexpr int64_t kCols = 75;  // The last group is partial.
      std::vector<float> weights;
      for (int64_t i = 0; i < 3 * kCols; ++i) {
        weights.push_back(static_cast<float>(i % (2 * zero + 1) - zero) * 0.125f);
      }

      const Quantized result = QuantizeAll(format, weights, 3, search);

      for (int64_t i = 0; i < 3 * kCols; ++i) {
        EXPECT_EQ(WeightAt(format, result, kCols, i / kCols, i % kCols),
                  weights[static_cast<size_t>(i)]);
      }
    }
  }
}

TEST(GroupQuantizer, ValuesAfterTheLastColumnAreZero) {
  const std::vector<float> weights(5, 1.0f);

  const Quantized result = QuantizeAll(kFormats[0], weights, 1, false);

  EXPECT_EQ(result.words, (std::vector<uint32_t>{0xeeeee, 0, 0, 0}));
}

TEST(GroupQuantizer, ZeroWeightsAreStoredAsZero) {
  for (const GroupFormat& format : kFormats) {
    for (const bool search : {false, true}) {
      const Quantized result = QuantizeAll(format, std::vector<float>(40, 0.0f), 1, search);

      EXPECT_EQ(ScaleAt(format, result, 0), 0.0f);
      EXPECT_EQ(WeightAt(format, result, 40, 0, 7), 0.0f);
    }
  }
}

TEST(GroupQuantizer, TheSearchUsesTheLevelThatTheDefaultLeavesOut) {
  // -8 levels fit if the scale is negative.
  std::vector<float> weights;
  for (int i = 0; i < 32; ++i) weights.push_back(static_cast<float>(i % 16 - 8));

  const Quantized result = QuantizeAll(kFormats[0], weights, 1, true);

  EXPECT_EQ(ScaleAt(kFormats[0], result, 0), -1.0f);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(WeightAt(kFormats[0], result, 32, 0, i), weights[i]);
}

TEST(GroupQuantizer, TheRangeIsThatOfTheDtype) {
  const float largest_half = 65519.0f;
  const float half_overflow = 65520.0f;
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");

  EXPECT_TRUE(FitsDtype(ModelDtype::kF16, &largest_half, 1));
  EXPECT_FALSE(FitsDtype(ModelDtype::kF16, &half_overflow, 1));
  EXPECT_TRUE(FitsDtype(ModelDtype::kBF16, &half_overflow, 1));
  for (const ModelDtype dtype : {ModelDtype::kF16, ModelDtype::kBF16, ModelDtype::kF32}) {
    EXPECT_FALSE(FitsDtype(dtype, &infinity, 1));
    EXPECT_FALSE(FitsDtype(dtype, &nan, 1));
  }
}

TEST(GroupQuantizer, BytesHaveAScalePerGroupAndTheLastGroupMayBeShort) {
  std::vector<float> weights(40, 0.0f);
  weights[0] = -2.54f;
  weights[1] = 0.025f;  // 1.25 of its scale.
  weights[33] = 63.5f;
  weights[34] = -0.25f;  // Half of its scale, which is rounded away from zero.
  std::vector<uint8_t> codes(weights.size());
  uint16_t scales[2];

  QuantizeBytes(weights.data(), 40, codes.data(), reinterpret_cast<uint8_t*>(scales));

  EXPECT_EQ(scales[0], FloatToHalf(2.54f / 127));
  EXPECT_EQ(scales[1], FloatToHalf(0.5f));
  EXPECT_EQ(codes[0], 128 - 127);
  EXPECT_EQ(codes[1], 128 + 1);
  EXPECT_EQ(codes[2], 128);
  EXPECT_EQ(codes[33], 128 + 127);
  EXPECT_EQ(codes[34], 128 - 1);
}

}  // namespace
}  // namespace aiomlc
