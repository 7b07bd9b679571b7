#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/linear/format/pack.h"
#include "kernels/linear/format/progressive_tile.h"

namespace aiomlc {

namespace {

int64_t CeilDivide(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

/*! \brief The sums and differences of values that are `kWidth` apart. */
template <int64_t kWidth>
void RotateStep(float (&values)[kGroupSize]) {
  for (int64_t first = 0; first < kGroupSize; first += 2 * kWidth) {
    for (int64_t k = first; k < first + kWidth; ++k) {
      const float low = values[k];
      const float high = values[k + kWidth];
      values[k] = low + high;
      values[k + kWidth] = low - high;
    }
  }
}

/*! \brief Multiply 32 values by the Hadamard matrix of ones and minus ones. */
void Rotate(float (&values)[kGroupSize]) {
  RotateStep<1>(values);
  RotateStep<2>(values);
  RotateStep<4>(values);
  RotateStep<8>(values);
  RotateStep<16>(values);
}

/*! \return An integer, ties to even. \param value Of a magnitude below 2^22. */
float Round(float value) {
  constexpr float kRounder = 0x1.8p23f;
  return (value + kRounder) - kRounder;
}

/*! \brief The lowest and the highest weight of a group. */
struct Range {
  float low, high;

  explicit Range(const float* weights) {
    constexpr int64_t kLanes = 8;  // Each has its own result, so that they are vectorized.
    float lows[kLanes], highs[kLanes];
    std::copy_n(weights, kLanes, lows);
    std::copy_n(weights, kLanes, highs);
    for (int64_t k = kLanes; k < kGroupSize; k += kLanes) {
      for (int64_t i = 0; i < kLanes; ++i) {
        const float weight = weights[k + i];
        lows[i] = weight < lows[i] ? weight : lows[i];
        highs[i] = weight > highs[i] ? weight : highs[i];
      }
    }
    low = *std::min_element(lows, lows + kLanes);
    high = *std::max_element(highs, highs + kLanes);
  }
};

/*! \brief The steps and the lowest of the 16 levels of a group. */
struct Grid {
  float steps, first;

  /*! \param shift Of the levels from the middle of the range, in steps. */
  Grid(Range range, float steps, float shift) : steps(steps) {
    const float rest = range.low + range.high - steps * kProgressiveLevels;
    const float middle = Round(rest / 2 + shift * steps);
    // The lowest and the highest level are int8, too.
    first = std::clamp(middle, -128.0f, 127.0f - steps * kProgressiveLevels);
  }

  /*! \brief Set the indices of the levels that are nearest to the weights. */
  void Encode(const float (&weights)[kGroupSize], float (&codes)[kGroupSize]) const {
    constexpr float kLast = kProgressiveLevels;
    const float lowest = first;
    const float inverse = 1.0f / steps;
    for (int64_t k = 0; k < kGroupSize; ++k) {
      const float level = Round((weights[k] - lowest) * inverse);
      const float positive = level > 0.0f ? level : 0.0f;
      codes[k] = positive < kLast ? positive : kLast;
    }
  }

  /*! \return The sum of the squared errors, in partial sums that are vectorized. */
  float Error(const float (&weights)[kGroupSize]) const {
    constexpr int64_t kLanes = 8;
    float codes[kGroupSize];
    Encode(weights, codes);
    float sums[kLanes] = {};
    for (int64_t k = 0; k < kGroupSize; k += kLanes) {
      for (int64_t i = 0; i < kLanes; ++i) {
        const float difference = steps * codes[k + i] + first - weights[k + i];
        sums[i] += difference * difference;
      }
    }
    return std::accumulate(sums, sums + kLanes, 0.0f);
  }
};

/*!
 * \brief Search for the grid of the least squared error.
 *
 * The steps that span all weights are too wide for most of them, and the middle of the range is not
 * the best place: the other grids clip a weight or two. More of them would gain little.
 * \param weights Divided by the scale of the output: in [-127, 127].
 */
Grid BestGrid(const float (&weights)[kGroupSize]) {
  const Range range(weights);
  const float widest = std::clamp(Round((range.high - range.low) / kProgressiveLevels), 1.0f,
                                  static_cast<float>(kMaxGroupScale));
  Grid best(range, widest, 0.0f);
  float least = std::numeric_limits<float>::infinity();
  for (const float steps : {widest, std::max(widest - 1.0f, 1.0f)}) {
    for (const float shift : {0.0f, -0.25f, 0.25f}) {
      const Grid grid(range, steps, shift);
      const float error = grid.Error(weights);
      if (error >= least) continue;
      least = error;
      best = grid;
    }
  }
  return best;
}

/*! \brief 32 weights of an output as small integers. */
struct Levels {
  uint8_t codes[kGroupSize];
  int scale, offset;

  /*! \param weights Divided by the scale of the output: in [-127, 127]. */
  explicit Levels(const float (&weights)[kGroupSize]) {
    const Grid grid = BestGrid(weights);
    float nearest[kGroupSize];
    grid.Encode(weights, nearest);
    std::transform(nearest, nearest + kGroupSize, codes,
                   [](float code) { return static_cast<uint8_t>(code); });
    scale = static_cast<int>(grid.steps);
    offset = static_cast<int>(grid.first);
  }
};

/*! \brief The part of a stored row that holds 32 inputs. */
struct StoredGroup {
  ProgressiveGroup::Numbers numbers;
  uint8_t codes[kGroupSize / 2];  //!< Inputs 0 to 15 are the low bits, 16 to 31 the high ones.

  explicit StoredGroup(const Levels& levels)
      : numbers{static_cast<uint8_t>(levels.scale), static_cast<int8_t>(levels.offset)} {
    constexpr int64_t kHalf = kGroupSize / 2;
    for (int64_t k = 0; k < kHalf; ++k) {
      codes[k] = static_cast<uint8_t>(levels.codes[k] | levels.codes[k + kHalf] << 4);
    }
  }

  /*! \return The sum of the integers. */
  int Sum() const {
    int codes_sum = 0;
    for (const uint8_t pair : codes) codes_sum += (pair & 15) + (pair >> 4);
    return numbers.scale * codes_sum + static_cast<int>(kGroupSize) * numbers.offset;
  }
};
static_assert(sizeof(StoredGroup) == 18 && alignof(StoredGroup) == 1);

/*! \brief The weights of an output after the rotation, padded to groups. */
std::vector<float> RotateRow(const float* weights, int64_t cols) {
  const int64_t groups = CeilDivide(cols, kGroupSize);
  std::vector<float> rotated(static_cast<size_t>(groups * kGroupSize));
  for (int64_t g = 0; g < groups; ++g) {
    float group[kGroupSize] = {};
    const float* first = weights + g * kGroupSize;
    // The rotation of the inputs is not normalized, either. Divided before it, no sum overflows.
    std::transform(first, first + std::min(kGroupSize, cols - g * kGroupSize), group,
                   [](float weight) { return weight / kGroupSize; });
    Rotate(group);
    std::copy_n(group, kGroupSize, rotated.begin() + g * kGroupSize);
  }
  return rotated;
}

/*! \return The scale of an output. \param rotated Its weights after the rotation, in groups. */
float ScaleOf(const std::vector<float>& rotated) {
  float largest = 0;
  for (size_t k = 0; k < rotated.size(); k += kGroupSize) {
    const Range range(&rotated[k]);
    largest = std::max({largest, range.high, -range.low});
  }
  return largest / 127.0f;
}

}  // namespace

int64_t ProgressiveRowBytes(int64_t cols) {
  const auto group_bytes = static_cast<int64_t>(sizeof(StoredGroup));
  return static_cast<int64_t>(sizeof(float)) + CeilDivide(cols, kGroupSize) * group_bytes;
}

void QuantizeProgressiveRow(const float* weights, int64_t cols, uint8_t* row) {
  std::memset(row, 0, static_cast<size_t>(ProgressiveRowBytes(cols)));
  const std::vector<float> rotated = RotateRow(weights, cols);
  const int64_t groups = CeilDivide(cols, kGroupSize);
  const float scale = ScaleOf(rotated);
  if (scale == 0) return;
  std::memcpy(row, &scale, sizeof(scale));
  row += sizeof(scale);
  for (int64_t g = 0; g < groups; ++g, row += sizeof(StoredGroup)) {
    float scaled[kGroupSize];
    std::transform(rotated.begin() + g * kGroupSize, rotated.begin() + (g + 1) * kGroupSize, scaled,
                   [scale](float weight) { return weight / scale; });
    const StoredGroup group{Levels(scaled)};
    std::memcpy(row, &group, sizeof(group));
  }
}

void CutProgressiveRow(const uint8_t* row, int64_t first_col, int64_t cols, uint8_t* out) {
  const auto group_bytes = static_cast<int64_t>(sizeof(StoredGroup));
  std::memcpy(out, row, sizeof(float));
  std::memcpy(out + sizeof(float), row + sizeof(float) + first_col / kGroupSize * group_bytes,
              static_cast<size_t>(CeilDivide(cols, kGroupSize) * group_bytes));
}

const char* CheckProgressiveRow(const uint8_t* row, int64_t cols) {
  float scale;
  std::memcpy(&scale, row, sizeof(scale));
  if (!std::isfinite(scale)) return "a scale is not finite";
  row += sizeof(scale);
  for (int64_t k = 0; k < cols; k += kGroupSize, row += sizeof(StoredGroup)) {
    ProgressiveGroup::Numbers numbers;
    std::memcpy(&numbers, row, sizeof(numbers));
    const int highest = numbers.offset + numbers.scale * kProgressiveLevels;
    if (numbers.scale > kMaxGroupScale || highest > 127) {
      return "the levels of a group must be from -128 to 127";
    }
  }
  return nullptr;
}

void PackProgressiveRows(const uint8_t* stored, int64_t rows, int64_t cols, void* packed) {
  auto* tile = static_cast<std::byte*>(packed);
  for (int64_t row = 0; row < rows; row += kTileRows, tile += ProgressiveTileBytes(cols)) {
    std::memset(tile, 0, static_cast<size_t>(ProgressiveTileBytes(cols)));
    ChannelTile header = {};
    auto* groups = reinterpret_cast<ProgressiveGroup*>(tile + sizeof(header));
    for (int64_t n = 0; n < std::min(kTileRows, rows - row); ++n) {
      const uint8_t* from = stored + (row + n) * ProgressiveRowBytes(cols);
      std::memcpy(&header.scales[n], from, sizeof(float));
      from += sizeof(float);
      for (int64_t g = 0; g < CeilDivide(cols, kGroupSize); ++g, from += sizeof(StoredGroup)) {
        const auto& group = *reinterpret_cast<const StoredGroup*>(from);
        ProgressiveGroup& target = groups[g / 2];
        target.numbers[n][g % 2] = group.numbers;
        for (int64_t k = 0; k < kGroupSize / 2; ++k) {
          target.codes[g % 2][k / 4][4 * n + k % 4] = group.codes[k];
        }
        header.sums[n] += group.Sum();
      }
    }
    std::memcpy(tile, &header, sizeof(header));
  }
}

void PackProgressive(const float* weights, int64_t cols, int64_t row_begin, int64_t row_end,
                     void* packed) {
  const int64_t row_bytes = ProgressiveRowBytes(cols);
  std::vector<uint8_t> rows(static_cast<size_t>(kTileRows * row_bytes));
  auto* tile = static_cast<std::byte*>(packed) + row_begin / kTileRows * ProgressiveTileBytes(cols);
  for (int64_t row = row_begin; row < row_end; row += kTileRows) {
    const int64_t count = std::min(kTileRows, row_end - row);
    for (int64_t n = 0; n < count; ++n) {
      QuantizeProgressiveRow(weights + (row + n) * cols, cols,
                             &rows[static_cast<size_t>(n * row_bytes)]);
    }
    PackProgressiveRows(rows.data(), count, cols, tile);
    tile += ProgressiveTileBytes(cols);
  }
}

void PackRotated(const float* weights, int64_t cols, int64_t row_begin, int64_t row_end,
                 void* packed) {
  const int64_t tile_bytes = ChannelTileBytes(cols);
  auto* tile = static_cast<std::byte*>(packed) + row_begin / kTileRows * tile_bytes;
  for (int64_t row = row_begin; row < row_end; row += kTileRows, tile += tile_bytes) {
    std::memset(tile, 0, static_cast<size_t>(tile_bytes));
    ChannelTile header = {};
    for (int64_t n = 0; n < std::min(kTileRows, row_end - row); ++n) {
      const std::vector<float> rotated = RotateRow(weights + (row + n) * cols, cols);
      const float scale = ScaleOf(rotated);
      header.scales[n] = scale;
      if (scale == 0) continue;
      for (size_t k = 0; k < rotated.size(); ++k) {
        // A scale that is denormal was rounded, so that the quotient can be larger.
        const auto weight =
            static_cast<int>(Round(std::clamp(rotated[k] / scale, -127.0f, 127.0f)));
        header.sums[n] += weight;
        const int64_t at = ChannelWeightIndex(n, static_cast<int64_t>(k));
        tile[static_cast<int64_t>(sizeof(header)) + at] = static_cast<std::byte>(weight);
      }
    }
    std::memcpy(tile, &header, sizeof(header));
  }
}

void EmbedProgressiveRow(const void* packed, int64_t hidden, int64_t row, float* out) {
  const auto* tile =
      static_cast<const std::byte*>(packed) + row / kTileRows * ProgressiveTileBytes(hidden);
  const auto* header = reinterpret_cast<const ChannelTile*>(tile);
  const auto* groups = reinterpret_cast<const ProgressiveGroup*>(tile + sizeof(ChannelTile));
  const int64_t n = row % kTileRows;
  for (int64_t g = 0; g < CeilDivide(hidden, kGroupSize); ++g) {
    const ProgressiveGroup& group = groups[g / 2];
    const int64_t half = g % 2;
    float values[kGroupSize];
    for (int64_t k = 0; k < kGroupSize; ++k) {
      const uint8_t pair = group.codes[half][k % (kGroupSize / 2) / 4][4 * n + k % 4];
      const int code = k < kGroupSize / 2 ? pair & 15 : pair >> 4;
      const auto [scale, offset] = group.numbers[n][half];
      values[k] = header->scales[n] * static_cast<float>(scale * code + offset);
    }
    Rotate(values);  // The matrix is its own inverse, but for the factor.
    std::copy_n(values, std::min(kGroupSize, hidden - g * kGroupSize), out + g * kGroupSize);
  }
}

void EmbedRotatedRow(const void* packed, int64_t hidden, int64_t row, float* out) {
  const auto* tile =
      static_cast<const std::byte*>(packed) + row / kTileRows * ChannelTileBytes(hidden);
  const auto* header = reinterpret_cast<const ChannelTile*>(tile);
  const int64_t n = row % kTileRows;
  for (int64_t g = 0; g < CeilDivide(hidden, kGroupSize); ++g) {
    float values[kGroupSize];
    for (int64_t k = 0; k < kGroupSize; ++k) {
      const std::byte weight = tile[static_cast<int64_t>(sizeof(ChannelTile)) +
                                    ChannelWeightIndex(n, g * kGroupSize + k)];
      values[k] = header->scales[n] * static_cast<float>(static_cast<int8_t>(weight));
    }
    Rotate(values);
    std::copy_n(values, std::min(kGroupSize, hidden - g * kGroupSize), out + g * kGroupSize);
  }
}

}  // namespace aiomlc
