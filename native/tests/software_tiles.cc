#include "software_tiles.h"

#if defined(__x86_64__)

#include "../src/kernels/linear_amx.h"

namespace aiomlc {

namespace {

void Require(bool condition) {
  if (!condition) __builtin_trap();
}

/*! \brief Tile registers as the processor's manual describes them. */
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
    static_assert(kSums != kA && kSums != kB && kA != kB);
    Tile& sums = tiles_[kSums];
    const Tile &a = tiles_[kA], &b = tiles_[kB];
    Require(sums.rows > 0 && a.rows == sums.rows && b.row_bytes == sums.row_bytes);
    Require(a.row_bytes == 4 * b.rows && sums.row_bytes % 4 == 0);
    for (int row = 0; row < sums.rows; ++row) {
      for (int at = 0; at < sums.row_bytes; at += 4) {
        int32_t sum;
        __builtin_memcpy(&sum, sums.bytes[row] + at, sizeof(sum));
        for (int i = 0; i < a.row_bytes; ++i) {
          sum += a.bytes[row][i] * b.bytes[i / 4][at + i % 4];
        }
        __builtin_memcpy(sums.bytes[row] + at, &sum, sizeof(sum));
      }
    }
  }

 private:
  static constexpr int kTiles = 8;
  struct Tile {
    int rows = 0, row_bytes = 0;
    int8_t bytes[16][64];
  };
  Tile tiles_[kTiles];
};

}  // namespace

void Q4OnSoftwareTiles(const LinearBlock& block) { Q4OnTiles<SoftwareTiles>(block); }

}  // namespace aiomlc

#endif  // defined(__x86_64__)
