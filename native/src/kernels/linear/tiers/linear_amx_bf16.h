/*!
 * \file kernels/linear/tiers/linear_amx_bf16.h
 * \brief The bf16 kernel on tile registers, as a template over a class of registers.
 *
 * Tile registers add the products of 32 inputs in another order than the chain of the other tiers
 * (bf16_lanes.h), so the outputs have other bits, with the same accuracy. The sums of a row do not
 * depend on other rows, and each row adds 32 inputs at a time; so the bits of a row depend neither
 * on the batch nor on the number of rows in a register.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_TIERS_LINEAR_AMX_BF16_H_
#define AIOMLC_KERNELS_LINEAR_TIERS_LINEAR_AMX_BF16_H_

#include <type_traits>

#include "kernels/linear/base/linear_avx512.h"
#include "kernels/linear/base/tile_shapes.h"

namespace aiomlc {

namespace {

// The tiles and the panels that are multiplied at once: each loaded register is used twice.
constexpr int kTilesAtOnce = 2, kPanelsAtOnce = 2;
// The registers: sums of tiles times panels, then the operands.
constexpr int kFirstSums = 0, kFirstWeights = 4, kFirstRows = 6;
// The groups whose weights (16 KiB) stay in the first-level cache for all panels.
constexpr int kGroupsAtOnce = 8;
constexpr int64_t kBF16BlockRows = 8 * kPanelRows;

template <int kValue>
using Index = std::integral_constant<int, kValue>;

/*! \brief Call work(Index<i>()) for i in [kBegin, kEnd): registers are compile-time constants. */
template <int kBegin, int kEnd, typename Work>
inline __attribute__((always_inline)) void ForIndices(Work work) {
  if constexpr (kBegin < kEnd) {
    work(Index<kBegin>());
    ForIndices<kBegin + 1, kEnd>(work);
  }
}

inline TileShapes RegistersFor(int64_t height) {
  TileShapes shapes = {};
  for (int i = 0; i < kFirstRows + kPanelsAtOnce; ++i) {
    const bool is_weights = i >= kFirstWeights && i < kFirstRows;
    shapes.row_bytes[i] = 64;
    shapes.rows[i] = static_cast<uint8_t>(is_weights ? kPanelRows : height);
  }
  return shapes;
}

/*! \brief Consecutive groups of inputs, for adjacent tiles and adjacent panels of one height. */
struct BF16Groups {
  const BF16Tile* weights;
  int64_t tile_stride;  //!< From a tile to the next.
  const BF16Group* x;
  int64_t panel_stride;  //!< From a panel to the next.
  int64_t height;
  int count;
};

/*! \brief Add the products to `sums`, [kPanels][height][16] of each tile. */
template <int kTileCount, int kPanels, typename Tiles>
void AddGroups(Tiles& tiles, const BF16Groups& groups, float* sums, int64_t sums_stride) {
  const int64_t panel_sums = groups.height * kTileRows;
  const auto each = [&](auto work) __attribute__((always_inline)) {
    ForIndices<0, kTileCount>([&](auto t) __attribute__((always_inline)) {
      ForIndices<0, kPanels>([&](auto p) __attribute__((always_inline)) { work(t, p); });
    });
  };
  each([&](auto t, auto p) __attribute__((always_inline)) {
    tiles.template Load<kFirstSums + t.value * kPanels + p.value>(
        sums + t.value * sums_stride + p.value * panel_sums, 64);
  });
  const BF16Group* x = groups.x;
  for (int g = 0; g < groups.count; ++g, x += groups.height) {
    ForIndices<0, kTileCount>([&](auto t) __attribute__((always_inline)) {
      const BF16Tile* weights = groups.weights + t.value * groups.tile_stride + g;
      const char* ahead = reinterpret_cast<const char*>(weights) + kPrefetchDistancePerStream;
      for (int line = 0; line < kPanelRows; ++line) __builtin_prefetch(ahead + 64 * line);
      tiles.template Load<kFirstWeights + t.value>(weights->pairs, 64);
    });
    ForIndices<0, kPanels>([&](auto p) __attribute__((always_inline)) {
      tiles.template Load<kFirstRows + p.value>(x + p.value * groups.panel_stride, 64);
    });
    each([&](auto t, auto p) __attribute__((always_inline)) {
      tiles.template AddPairs<kFirstSums + t.value * kPanels + p.value, kFirstRows + p.value,
                              kFirstWeights + t.value>();
    });
  }
  each([&](auto t, auto p) __attribute__((always_inline)) {
    tiles.template Store<kFirstSums + t.value * kPanels + p.value>(
        sums + t.value * sums_stride + p.value * panel_sums, 64);
  });
}

/*! \brief Multiply panels of one height, at most kBF16BlockRows rows, by kTileCount tiles. */
template <int kTileCount, typename Tiles>
void MultiplyPanels(const LinearBlock& block, int64_t tile, int64_t row_begin, int64_t row_end,
                    int64_t height) {
  const int64_t groups = GroupsOf(block.num_inputs);
  const int64_t rows = row_end - row_begin;
  alignas(64) float sums[kTileCount * kBF16BlockRows * kTileRows];
  __builtin_memset(sums, 0, static_cast<size_t>(kTileCount * rows * kTileRows) * sizeof(float));
  {
    Tiles tiles(RegistersFor(height));
    for (int64_t begin = 0; begin < groups; begin += kGroupsAtOnce) {
      const int64_t left = groups - begin;
      BF16Groups part = {
          .weights = static_cast<const BF16Tile*>(block.packed) + tile * groups + begin,
          .tile_stride = groups,
          .x = nullptr,
          .panel_stride = height * groups,
          .height = height,
          .count = static_cast<int>(left < kGroupsAtOnce ? left : kGroupsAtOnce)};
      for (int64_t row = 0; row < rows;) {
        part.x = block.bf16_rows + (row_begin + row) * groups + begin * height;
        float* first = sums + row * kTileRows;
        if (rows - row >= kPanelsAtOnce * height) {
          AddGroups<kTileCount, kPanelsAtOnce>(tiles, part, first, rows * kTileRows);
          row += kPanelsAtOnce * height;
        } else {
          AddGroups<kTileCount, 1>(tiles, part, first, rows * kTileRows);
          row += height;
        }
      }
    }
  }
  for (int64_t t = 0; t < kTileCount; ++t) {
    for (int64_t row = 0; row < rows; ++row) {
      StoreSums(block, row_begin + row, tile + t,
                _mm512_load_ps(sums + (t * rows + row) * kTileRows));
    }
  }
}

/*! \brief Multiply all rows of the block by kTileCount tiles of weights. */
template <int kTileCount, typename Tiles>
void MultiplyRows(const LinearBlock& block, int64_t tile) {
  for (int64_t row = block.row_begin; row < block.row_end;) {
    int64_t count = block.row_end - row;
    const int64_t height = count < kPanelRows ? count : kPanelRows;
    count = count < kBF16BlockRows ? count - count % height : kBF16BlockRows;
    MultiplyPanels<kTileCount, Tiles>(block, tile, row, row + count, height);
    row += count;
  }
}

/*!
 * \brief The bf16 kernel.
 * \tparam Tiles The registers; constructed from `TileShapes`, and released by its destructor.
 */
template <typename Tiles>
void BF16OnTiles(const LinearBlock& block) {
  int64_t tile = block.tile_begin;
  for (; tile + kTilesAtOnce <= block.tile_end; tile += kTilesAtOnce) {
    MultiplyRows<kTilesAtOnce, Tiles>(block, tile);
  }
  for (; tile < block.tile_end; ++tile) MultiplyRows<1, Tiles>(block, tile);
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_TIERS_LINEAR_AMX_BF16_H_
