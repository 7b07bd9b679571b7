/*!
 * \file kernels/linear/channel/channel_lanes.h
 * \brief The kernels of int8 with one scale per output, as templates over the `Lanes` classes.
 *
 * Each tier defines only the integer sums, as a class `Dot` with
 *
 *   using Lanes = ...;
 *   static constexpr int kMaxRows;     // The rows of activations at a time: 8, 4, 2 or 1.
 *   static constexpr int kTiles;       // The tiles at a time if there are several rows: 3 or 1.
 *   static constexpr int kTilesOfOneRow;  // The same of one row; only if kTiles is 3.
 *   static constexpr uint8_t kBias;    // What the bytes of activations have added: 0 or 128.
 *   // Add the products to the sums of kRows rows and kTiles tiles.
 *   template <int kRows, int kTiles>
 *   static void AddProducts(const ChannelStep& step, int32_t (*sums)[kTiles][kTileRows]);
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_LANES_H_
#define AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_LANES_H_

#include <cstdint>

#include "kernels/linear/base/linear_lanes.h"
#include "kernels/linear/channel/channel_kernels.h"
#include "kernels/linear/channel/channel_step.h"
#include "kernels/linear/channel/progressive_lanes.h"

namespace aiomlc {

namespace {

// The rows whose sums (48 KiB for three tiles) stay in the caches.
constexpr int64_t kChannelRows = 16 * kPanelRows;
// At most so many groups after which the rows change, so that the weights stay in the first-level
// cache: 8 KiB per tile.
constexpr int64_t kChannelChunk = 8;
// The fours of inputs of a group.
constexpr int kChannelQuads = static_cast<int>(kChannelGroup) / 4;

// ---- Activations ----

/*! \brief Quantize 16 activations from `at` on; zeros after the last column. */
template <typename Lanes, uint8_t kBias>
[[gnu::always_inline]] inline void QuantizeSixteen(const ChannelRow& row, int64_t at,
                                                   const ScaleDivisor<Lanes>& scale,
                                                   uint8_t* bytes) {
  const typename Lanes::Vector x =
      LoadActivations<Lanes>(row.x, row.x_type, row.first + at, row.cols - at);
  int8_t values[Lanes::kWidth];
  Lanes::StoreBytes(values, scale.Divide(x));
  for (int k = 0; k < Lanes::kWidth; ++k) {
    bytes[k] = static_cast<uint8_t>(static_cast<uint8_t>(values[k]) ^ kBias);
  }
}

template <typename Lanes, uint8_t kBias>
void QuantizeChannelRow(const ChannelRow& row) {
  static_assert(Lanes::kWidth == 16);
  constexpr uint32_t kInfinity = 0x7f800000u;
  uint32_t largest = 0;  // A comparison of bits, in which NaN is larger than infinity.
  for (int64_t k = 0; k < row.cols; k += 32) {
    const auto load = [&](int64_t at) {
      return LoadActivations<Lanes>(row.x, row.x_type, row.first + at, row.cols - at);
    };
    const uint32_t magnitude = Lanes::LargestMagnitude(load(k), load(k + 16));
    largest = magnitude > largest ? magnitude : largest;
  }
  float scale;
  __builtin_memcpy(&scale, &largest, sizeof(scale));
  scale /= 127.0f;
  __builtin_memcpy(row.scale, &scale, sizeof(scale));
  const bool is_zero = scale == 0 || largest >= kInfinity;
  const ScaleDivisor<Lanes> divisor(scale);
  uint8_t* bytes = row.bytes;
  for (int64_t k = 0; k < row.cols; k += kChannelGroup, bytes += row.stride) {
    if (is_zero) {
      __builtin_memset(bytes, kBias, kChannelGroup);
      continue;
    }
    for (int i = 0; i < kChannelGroup; i += 16) {
      QuantizeSixteen<Lanes, kBias>(row, k + i, divisor, bytes + i);
    }
  }
}

// ---- Products ----

/*! \return The scale of a row. \param bytes The panels of all rows. */
inline float ChannelScaleOf(const LinearBlock& block, const PanelCursor& at) {
  const int64_t values = ChannelGroupsOf(block.num_inputs) * kChannelGroup;
  float scale;
  __builtin_memcpy(&scale,
                   block.int8_rows + at.panel * ChannelRowBytes(block.num_inputs) +
                       at.height * values + at.row * static_cast<int64_t>(sizeof(float)),
                   sizeof(scale));
  return scale;
}

inline const uint8_t* ChannelTileAt(const LinearBlock& block, int64_t tile) {
  return static_cast<const uint8_t*>(block.packed) + tile * ChannelTileBytes(block.num_inputs);
}

/*! \brief A matrix that is stored as the kernels read it. */
struct Int8Matrix {
  static const uint8_t* TileAt(const LinearBlock& block, int64_t tile) {
    return ChannelTileAt(block, tile);
  }

  /*! \brief The chunks of some adjacent tiles. */
  template <typename Lanes, int kTiles, int64_t kChunk>
  class Chunks {
   public:
    Chunks(const LinearBlock& block, int64_t tile)
        : first_(TileAt(block, tile) + sizeof(ChannelTile)),
          tile_bytes_(ChannelTileBytes(block.num_inputs)) {}

    /*! \brief Set the weights of a step: those of `step.groups` groups from `begin` on. */
    void Set(int64_t begin, ChannelStep& step) {
      step.weights = reinterpret_cast<const int8_t*>(first_ + begin * kChannelGroupBytes);
      step.tile_bytes = tile_bytes_;
    }

   private:
    const uint8_t* first_;
    int64_t tile_bytes_;
  };
};

/*! \brief Multiply the sums of a row and a tile by their scales, and store the outputs. */
template <typename Lanes>
[[gnu::always_inline]] inline void StoreScaled(const LinearBlock& block, int64_t row, int64_t tile,
                                               typename Lanes::Vector scales, float x_scale,
                                               typename Lanes::Integers sums) {
  const typename Lanes::Vector scale = Lanes::Mul(scales, Lanes::Set(x_scale));
  StoreOutputs<Lanes>(block, row, tile, Lanes::Mul(Lanes::ToFloat(sums), scale));
}

/*! \brief The same, with the sums in memory. */
template <typename Lanes, typename Matrix>
[[gnu::always_inline]] inline void StoreChannelSums(const LinearBlock& block, int64_t row,
                                                    int64_t tile, float x_scale,
                                                    const int32_t* sums) {
  typename Lanes::Integers integers;
  static_assert(sizeof(integers) == kTileRows * sizeof(int32_t));
  __builtin_memcpy(&integers, sums, sizeof(integers));
  const auto* header = reinterpret_cast<const ChannelTile*>(Matrix::TileAt(block, tile));
  StoreScaled<Lanes>(block, row, tile, Lanes::Load(header->scales), x_scale, integers);
}

/*! \tparam Matrix Int8Matrix or ProgressiveMatrix. */
template <typename Dot, typename Matrix>
class ChannelKernel {
 public:
  static void Run(const LinearBlock& block) {
    for (int64_t row = block.row_begin; row < block.row_end; row += kChannelRows) {
      const int64_t left = block.row_end - row;
      RunRows(block, row, row + (left < kChannelRows ? left : kChannelRows));
    }
  }

 private:
  using Lanes = typename Dot::Lanes;

  static void RunRows(const LinearBlock& block, int64_t row_begin, int64_t row_end) {
    int64_t tile = block.tile_begin;
    if constexpr (Dot::kTiles == 3) {
      if (row_end - row_begin > 1 || Dot::kTilesOfOneRow == 3) {
        // Four tiles are two pairs: of a single one, each product needs a load.
        for (int64_t left; left = block.tile_end - tile, left >= 3 && left != 4; tile += 3) {
          RunTiles<3>(block, tile, row_begin, row_end);
        }
        for (; block.tile_end - tile >= 2; tile += 2) RunTiles<2>(block, tile, row_begin, row_end);
      }
    }
    for (; tile < block.tile_end; ++tile) RunTiles<1>(block, tile, row_begin, row_end);
  }

  template <int kTiles>
  static void RunTiles(const LinearBlock& block, int64_t tile, int64_t row_begin, int64_t row_end) {
    alignas(64) int32_t sums[kChannelRows][kTiles][kTileRows];
    SetOffsets<kTiles>(block, tile, sums, row_end - row_begin);
    const int64_t groups = ChannelGroupsOf(block.num_inputs);
    typename Matrix::template Chunks<Lanes, kTiles, kChannelChunk> chunks(block, tile);
    // Chunks of about the same size: a short one loads and stores the sums for few products.
    const int64_t num_chunks = (groups + kChannelChunk - 1) / kChannelChunk;
    const int64_t chunk = (groups + num_chunks - 1) / num_chunks;
    for (int64_t begin = 0; begin < groups; begin += chunk) {
      const int64_t left = groups - begin;
      ChannelStep step = {};
      step.groups = static_cast<int>(left < chunk ? left : chunk);
      chunks.Set(begin, step);
      for (int64_t row = row_begin; row < row_end; row += kPanelRows) {
        const PanelCursor at = PanelOf(row, block.row_end);
        step.stride = at.height * kChannelGroup;
        step.x =
            block.int8_rows + at.panel * ChannelRowBytes(block.num_inputs) + begin * step.stride;
        AddPanel<kTiles>(step, at.height, sums + (row - row_begin));
      }
    }
    for (int64_t row = row_begin; row < row_end; ++row) {
      const float x_scale = ChannelScaleOf(block, PanelOf(row, block.row_end));
      for (int t = 0; t < kTiles; ++t) {
        StoreChannelSums<Lanes, Matrix>(block, row, tile + t, x_scale, sums[row - row_begin][t]);
      }
    }
  }

  /*! \brief Set all sums to what compensates for the bias of the activations. */
  template <int kTiles>
  static void SetOffsets(const LinearBlock& block, int64_t tile, int32_t (*sums)[kTiles][kTileRows],
                         int64_t rows) {
    for (int t = 0; t < kTiles; ++t) {
      const auto* header = reinterpret_cast<const ChannelTile*>(Matrix::TileAt(block, tile + t));
      for (int64_t n = 0; n < kTileRows; ++n)
        sums[0][t][n] = -int32_t{Dot::kBias} * header->sums[n];
    }
    for (int64_t row = 1; row < rows; ++row) __builtin_memcpy(sums[row], sums[0], sizeof(sums[0]));
  }

  /*! \brief Add the products of the rows of a panel. */
  template <int kTiles>
  static void AddPanel(const ChannelStep& step, int64_t height,
                       int32_t (*sums)[kTiles][kTileRows]) {
    int64_t row = 0;
    AddRows<kTiles, 8>(step, height, row, sums);
    AddRows<kTiles, 4>(step, height, row, sums);
    AddRows<kTiles, 2>(step, height, row, sums);
    AddRows<kTiles, 1>(step, height, row, sums);
  }

  /*! \brief Add the products of rows from `row` on, as long as `kRows` rows are left. */
  template <int kTiles, int kRows>
  static void AddRows(const ChannelStep& step, int64_t height, int64_t& row,
                      int32_t (*sums)[kTiles][kTileRows]) {
    if constexpr (kRows <= Dot::kMaxRows) {
      for (; row + kRows <= height; row += kRows) {
        ChannelStep rows = step;
        rows.x += row * kChannelGroup;
        Dot::template AddProducts<kRows, kTiles>(rows, sums + row);
      }
    }
  }
};

/*! \return The kernels of a tier. */
template <typename Dot>
constexpr ChannelKernels ChannelKernelsOf() noexcept {
  using Lanes = typename Dot::Lanes;
  return {QuantizeChannelRow<Lanes, Dot::kBias>, ChannelKernel<Dot, Int8Matrix>::Run,
          RotateRow<Lanes>, ChannelKernel<Dot, ProgressiveMatrix>::Run};
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_LANES_H_
