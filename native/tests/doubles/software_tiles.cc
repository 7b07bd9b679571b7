#include "tests/doubles/software_tiles.h"

#if defined(__x86_64__)

#include "kernels/linear/channel/channel_amx.h"
#include "kernels/linear/grouped/grouped_amx.h"
#include "kernels/linear/tiers/linear_amx.h"
#include "kernels/linear/tiers/linear_amx_bf16.h"

namespace aiomlc {

namespace {

/*! \brief Terminate the process if the condition is false. */
void Require(bool condition) {
  if (!condition) __builtin_trap();
}

constexpr float kSmallestNormal = 0x1p-126f;

/*! \brief Replace subnormal numbers by zero, as the arithmetic of tile registers does. */
float Flush(float value) {
  return __builtin_fabsf(value) < kSmallestNormal ? __builtin_copysignf(0.0f, value) : value;
}

/*! \brief Compute a * b + c, rounded once, with subnormal operands and results flushed to zero. */
float MultiplyAdd(float a, float b, float c) {
  a = Flush(a);
  b = Flush(b);
  c = Flush(c);
  const float sum = __builtin_fmaf(a, b, c);
  if (__builtin_fabsf(sum) != kSmallestNormal) return Flush(sum);
  // The smallest normal number may be a rounded-up subnormal. It is flushed if the sum, computed
  // without the limit of the exponent, is smaller.
  const float wide = __builtin_fmaf(a * 0x1p64f, b, c * 0x1p64f);
  return __builtin_fabsf(wide) < 0x1p-62f ? __builtin_copysignf(0.0f, sum) : sum;
}

float Add(float a, float b) { return MultiplyAdd(a, 1.0f, b); }

/*! \brief Tile registers that follow Intel's instruction set reference. */
class SoftwareTiles {
 public:
  explicit SoftwareTiles(const TileShapes& shapes) {
    Require(shapes.palette == 1 && shapes.start_row == 0);
    for (const uint8_t byte : shapes.reserved) Require(byte == 0);
    for (int i = 0; i < 16; ++i) {
      Require(shapes.rows[i] <= (i < kTiles ? 16 : 0));
      Require(shapes.row_bytes[i] <= (i < kTiles ? 64 : 0));
      Require((shapes.rows[i] == 0) == (shapes.row_bytes[i] == 0));
      if (i >= kTiles) continue;
      tiles_[i].rows = shapes.rows[i];
      tiles_[i].row_bytes = shapes.row_bytes[i];
    }
  }

  template <int kTile>
  void Zero() {
    Require(tiles_[kTile].rows > 0);
    __builtin_memset(tiles_[kTile].bytes, 0, sizeof(tiles_[kTile].bytes));
  }

  template <int kTile>
  void Load(const void* rows, int64_t stride) {
    Zero<kTile>();
    Tile& tile = tiles_[kTile];
    for (int row = 0; row < tile.rows; ++row) {
      __builtin_memcpy(tile.bytes[row], static_cast<const char*>(rows) + row * stride,
                       tile.row_bytes);
    }
  }

  template <int kTile>
  void Store(void* rows, int64_t stride) {
    const Tile& tile = tiles_[kTile];
    Require(tile.rows > 0);
    for (int row = 0; row < tile.rows; ++row) {
      __builtin_memcpy(static_cast<char*>(rows) + row * stride, tile.bytes[row], tile.row_bytes);
    }
  }

  template <int kSums, int kA, int kB>
  void AddDots() {
    AddBytes<kSums, kA, kB>([](int8_t byte) -> int { return byte; });
  }

  template <int kSums, int kA, int kB>
  void AddBiasedDots() {
    AddBytes<kSums, kA, kB>([](int8_t byte) -> int { return static_cast<uint8_t>(byte); });
  }

  /*! \param value Returns the number that a byte of register `kA` means. */
  template <int kSums, int kA, int kB, typename Value>
  void AddBytes(Value value) {
    static_assert(kSums != kA && kSums != kB && kA != kB);
    Tile& sums = tiles_[kSums];
    const Tile &a = tiles_[kA], &b = tiles_[kB];
    Require(sums.rows > 0 && a.rows == sums.rows && b.row_bytes == sums.row_bytes);
    Require(a.row_bytes == 4 * b.rows && sums.row_bytes % 4 == 0);
    for (int row = 0; row < sums.rows; ++row) {
      for (int offset = 0; offset < sums.row_bytes; offset += 4) {
        int32_t sum;
        __builtin_memcpy(&sum, sums.bytes[row] + offset, sizeof(sum));
        for (int i = 0; i < a.row_bytes; ++i) {
          sum += value(a.bytes[row][i]) * b.bytes[i / 4][offset + i % 4];
        }
        __builtin_memcpy(sums.bytes[row] + offset, &sum, sizeof(sum));
      }
    }
  }

  /*! \brief Sum the products of even inputs and of odd inputs separately, and add both sums. */
  template <int kSums, int kA, int kB>
  void AddPairs() {
    const PairShape shape = CheckPairs<kSums, kA, kB>();
    for (int row = 0; row < shape.rows; ++row) {
      float sums[2][16] = {};
      for (int k = 0; k < shape.pairs; ++k) {
        for (int odd = 0; odd < 2; ++odd) {
          const float a = BFloat16At<kA>(row, 2 * k + odd);
          for (int n = 0; n < shape.outputs; ++n) {
            sums[odd][n] = MultiplyAdd(a, BFloat16At<kB>(k, 2 * n + odd), sums[odd][n]);
          }
        }
      }
      for (int n = 0; n < shape.outputs; ++n) {
        float& sum = FloatAt<kSums>(row, n);
        sum = Add(sum, Add(sums[0][n], sums[1][n]));
      }
    }
  }

 protected:
  static constexpr int kTiles = 8;
  struct Tile {
    int rows = 0, row_bytes = 0;
    alignas(64) int8_t bytes[16][64];
  };
  struct PairShape {
    int rows, outputs, pairs;
  };

  template <int kSums, int kA, int kB>
  PairShape CheckPairs() const {
    static_assert(kSums != kA && kSums != kB && kA != kB);
    const Tile &sums = tiles_[kSums], &a = tiles_[kA], &b = tiles_[kB];
    Require(sums.rows > 0 && a.rows == sums.rows && b.row_bytes == sums.row_bytes);
    Require(a.row_bytes == 4 * b.rows && sums.row_bytes % 4 == 0);
    return {sums.rows, sums.row_bytes / 4, b.rows};
  }

  template <int kTile>
  float BFloat16At(int row, int i) const {
    uint16_t upper;
    __builtin_memcpy(&upper, tiles_[kTile].bytes[row] + 2 * i, sizeof(upper));
    const uint32_t bits = static_cast<uint32_t>(upper) << 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof(value));
    return value;
  }

  template <int kTile>
  float& FloatAt(int row, int i) {
    return reinterpret_cast<float*>(tiles_[kTile].bytes[row])[i];
  }

  Tile tiles_[kTiles];
};

/*! \brief `SoftwareTiles` that add bf16 products to the sums one by one. */
class SequentialTiles : public SoftwareTiles {
 public:
  using SoftwareTiles::SoftwareTiles;

  template <int kSums, int kA, int kB>
  void AddPairs() {
    const PairShape shape = CheckPairs<kSums, kA, kB>();
    for (int row = 0; row < shape.rows; ++row) {
      for (int k = 0; k < 2 * shape.pairs; ++k) {
        const float a = BFloat16At<kA>(row, k);
        for (int n = 0; n < shape.outputs; ++n) {
          float& sum = FloatAt<kSums>(row, n);
          sum = MultiplyAdd(a, BFloat16At<kB>(k / 2, 2 * n + k % 2), sum);
        }
      }
    }
  }
};

}  // namespace

void Q4OnSoftwareTiles(const LinearBlock& block) { Q4OnTiles<SoftwareTiles>(block); }

void GroupedOnSoftwareTiles(const LinearBlock& block) { GroupedOnTiles<SoftwareTiles>(block); }

void ChannelOnSoftwareTiles(const LinearBlock& block) { ChannelOnTiles<SoftwareTiles>(block); }
void ProgressiveOnSoftwareTiles(const LinearBlock& block) {
  ProgressiveOnTiles<SoftwareTiles>(block);
}

void BF16OnSoftwareTiles(const LinearBlock& block) { BF16OnTiles<SoftwareTiles>(block); }

void BF16OnSequentialTiles(const LinearBlock& block) { BF16OnTiles<SequentialTiles>(block); }

}  // namespace aiomlc

#endif  // defined(__x86_64__)
