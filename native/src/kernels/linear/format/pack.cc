#include "kernels/linear/format/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "kernels/linear/format/layout.h"
#include "platform/float_types.h"

namespace aiomlc {

namespace {

int64_t CeilDivide(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

/*! \brief A group of one row before packing: 32 values in [0, 15], one per byte, and the scale. */
struct RowGroup {
  uint8_t values[kGroupSize];
  uint16_t scale;
};

/*! \brief Write the group of row `n` of a tile to the packed group of the tile. */
void WriteRowGroup(const RowGroup& row, int64_t n, uint8_t* packed) {
  for (int64_t i = 0; i < 4; ++i) {
    uint32_t low;
    uint32_t high;
    std::memcpy(&low, row.values + 4 * i, sizeof(low));
    std::memcpy(&high, row.values + 16 + 4 * i, sizeof(high));
    const uint32_t word = low | (high << 4);
    std::memcpy(packed + 64 * i + 4 * n, &word, sizeof(word));
  }
  std::memcpy(packed + kGroupNibbleBytes + 2 * n, &row.scale, sizeof(row.scale));
}

/*!
 * \brief Quantize with the arithmetic of MLC LLM's `q4f16_1`: every operation is in float16.
 *
 * The order of the operations is part of the format: it decides 0.3 % of the values. Division and
 * addition in float32, rounded to float16, equal those in float16. Compilers can vectorize the
 * loops. A group of scale 0 has the values 0 and 14, as MLC LLM stores it.
 */
RowGroup QuantizeGroup(const float (&weights)[kGroupSize]) {
  float halves[kGroupSize];
  // Without the sign bit, floats have the same order as their bits.
  int32_t largest = 0;
  for (int64_t k = 0; k < kGroupSize; ++k) {
    halves[k] = RoundToHalf(weights[k]);
    largest = std::max(largest, std::bit_cast<int32_t>(halves[k]) & 0x7fffffff);
  }
  RowGroup row;
  row.scale = FloatToHalf(std::bit_cast<float>(largest) / kZeroPoint);
  const float scale = HalfToFloat(row.scale);
  // Adding 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
  constexpr float kRounder = 0x1p23f;
  constexpr float kLargest = 2 * kZeroPoint;
  for (int64_t k = 0; k < kGroupSize; ++k) {
    const float value = RoundToHalf(RoundToHalf(halves[k] / scale) + kZeroPoint);
    const float positive = value > 0.0f ? value : 0.0f;  // Also for NaN, from 0 / 0.
    const float clamped = positive < kLargest ? positive : kLargest;
    row.values[k] = static_cast<uint8_t>(std::bit_cast<uint32_t>(clamped + kRounder));
  }
  return row;
}

/*! \brief Pack q4 tiles; `get(row, group)` returns a `RowGroup`. */
template <typename Get>
void PackQ4Tiles(int64_t cols, int64_t row_begin, int64_t row_end, void* packed, Get get) {
  const int64_t groups = CeilDivide(cols, kGroupSize);
  RowGroup padding = {{}, 0};
  std::memset(padding.values, kZeroPoint, sizeof(padding.values));
  for (int64_t row = row_begin; row < row_end; row += kTileRows) {
    uint8_t* tile = static_cast<uint8_t*>(packed) + row / kTileRows * groups * kGroupBytes;
    for (int64_t g = 0; g < groups; ++g, tile += kGroupBytes) {
      for (int64_t n = 0; n < kTileRows; ++n) {
        WriteRowGroup(row + n < row_end ? get(row + n, g) : padding, n, tile);
      }
    }
  }
}

/*! \brief Pack tiles of 16 rows, 16 columns at a time to stay in the first-level cache. */
template <typename Element, typename Convert>
void PackDense(const float* weights, int64_t cols, int64_t row_begin, int64_t row_end, void* packed,
               Convert convert) {
  constexpr int64_t kBlock = 16;
  float block[kBlock * kTileRows];
  for (int64_t row = row_begin; row < row_end; row += kTileRows) {
    const int64_t tile_rows = std::min(kTileRows, row_end - row);
    const float* source = weights + row * cols;
    Element* tile = static_cast<Element*>(packed) + row * cols;
    std::memset(block, 0, sizeof(block));
    for (int64_t begin = 0; begin < cols; begin += kBlock) {
      const int64_t count = std::min(kBlock, cols - begin);
      for (int64_t n = 0; n < tile_rows; ++n) {
        for (int64_t k = 0; k < count; ++k) block[k * kTileRows + n] = source[n * cols + begin + k];
      }
      Element* out = tile + begin * kTileRows;
      for (int64_t i = 0; i < count * kTileRows; ++i) out[i] = convert(block[i]);
    }
  }
}

/*! \brief Pack bf16 tiles, one group of 32 inputs (1 KiB) after the other. */
void PackBF16(const float* weights, int64_t cols, int64_t row_begin, int64_t row_end,
              void* packed) {
  const int64_t groups = CeilDivide(cols, kGroupSize);
  for (int64_t row = row_begin; row < row_end; row += kTileRows) {
    const int64_t tile_rows = std::min(kTileRows, row_end - row);
    BF16Tile* tile = static_cast<BF16Tile*>(packed) + row / kTileRows * groups;
    for (int64_t g = 0; g < groups; ++g, ++tile) {
      *tile = {};
      const int64_t count = std::min(kGroupSize, cols - g * kGroupSize);
      for (int64_t n = 0; n < tile_rows; ++n) {
        const float* source = weights + (row + n) * cols + g * kGroupSize;
        uint16_t values[kGroupSize] = {};
        for (int64_t k = 0; k < count; ++k) values[k] = FloatToBFloat16(source[k]);
        for (int64_t i = 0; i < kGroupSize / 2; ++i) {
          std::memcpy(tile->pairs[i] + 2 * n, values + 2 * i, 2 * sizeof(uint16_t));
        }
      }
    }
  }
}

/*! \return Value `k` of row `n` of a q4 tile, for a group of inputs. */
uint8_t Q4Value(const uint8_t* tile, int64_t n, int64_t k) {
  const uint8_t byte = tile[64 * (k % 16 / 4) + 4 * n + k % 4];
  return k < 16 ? byte & 15 : byte >> 4;
}

void EmbedQ4Row(const uint8_t* packed, int64_t hidden, int64_t row, float* out) {
  const int64_t groups = CeilDivide(hidden, kGroupSize);
  const uint8_t* tile = packed + row / kTileRows * groups * kGroupBytes;
  const int64_t n = row % kTileRows;
  for (int64_t g = 0; g < groups; ++g, tile += kGroupBytes) {
    uint16_t half;
    std::memcpy(&half, tile + kGroupNibbleBytes + 2 * n, sizeof(half));
    const float scale = HalfToFloat(half);
    const int64_t count = std::min(kGroupSize, hidden - g * kGroupSize);
    for (int64_t k = 0; k < count; ++k) {
      const int value = Q4Value(tile, n, k);
      out[g * kGroupSize + k] = static_cast<float>(value - kZeroPoint) * scale;
    }
  }
}

void EmbedBF16Row(const BF16Tile* packed, int64_t hidden, int64_t row, float* out) {
  const BF16Tile* tile = packed + row / kTileRows * CeilDivide(hidden, kGroupSize);
  for (int64_t k = 0; k < hidden; ++k) {
    const int64_t in_group = k % kGroupSize;
    const int64_t at = 2 * (row % kTileRows) + in_group % 2;
    out[k] = BFloat16ToFloat(tile[k / kGroupSize].pairs[in_group / 2][at]);
  }
}

}  // namespace

void PackMatrixF32(WeightFormat format, const float* weights, int64_t /*rows*/, int64_t cols,
                   int64_t row_begin, int64_t row_end, void* packed) {
  switch (format) {
    case WeightFormat::kF32:
      PackDense<float>(weights, cols, row_begin, row_end, packed, [](float w) { return w; });
      break;
    case WeightFormat::kBF16:
      PackBF16(weights, cols, row_begin, row_end, packed);
      break;
    case WeightFormat::kF16:
      PackDense<uint16_t>(weights, cols, row_begin, row_end, packed, FloatToHalf);
      break;
    case WeightFormat::kQ4:
      PackQ4Tiles(cols, row_begin, row_end, packed, [&](int64_t row, int64_t g) {
        const int64_t begin = g * kGroupSize;
        const int64_t count = std::min(kGroupSize, cols - begin);
        float group[kGroupSize] = {};
        std::memcpy(group, weights + row * cols + begin,
                    static_cast<size_t>(count) * sizeof(float));
        RowGroup result = QuantizeGroup(group);
        std::fill(result.values + count, result.values + kGroupSize, uint8_t{kZeroPoint});
        return result;
      });
      break;
    case WeightFormat::kProgressive:
      PackProgressive(weights, cols, row_begin, row_end, packed);
      break;
    case WeightFormat::kRotated:
      PackRotated(weights, cols, row_begin, row_end, packed);
      break;
    case WeightFormat::kGrouped:
    case WeightFormat::kChannel:
      throw std::invalid_argument("grouped formats are packed from their own numbers");
  }
}

void PackMatrixQ4(const uint32_t* q_weight, const uint16_t* q_scale, int64_t /*rows*/, int64_t cols,
                  int64_t row_begin, int64_t row_end, void* packed) {
  const int64_t groups = CeilDivide(cols, kGroupSize);
  PackQ4Tiles(cols, row_begin, row_end, packed, [&](int64_t row, int64_t g) {
    const uint32_t* words = q_weight + (row * groups + g) * (kGroupSize / 8);
    // Values after the last column are unspecified in `q_weight`; they are packed as zero.
    const int64_t count = std::min(kGroupSize, cols - g * kGroupSize);
    RowGroup result;
    for (int64_t k = 0; k < kGroupSize; ++k) {
      const uint32_t value = (words[k / 8] >> (4 * (k % 8))) & 15;
      result.values[k] = static_cast<uint8_t>(k < count ? value : kZeroPoint);
    }
    result.scale = q_scale[row * groups + g];
    return result;
  });
}

size_t Q4RowBytes(int64_t cols) {
  return static_cast<size_t>(CeilDivide(cols, kGroupSize)) * (kGroupSize / 2 + sizeof(uint16_t));
}

void CopyQ4Row(const void* packed, int64_t cols, int64_t index, uint8_t* row) {
  const int64_t groups = CeilDivide(cols, kGroupSize);
  const int64_t n = index % kTileRows;
  const uint8_t* tile =
      static_cast<const uint8_t*>(packed) + index / kTileRows * groups * kGroupBytes;
  for (int64_t g = 0; g < groups; ++g, tile += kGroupBytes) {
    for (int64_t k = 0; k < kGroupSize; k += 2) {
      *row++ = static_cast<uint8_t>(Q4Value(tile, n, k) | Q4Value(tile, n, k + 1) << 4);
    }
    std::memcpy(row, tile + kGroupNibbleBytes + 2 * n, sizeof(uint16_t));
    row += sizeof(uint16_t);
  }
}

void EmbedRow(MatrixFormat format, const void* packed, int64_t hidden, int64_t row, float* out) {
  const int64_t first = row / kTileRows * kTileRows * hidden + row % kTileRows;
  switch (format.family) {
    case WeightFormat::kQ4:
      return EmbedQ4Row(static_cast<const uint8_t*>(packed), hidden, row, out);
    case WeightFormat::kGrouped:
      return EmbedGroupedRow(format, packed, hidden, row, out);
    case WeightFormat::kChannel:
      return EmbedChannelRow(packed, hidden, row, out);
    case WeightFormat::kProgressive:
      return EmbedProgressiveRow(packed, hidden, row, out);
    case WeightFormat::kRotated:
      return EmbedRotatedRow(packed, hidden, row, out);
    case WeightFormat::kF32:
      for (int64_t k = 0; k < hidden; ++k) {
        out[k] = static_cast<const float*>(packed)[first + k * kTileRows];
      }
      return;
    case WeightFormat::kBF16:
      EmbedBF16Row(static_cast<const BF16Tile*>(packed), hidden, row, out);
      return;
    case WeightFormat::kF16:
      for (int64_t k = 0; k < hidden; ++k) {
        out[k] = HalfToFloat(static_cast<const uint16_t*>(packed)[first + k * kTileRows]);
      }
  }
}

}  // namespace aiomlc
