#include "kernels/linear/amx_support.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/linear/channel/channel_kernels.h"
#include "kernels/linear/format/pack.h"
#include "kernels/linear/format/panel.h"

namespace aiomlc {

#if defined(__x86_64__)

namespace {

/*! \brief A q4 layer of two tiles and three groups, and a full panel and a panel of 9 rows. */
struct SmallQ4Layer {
  static constexpr int64_t kOutputs = 30, kInputs = 96, kRowCount = 25;
  static constexpr int64_t kGroups = kInputs / kGroupSize;

  std::vector<uint8_t> packed = std::vector<uint8_t>(2 * kGroups * kGroupBytes);
  std::vector<ActivationGroup> activations = std::vector<ActivationGroup>(kRowCount * kGroups);

  SmallQ4Layer() {
    std::minstd_rand random(1);
    for (uint8_t& byte : packed) byte = static_cast<uint8_t>(random() >> 8);
    for (int64_t group = 0; group < 2 * kGroups; ++group) {
      for (int64_t row = 0; row < kTileRows; ++row) {
        const auto scale =
            static_cast<uint16_t>(0x2800 + random() % 0x400);  // Halves from 1/32 to 1/16.
        std::memcpy(&packed[group * kGroupBytes + kGroupNibbleBytes + 2 * row], &scale,
                    sizeof(scale));
      }
    }
    for (ActivationGroup& group : activations) {
      int sum = 0;
      for (int8_t& value : group.values) {
        value = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
        sum += value;
      }
      group.scale = static_cast<float>(random() % 1000) / 7000.0f;
      group.offset = -kZeroPoint * sum;
    }
  }

  std::vector<float> Multiply(void (*kernel)(const LinearBlock&)) const {
    std::vector<float> out(kRowCount * kOutputs);
    LinearBlock block = {};
    block.packed = packed.data();
    block.num_outputs = kOutputs;
    block.out_stride = kOutputs;
    block.num_inputs = kInputs;
    block.tile_end = 2;
    block.row_end = kRowCount;
    block.activations = activations.data();
    block.out = out.data();
    block.out_type = FloatType::kF32;
    kernel(block);
    return out;
  }
};

/*! \brief A layer in a grouped format, of the same size. */
struct SmallGroupedLayer {
  static constexpr int64_t kOutputs = 30, kInputs = 96, kRowCount = 25;

  MatrixFormat format;
  std::vector<uint8_t> packed = std::vector<uint8_t>(PackedMatrixBytes(format, kOutputs, kInputs));
  std::vector<BiasedGroup> activations = std::vector<BiasedGroup>(kRowCount * kInputs / kGroupSize);
  std::vector<SignedGroup> signed_groups = std::vector<SignedGroup>(activations.size());

  explicit SmallGroupedLayer(const char* name) : format(MatrixFormat::Parse(name)) {
    std::minstd_rand random(1);
    std::vector<uint8_t> codes(kOutputs * kInputs);
    std::vector<float> numbers(kOutputs * kInputs / format.group);
    std::vector<float> x(kRowCount * kInputs);
    for (uint8_t& code : codes) code = static_cast<uint8_t>((random() >> 8) % (1u << format.bits));
    for (float& number : numbers) number = static_cast<float>(random() % 1000) / 7000.0f;
    for (float& value : x) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    PackGrouped(format,
                {.rows = kOutputs,
                 .cols = kInputs,
                 .codes = codes.data(),
                 .scales = numbers.data(),
                 .zeros = numbers.data()},
                packed.data());
    QuantizeBlock rows = {.x = x.data(),
                          .x_type = FloatType::kF32,
                          .rows = kRowCount,
                          .cols = kInputs,
                          .groups = kInputs / kGroupSize,
                          .row_begin = 0,
                          .row_end = kRowCount,
                          .result = activations.data()};
    kLinearAvx512.quantize_biased(rows);
    rows.result = signed_groups.data();
    QuantizeSignedAvx512(rows);
  }

  std::vector<float> Multiply(void (*kernel)(const LinearBlock&), bool is_signed) const {
    std::vector<float> out(kRowCount * kOutputs);
    LinearBlock block = {};
    block.packed = packed.data();
    block.tile = GroupedTileOf(format);
    block.num_outputs = kOutputs;
    block.out_stride = kOutputs;
    block.num_inputs = kInputs;
    block.tile_end = 2;
    block.row_end = kRowCount;
    if (is_signed) {
      block.signed_groups = signed_groups.data();
    } else {
      block.biased = activations.data();
    }
    block.out = out.data();
    block.out_type = FloatType::kF32;
    kernel(block);
    return out;
  }
};

/*! \brief A layer of int8 per channel: two panels and one of 9 rows, and three tiles. */
struct SmallChannelLayer {
  static constexpr int64_t kOutputs = 46, kInputs = 136, kRowCount = 41;

  std::vector<uint8_t> packed =
      std::vector<uint8_t>(PackedMatrixBytes(WeightFormat::kChannel, kOutputs, kInputs));
  std::vector<uint8_t> activations = std::vector<uint8_t>(kRowCount * ChannelRowBytes(kInputs));

  SmallChannelLayer() {
    std::minstd_rand random(1);
    std::vector<uint8_t> codes(kOutputs * kInputs);
    std::vector<float> scales(kOutputs);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random() >> 8);
    for (float& scale : scales) scale = static_cast<float>(random() % 1000) / 7000.0f;
    for (uint8_t& byte : activations) byte = static_cast<uint8_t>(random() >> 8);
    for (int64_t row = 0; row < kRowCount; ++row) {
      const PanelCursor at = PanelOf(row, kRowCount);
      const auto scale = static_cast<float>(1 + random() % 1000);
      std::memcpy(&activations[at.panel * ChannelRowBytes(kInputs) +
                               at.height * ChannelGroupsOf(kInputs) * kChannelGroup +
                               at.row * sizeof(float)],
                  &scale, sizeof(scale));
    }
    PackChannel({.rows = kOutputs, .cols = kInputs, .codes = codes.data(), .scales = scales.data()},
                packed.data());
  }

  /*! \return The outputs of all rows; those before `first_row` are 0. */
  std::vector<float> Multiply(void (*kernel)(const LinearBlock&), int64_t first_row) const {
    std::vector<float> out(kRowCount * kOutputs);
    LinearBlock block = {};
    block.packed = packed.data();
    block.num_outputs = kOutputs;
    block.out_stride = kOutputs;
    block.num_inputs = kInputs;
    block.tile_end = 3;
    block.row_begin = first_row;
    block.row_end = kRowCount;
    block.int8_rows = activations.data();
    block.out = out.data();
    block.out_type = FloatType::kF32;
    kernel(block);
    return out;
  }
};

/*!
 * \brief A bf16 layer of three tiles, whose last group of inputs is incomplete.
 *
 * 57 rows are two full panels, which are multiplied together, one alone, and a panel of 9 rows.
 */
struct SmallBF16Layer {
  static constexpr int64_t kOutputs = 46, kTiles = 3, kInputs = 71, kRowCount = 57, kFewRows = 3;
  static constexpr int64_t kGroups = (kInputs + kGroupSize - 1) / kGroupSize;

  std::vector<float> weights = std::vector<float>(kOutputs * kInputs);
  std::vector<float> x = std::vector<float>(kRowCount * kInputs);
  std::vector<BF16Tile> packed = std::vector<BF16Tile>(kTiles * kGroups);

  SmallBF16Layer() {
    std::minstd_rand random(1);
    const auto next = [&random] {
      const auto value = static_cast<float>(static_cast<int>(random() >> 6) - (1 << 24));
      return std::ldexp(value, -24 - static_cast<int>(random() >> 8) % 6);
    };
    for (float& value : x) value = next();
    for (float& weight : weights) weight = BFloat16ToFloat(FloatToBFloat16(next()));
    PackMatrixF32(WeightFormat::kBF16, weights.data(), kOutputs, kInputs, 0, kOutputs,
                  packed.data());
  }

  LinearBlock Block(int64_t rows, std::vector<float>* out) const {
    out->resize(rows * kOutputs);
    LinearBlock block = {};
    block.packed = packed.data();
    block.num_outputs = kOutputs;
    block.out_stride = kOutputs;
    block.num_inputs = kInputs;
    block.tile_end = kTiles;
    block.row_end = rows;
    block.out = out->data();
    block.out_type = FloatType::kF32;
    return block;
  }

  /*! \return The product of some rows of x and the weights. */
  std::vector<float> Multiply(void (*kernel)(const LinearBlock&), int64_t first_row,
                              int64_t rows) const {
    std::vector<BF16Group> rounded(rows * kGroups);
    kLinearAvx512.quantize_bf16({.x = x.data() + first_row * kInputs,
                                 .x_type = FloatType::kF32,
                                 .rows = rows,
                                 .cols = kInputs,
                                 .groups = kGroups,
                                 .row_begin = 0,
                                 .row_end = rows,
                                 .result = rounded.data()});
    std::vector<float> out;
    LinearBlock block = Block(rows, &out);
    block.bf16_rows = rounded.data();
    kernel(block);
    return out;
  }

  /*! \return The sum of |x * w| of an output, which is the scale of its rounding error. */
  float Magnitude(int64_t row, int64_t output) const {
    float magnitude = 0;
    for (int64_t k = 0; k < kInputs; ++k) {
      magnitude += std::fabs(x[row * kInputs + k] * weights[output * kInputs + k]);
    }
    return magnitude;
  }
};

}  // namespace

bool NearAvx512(void (*kernel)(const LinearBlock&)) {
  const SmallBF16Layer layer;
  const std::vector<float> actual = layer.Multiply(kernel, 0, SmallBF16Layer::kRowCount);
  for (int64_t row = 0; row < SmallBF16Layer::kRowCount; ++row) {
    const std::vector<float> expected = layer.Multiply(kLinearAvx512.bf16, row, 1);
    for (int64_t n = 0; n < SmallBF16Layer::kOutputs; ++n) {
      const float error = std::fabs(actual[row * SmallBF16Layer::kOutputs + n] - expected[n]);
      if (!(error <= 0x1p-20f * layer.Magnitude(row, n))) return false;
    }
  }
  const std::vector<float> few = layer.Multiply(kernel, 0, SmallBF16Layer::kFewRows);
  return std::memcmp(few.data(), actual.data(), few.size() * sizeof(float)) == 0;
}

bool EqualsAvx512(void (*kernel)(const LinearBlock&)) {
  const SmallQ4Layer layer;
  const std::vector<float> expected = layer.Multiply(kLinearAvx512.q4);
  const std::vector<float> actual = layer.Multiply(kernel);
  return std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)) == 0;
}

bool GroupedEqualsAvx512(void (*kernel)(const LinearBlock&)) {
  // One scale per chunk, because formats with more do not use the tile registers.
  for (const char* name : {"u4g32f32m", "u6g32f32z32", "u8g32f32m", "u3g32f32z3"}) {
    const SmallGroupedLayer layer(name);
    const std::vector<float> expected = layer.Multiply(GroupedAvx512, false);
    for (const bool is_signed : {false, true}) {
      const std::vector<float> actual = layer.Multiply(kernel, is_signed);
      if (std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)) != 0) {
        return false;
      }
    }
  }
  return true;
}

bool ChannelEqualsAvx512(void (*kernel)(const LinearBlock&)) {
  const SmallChannelLayer layer;
  // The last panel beside others, and alone, when the registers have its height.
  for (const int64_t first_row : {int64_t{0}, 2 * kPanelRows}) {
    const std::vector<float> expected = layer.Multiply(kChannelAvx512.multiply, first_row);
    const std::vector<float> actual = layer.Multiply(kernel, first_row);
    if (std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

AmxTrial TryKernels(AmxFeatures supported, const AmxKernels& kernels) {
  AmxTrial trial;
  const auto check = [&trial](bool is_supported, bool (*is_correct)(void (*)(const LinearBlock&)),
                              void (*kernel)(const LinearBlock&), const char* format) {
    if (!is_supported) return false;
    const bool result = is_correct(kernel);
    if (!result) trial.rejected.emplace_back(format);
    return result;
  };
  trial.q4 = check(supported.int8, EqualsAvx512, kernels.q4, "4-bit");
  trial.grouped = check(supported.int8, GroupedEqualsAvx512, kernels.grouped, "grouped");
  trial.channel = check(supported.int8, ChannelEqualsAvx512, kernels.channel, "int8");
  trial.bf16 = check(supported.bf16, NearAvx512, kernels.bf16, "bf16");
  return trial;
}

const AmxTrial& AmxTrialResult() {
  static const AmxTrial trial =
      kQ4Amx == nullptr ? AmxTrial()
                        : TryKernels(DetectedAmx(), {kQ4Amx, kGroupedAmx, kChannelAmx, kBF16Amx});
  return trial;
}

#else

const AmxTrial& AmxTrialResult() {
  static const AmxTrial none;
  return none;
}

#endif  // defined(__x86_64__)

}  // namespace aiomlc
