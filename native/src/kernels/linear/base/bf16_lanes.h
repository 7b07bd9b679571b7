/*!
 * \file kernels/linear/base/bf16_lanes.h
 * \brief The kernel of bf16 weights, as a template over the products of a tier.
 *
 * Activations are rounded to bf16. An output is one chain of float32 multiply-adds: of two adjacent
 * inputs the odd one is added first, as `vdpbf16ps` adds them, and numbers below 2^-126 count as
 * zero. So the bits are the same with that instruction and with float32 arithmetic.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_BASE_BF16_LANES_H_
#define AIOMLC_KERNELS_LINEAR_BASE_BF16_LANES_H_

#include <cstdint>

#include "kernels/linear/base/linear_lanes.h"
#include "kernels/simd/bf16_pairs.h"
#include "platform/flush_denormals.h"

namespace aiomlc {

namespace {

// The rows whose sums (24 KiB for three tiles) stay in the first-level cache.
constexpr int64_t kBF16Rows = 8 * kPanelRows;
// The groups after which the rows change, so that the weights stay in the second-level cache: 128
// KiB per tile. Fewer would stay in the first level, but then sums are loaded and stored more
// often.
constexpr int64_t kBF16Chunk = 128;
constexpr int kPairs = static_cast<int>(kGroupSize) / 2;
// Of prefetches if there are several rows, whose products take longer than weights take to arrive.
constexpr int kNearPrefetchDistance = 512;

/*! \brief Some groups, of adjacent tiles and adjacent rows in a panel. */
struct BF16Step {
  const BF16Tile* weights;
  int64_t tile_stride;  //!< From a tile to the next.
  const BF16Group* x;
  int64_t stride;  //!< From a group of activations to the next.
  int groups;
};

/*!
 * \brief The products of some rows and some tiles.
 * \tparam Operands The products of pairs: see bf16_pairs.h.
 */
template <typename Operands>
struct BF16Dot {
  using Lanes = typename Operands::Lanes;
  using Vector = typename Lanes::Vector;
  static constexpr bool kHasWideRegisters = Lanes::kRegisters == 1;
  static constexpr int kMaxRows = kHasWideRegisters ? 8 : 4;
  // 16 or 24 sums leave registers for the weights of the tiles and a pair of activations.
  static constexpr int kTiles = kHasWideRegisters ? 4 - Operands::kVectors : 1;
  static constexpr int kTilesOfOneRow = Lanes::kRegisters <= 2 ? 4 / Lanes::kRegisters : 1;

  template <int kRows, int kTileCount>
  static void AddProducts(const BF16Step& step, float (*sums)[kTileCount][kTileRows]) {
    Vector dots[kRows][kTileCount];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int t = 0; t < kTileCount; ++t) dots[r][t] = Lanes::Load(sums[r][t]);
    }
    const BF16Tile* weights = step.weights;
    const BF16Group* x = step.x;
    for (int g = 0; g < step.groups; ++g, ++weights, x += step.stride) {
#pragma GCC unroll 1
      for (int i = 0; i < kPairs; ++i) AddPair(weights, step.tile_stride, x, i, dots);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int t = 0; t < kTileCount; ++t) Lanes::Store(sums[r][t], dots[r][t]);
    }
  }

 private:
  template <int kRows, int kTileCount>
  [[gnu::always_inline]] static void AddPair(const BF16Tile* weights, int64_t tile_stride,
                                             const BF16Group* x, int pair,
                                             Vector (&dots)[kRows][kTileCount]) {
    constexpr int kDistance = kRows == 1 ? kPrefetchDistancePerStream : kNearPrefetchDistance;
    typename Operands::Pairs pairs[kTileCount];
#pragma GCC unroll 4
    for (int t = 0; t < kTileCount; ++t) {
      const uint16_t* of_tile = weights[t * tile_stride].pairs[pair];
      __builtin_prefetch(reinterpret_cast<const char*>(of_tile) + kDistance);
      pairs[t] = Operands::Load(of_tile);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto two = Operands::Set(x[r].values + 2 * pair);
#pragma GCC unroll 4
      for (int t = 0; t < kTileCount; ++t) dots[r][t] = Operands::Add(pairs[t], two, dots[r][t]);
    }
  }
};

/*! \tparam Operands The products of pairs: see bf16_pairs.h. */
template <typename Operands>
class BF16Kernel {
 public:
  static void Run(const LinearBlock& block) {
    for (int64_t row = block.row_begin; row < block.row_end; row += kBF16Rows) {
      const int64_t left = block.row_end - row;
      RunRows(block, row, row + (left < kBF16Rows ? left : kBF16Rows));
    }
  }

 private:
  using Dot = BF16Dot<Operands>;
  using Lanes = typename Operands::Lanes;

  static void RunRows(const LinearBlock& block, int64_t row_begin, int64_t row_end) {
    int64_t tile = block.tile_begin;
    const int64_t end = block.tile_end;
    if (row_end - row_begin == 1) {
      RunTiles<Dot::kTilesOfOneRow>(block, tile, row_begin, row_end, end);
    } else if constexpr (Dot::kTiles == 3) {
      // Four tiles are two pairs: of a single one, each product needs a load.
      const int64_t rest = (end - tile) % 3;
      RunTiles<3>(block, tile, row_begin, row_end, end - (rest == 1 ? 4 : rest));
    }
    if constexpr (Dot::kTiles >= 2) RunTiles<2>(block, tile, row_begin, row_end, end);
    RunTiles<1>(block, tile, row_begin, row_end, end);
  }

  /*! \brief Compute tiles from `tile` on, kTileCount at a time, and advance `tile`. */
  template <int kTileCount>
  static void RunTiles(const LinearBlock& block, int64_t& tile, int64_t row_begin, int64_t row_end,
                       int64_t tile_end) {
    for (; tile + kTileCount <= tile_end; tile += kTileCount) {
      Multiply<kTileCount>(block, tile, row_begin, row_end);
    }
  }

  template <int kTileCount>
  static void Multiply(const LinearBlock& block, int64_t tile, int64_t row_begin, int64_t row_end) {
    // Of one chunk, the sums of a panel are stored while they are in the first-level cache.
    const int64_t rows = GroupsOf(block.num_inputs) > kBF16Chunk ? kBF16Rows : kPanelRows;
    for (int64_t row = row_begin; row < row_end; row += rows) {
      const int64_t left = row_end - row;
      MultiplyRows<kTileCount>(block, tile, row, row + (left < rows ? left : rows));
    }
  }

  template <int kTileCount>
  static void MultiplyRows(const LinearBlock& block, int64_t tile, int64_t row_begin,
                           int64_t row_end) {
    alignas(64) float sums[kBF16Rows][kTileCount][kTileRows];
    __builtin_memset(sums, 0, static_cast<size_t>(row_end - row_begin) * sizeof(sums[0]));
    AddAll<kTileCount>(block, tile, row_begin, row_end, sums);
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int t = 0; t < kTileCount; ++t) {
        StoreOutputs<Lanes>(block, row, tile + t, Lanes::Load(sums[row - row_begin][t]));
      }
    }
  }

  template <int kTileCount>
  static void AddAll(const LinearBlock& block, int64_t tile, int64_t row_begin, int64_t row_end,
                     float (*sums)[kTileCount][kTileRows]) {
    const FlushDenormals flush;
    const int64_t groups = GroupsOf(block.num_inputs);
    const BF16Tile* first = static_cast<const BF16Tile*>(block.packed) + tile * groups;
    for (int64_t begin = 0; begin < groups; begin += kBF16Chunk) {
      const int64_t left = groups - begin;
      BF16Step step = {};
      step.weights = first + begin;
      step.tile_stride = groups;
      step.groups = static_cast<int>(left < kBF16Chunk ? left : kBF16Chunk);
      for (int64_t row = row_begin; row < row_end; row += kPanelRows) {
        const PanelCursor at = PanelOf(row, block.row_end);
        step.stride = at.height;
        step.x = block.bf16_rows + at.panel * groups + begin * at.height;
        AddPanel<kTileCount>(step, at.height, sums + (row - row_begin));
      }
    }
  }

  /*! \brief Add the products of the rows of a panel. */
  template <int kTileCount>
  static void AddPanel(const BF16Step& step, int64_t height, float (*sums)[kTileCount][kTileRows]) {
    int64_t row = 0;
    AddRows<kTileCount, 8>(step, height, row, sums);
    AddRows<kTileCount, 4>(step, height, row, sums);
    AddRows<kTileCount, 2>(step, height, row, sums);
    AddRows<kTileCount, 1>(step, height, row, sums);
  }

  /*! \brief Add the products of rows from `row` on, as long as `kRows` rows are left. */
  template <int kTileCount, int kRows>
  static void AddRows(const BF16Step& step, int64_t height, int64_t& row,
                      float (*sums)[kTileCount][kTileRows]) {
    if constexpr (kRows <= Dot::kMaxRows && (kTileCount <= Dot::kTiles || kRows == 1)) {
      for (; row + kRows <= height; row += kRows) {
        BF16Step rows = step;
        rows.x += row;
        Dot::template AddProducts<kRows, kTileCount>(rows, sums + row);
      }
    }
  }
};

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_BASE_BF16_LANES_H_
