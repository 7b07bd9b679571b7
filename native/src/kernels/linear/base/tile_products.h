/*!
 * \file kernels/linear/base/tile_products.h
 * \brief The products of weights and activations in small groups, each with its scales, on tile
 * registers.
 *
 * A group has too few inputs to fill a register, and its sums must be scaled one group after the
 * other, in the order of the other tiers. While tile instructions are under way, a core multiplies
 * floats on one port instead of two, so the two kinds of work take turns: for a few groups of a
 * panel and of two tiles, the registers compute all sums, which stay in the first-level cache; then
 * vector instructions scale and add them. The two tiles share the activations in their register.
 *
 * A weight format is a class `Format` with
 *
 *   using Weights = ...;      // A group of a tile, unpacked: `quads`, and what `Add` reads.
 *   using Activations = ...;  // A group of a row; begins with the values.
 *   static const Activations* Panels(const LinearBlock&);  // Of all rows.
 *   // Reads the groups of a tile: `Unpack(count, weights)` the next ones; `Prefetch(ahead)` the
 *   // one after `ahead` others.
 *   class Reader { Reader(const LinearBlock&, int64_t tile); ... };
 *   // Set the sums of a register to what `Add` expects without any products.
 *   template <int kSums, typename Tiles> static void Begin(Tiles&, const Weights&);
 *   template <int kSums, int kA, int kB, typename Tiles> static void AddProducts(Tiles&);
 *   // Add the scaled products of a row.
 *   static __m512 Add(const Weights&, __m512i dot, const Activations&, __m512 sums);
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_BASE_TILE_PRODUCTS_H_
#define AIOMLC_KERNELS_LINEAR_BASE_TILE_PRODUCTS_H_

#include <cstdint>

#include "kernels/linear/base/linear_avx512.h"
#include "kernels/linear/base/tile_shapes.h"

namespace aiomlc {

namespace {

// The tiles that share the activations.
constexpr int kSharedTiles = 2;
// The groups that are unpacked at a time. Their sums, 16 KiB for two tiles, stay in the first-level
// cache.
constexpr int kCachedGroups = 8;
// A last panel with fewer rows is faster with the AVX-512 kernels.
constexpr int64_t kMinPanelRows = 8;

/*! \brief The registers: 0 and 1 are the sums, 2 the activations, 3 and 4 the weights. */
constexpr TileShapes kProductShapes = {.row_bytes = {64, 64, kGroupSize, 64, 64},
                                       .rows = {16, 16, 16, kGroupSize / 4, kGroupSize / 4}};

/*! \brief Groups of a panel of activations, and the same groups of one or two tiles of weights. */
template <typename Format>
struct PanelGroups {
  const typename Format::Weights* weights[kSharedTiles];
  const typename Format::Activations* x;  //!< 16 rows of each group.
  int64_t stride;                         //!< The distance between groups of x.
  int count;                              //!< At most kCachedGroups.
};

/*! \brief The sums of 16 rows and 16 outputs. */
using Dots = int32_t[kPanelRows][kTileRows];

/*! \brief Multiply the sums of a tile's groups by their scales, and add them to `sums`. */
template <typename Format>
void AddScaledDots(const PanelGroups<Format>& groups, int tile, const Dots* dots,
                   float (*sums)[kTileRows]) {
  const typename Format::Weights* weights = groups.weights[tile];
  __m512 rows[kPanelRows];
#pragma GCC unroll 16
  for (int r = 0; r < kPanelRows; ++r) rows[r] = _mm512_load_ps(sums[r]);
  for (int group = 0; group < groups.count; ++group) {
    const typename Format::Activations* x = groups.x + group * groups.stride;
#pragma GCC unroll 16
    for (int r = 0; r < kPanelRows; ++r) {
      const __m512i dot = _mm512_load_si512(dots[group][r]);
      rows[r] = Format::Add(weights[group], dot, x[r], rows[r]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kPanelRows; ++r) _mm512_store_ps(sums[r], rows[r]);
}

/*! \brief Adds the products of groups to sums. \tparam kTiles 1 or 2. */
template <typename Format, int kTiles, typename Tiles>
class TileProducts {
 public:
  explicit TileProducts(Tiles& tiles) : tiles_(tiles) {}

  /*! \param sums Of each tile, [16][16]. */
  void AddTo(float (*sums)[kPanelRows][kTileRows], const PanelGroups<Format>& groups) {
    Multiply(groups);
    for (int tile = 0; tile < kTiles; ++tile) AddScaledDots(groups, tile, dots_[tile], sums[tile]);
  }

 private:
  static constexpr int kActivations = 2;
  static constexpr int kWeights = 3;  // The first one.
  static constexpr int kLast = kTiles - 1;
  static constexpr int64_t kDotsStride = sizeof(Dots) / kPanelRows;

  /*! \brief Compute the integer sums. */
  void Multiply(const PanelGroups<Format>& groups) {
    // Local variables, which no instruction that writes to memory can change.
    const typename Format::Activations* x = groups.x;
    const typename Format::Weights* first = groups.weights[0];
    const typename Format::Weights* last = groups.weights[kLast];
    const int64_t stride = groups.stride;
    const int count = groups.count;
    Tiles& tiles = tiles_;
    for (int group = 0; group < count; ++group, x += stride, ++first, ++last) {
      tiles.template Load<kActivations>(x, sizeof(*x));
      if constexpr (kTiles == 2) MultiplyGroup<0>(tiles, *first);
      // The sums of one tile are stored while the product of the other is computed.
      if (group > 0) tiles.template Store<kLast>(dots_[kLast][group - 1], kDotsStride);
      MultiplyGroup<kLast>(tiles, *last);
      if constexpr (kTiles == 2) tiles.template Store<0>(dots_[0][group], kDotsStride);
    }
    tiles.template Store<kLast>(dots_[kLast][count - 1], kDotsStride);
  }

  template <int kTile>
  [[gnu::always_inline]] static void MultiplyGroup(Tiles& tiles,
                                                   const typename Format::Weights& weights) {
    tiles.template Load<kWeights + kTile>(weights.quads, sizeof(weights.quads[0]));
    Format::template Begin<kTile>(tiles, weights);
    Format::template AddProducts<kTile, kActivations, kWeights + kTile>(tiles);
  }

  Tiles& tiles_;
  alignas(64) Dots dots_[kTiles][kCachedGroups];
};

/*! \brief Multiplies whole panels, and a last one of at least 8 rows. */
template <typename Format, typename Tiles>
class TileKernel {
 public:
  static void Run(const LinearBlock& block) {
    Tiles tiles(kProductShapes);
    for (int64_t row = block.row_begin; row < block.row_end; row += kBlockRows) {
      LinearBlock rows = block;
      rows.row_begin = row;
      if (block.row_end - row > kBlockRows) rows.row_end = row + kBlockRows;
      int64_t tile = block.tile_begin;
      for (; tile + kSharedTiles <= block.tile_end; tile += kSharedTiles) {
        Multiply<kSharedTiles>(tiles, rows, tile);
      }
      if (tile < block.tile_end) Multiply<1>(tiles, rows, tile);
    }
  }

 private:
  using Activations = typename Format::Activations;
  using Weights = typename Format::Weights;

  // The rows whose sums (32 KiB for two tiles) stay in the second-level cache.
  static constexpr int64_t kBlockPanels = 16;
  static constexpr int64_t kBlockRows = kBlockPanels * kPanelRows;

  template <int kTiles>
  static void Multiply(Tiles& tiles, const LinearBlock& block, int64_t tile) {
    const int64_t groups = GroupsOf(block.num_inputs);
    const int64_t panels = (block.row_end - block.row_begin + kPanelRows - 1) / kPanelRows;
    typename Format::Reader readers[] = {{block, tile}, {block, tile + kTiles - 1}};
    Weights weights[kTiles][kCachedGroups];
    alignas(64) float sums[kBlockPanels][kTiles][kPanelRows][kTileRows];
    __builtin_memset(sums, 0, panels * sizeof(sums[0]));
    TileProducts<Format, kTiles, Tiles> products(tiles);
    for (int64_t begin = 0; begin < groups; begin += kCachedGroups) {
      const int64_t left = groups - begin;
      const auto count = static_cast<int>(left < kCachedGroups ? left : kCachedGroups);
      for (int i = 0; i < kTiles; ++i) readers[i].Unpack(count, weights[i]);
      for (int64_t panel = 0; panel < panels; ++panel) {
        // A few at a time, because a core has few outstanding loads.
        for (int64_t ahead = count * panel / panels; ahead < count * (panel + 1) / panels;
             ++ahead) {
          for (int i = 0; i < kTiles; ++i) readers[i].Prefetch(static_cast<int>(ahead));
        }
        PanelGroups<Format> at = {{weights[0], weights[kTiles - 1]}, nullptr, kPanelRows, count};
        AddPanel(products, block, block.row_begin + panel * kPanelRows, begin, at, sums[panel]);
      }
    }
    for (int64_t row = block.row_begin; row < block.row_end; ++row) {
      const int64_t in_block = row - block.row_begin;
      for (int i = 0; i < kTiles; ++i) {
        const float* of_row = sums[in_block / kPanelRows][i][in_block % kPanelRows];
        StoreSums(block, row, tile + i, _mm512_load_ps(of_row));
      }
    }
  }

  /*! \brief Add the products of groups from `begin` on for the panel at `row`. */
  template <int kTiles>
  static void AddPanel(TileProducts<Format, kTiles, Tiles>& products, const LinearBlock& block,
                       int64_t row, int64_t begin, PanelGroups<Format>& at,
                       float (*sums)[kPanelRows][kTileRows]) {
    const int64_t left = block.row_end - row;
    const int64_t height = left < kPanelRows ? left : kPanelRows;
    const Activations* x =
        Format::Panels(block) + row * GroupsOf(block.num_inputs) + begin * height;
    if (height == kPanelRows) {
      at.x = x;
      return products.AddTo(sums, at);
    }
    // The registers always have 16 rows; the sums of the added ones are not used.
    Activations padded[kCachedGroups][kPanelRows] = {};
    for (int group = 0; group < at.count; ++group) {
      __builtin_memcpy(padded[group], x + group * height, height * sizeof(Activations));
    }
    at.x = padded[0];
    products.AddTo(sums, at);
  }
};

/*! \brief The rows of a block for the tile registers, and the rest. */
struct RowDivision {
  LinearBlock on_tiles, on_avx512;
};

/*! \return The division in which the tile registers have whole panels, or at least 8 rows. */
inline RowDivision DivideRows(const LinearBlock& block) {
  const int64_t last_rows = (block.row_end - block.row_begin) % kPanelRows;
  RowDivision division = {block, block};
  if (block.row_end - block.row_begin < kPanelRows) {
    division.on_tiles.row_end = block.row_begin;
  } else if (last_rows < kMinPanelRows) {
    division.on_tiles.row_end -= last_rows;
  }
  division.on_avx512.row_begin = division.on_tiles.row_end;
  return division;
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_BASE_TILE_PRODUCTS_H_
