#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/linear/format/pack.h"
#include "kernels/linear/format/progressive_tile.h"

namespace aiomlc {

namespace {

int64_t CeilDivide(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

/*! \brief Multiply 32 values by the Hadamard matrix of ones and minus ones. */
void Rotate(float (&values)[kGroupSize]) {
  for (int64_t width = 1; width < kGroupSize; width *= 2) {
    for (int64_t first = 0; first < kGroupSize; first += 2 * width) {
      for (int64_t k = first; k < first + width; ++k) {
        const float low = values[k];
        const float high = values[k + width];
        values[k] = low + high;
        values[k + width] = low - high;
      }
    }
  }
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

void Store(const Levels& levels, int64_t half, int64_t n, ProgressiveGroup* group) {
  group->numbers[n][half] = {static_cast<uint8_t>(levels.scale),
                             static_cast<int8_t>(levels.offset)};
  constexpr int64_t kPlaneInputs = kGroupSize / 2;
  for (int64_t k = 0; k < kPlaneInputs; ++k) {
    group->codes[half][k / 4][4 * n + k % 4] =
        static_cast<uint8_t>(levels.codes[k] | levels.codes[k + kPlaneInputs] << 4);
  }
}

/*! \brief Pack one output. \param rotated Its weights after the rotation, padded to groups. */
void PackRow(const float* rotated, int64_t groups, int64_t n, ChannelTile* header,
             ProgressiveGroup* tile) {
  float largest = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const Range range(rotated + g * kGroupSize);
    largest = std::max({largest, range.high, -range.low});
  }
  const float scale = largest / 127.0f;
  header->scales[n] = scale;
  if (scale == 0) return;
  for (int64_t g = 0; g < groups; ++g) {
    float weights[kGroupSize];
    for (int64_t k = 0; k < kGroupSize; ++k) weights[k] = rotated[g * kGroupSize + k] / scale;
    const Levels levels(weights);
    Store(levels, g % 2, n, &tile[g / 2]);
    for (const uint8_t code : levels.codes) {
      header->sums[n] += levels.scale * code + levels.offset;
    }
  }
}

}  // namespace

void PackProgressive(const float* weights, int64_t cols, int64_t row_begin, int64_t row_end,
                     void* packed) {
  const int64_t groups = CeilDivide(cols, kGroupSize);
  const int64_t tile_bytes = ProgressiveTileBytes(cols);
  auto* tile = static_cast<std::byte*>(packed) + row_begin / kTileRows * tile_bytes;
  std::vector<float> rotated(static_cast<size_t>(groups * kGroupSize));
  for (int64_t row = row_begin; row < row_end; row += kTileRows, tile += tile_bytes) {
    std::memset(tile, 0, static_cast<size_t>(tile_bytes));
    ChannelTile header = {};
    for (int64_t n = 0; n < std::min(kTileRows, row_end - row); ++n) {
      for (int64_t g = 0; g < groups; ++g) {
        float group[kGroupSize] = {};
        std::copy_n(weights + (row + n) * cols + g * kGroupSize,
                    std::min(kGroupSize, cols - g * kGroupSize), group);
        Rotate(group);
        // The rotation of the inputs is not normalized, either.
        for (int64_t k = 0; k < kGroupSize; ++k) {
          rotated[static_cast<size_t>(g * kGroupSize + k)] = group[k] / kGroupSize;
        }
      }
      PackRow(rotated.data(), groups, n, &header,
              reinterpret_cast<ProgressiveGroup*>(tile + sizeof(header)));
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

}  // namespace aiomlc
