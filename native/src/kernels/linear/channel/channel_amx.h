/*!
 * \file kernels/linear/channel/channel_amx.h
 * \brief The kernel of int8 with one scale per output on tile registers, as a template over a class
 * of registers.
 *
 * See linear_amx.h. The registers keep the sums over all inputs, at their full depth of 64.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_AMX_H_
#define AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_AMX_H_

#include "kernels/linear/base/linear_avx512.h"
#include "kernels/linear/base/tile_shapes.h"
#include "kernels/linear/channel/channel_lanes.h"

namespace aiomlc {

namespace {

/*!
 * \brief The registers for panels of `height` rows: 0 to 3 are the sums of two panels by two tiles,
 * 4 and 5 the activations of the panels, 6 and 7 the weights of the tiles.
 */
inline TileShapes ChannelShapes(int64_t height) {
  const auto rows = static_cast<uint8_t>(height);
  return {.row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
          .rows = {rows, rows, rows, rows, rows, rows, 16, 16}};
}

/*!
 * \brief Brings the next weights to the second-level cache while the panels are multiplied by the
 * present ones.
 *
 * The hardware would begin to load them with the first panels, which wait for them.
 */
class NextWeights {
 public:
  /*! \param steps The calls of `Prefetch` in which all of the weights are prefetched. */
  NextWeights(const uint8_t* begin, const uint8_t* end, int64_t steps)
      : at_(begin), end_(end), step_lines_(((end - begin) / kLine + steps - 1) / steps) {}

  [[gnu::always_inline]] void Prefetch() {
    for (int64_t line = 0; line < step_lines_ && at_ < end_; ++line, at_ += kLine) {
      __builtin_prefetch(at_, 0, kSecondLevel);
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  static constexpr int kSecondLevel = 2;

  const uint8_t* at_;
  const uint8_t* end_;
  int64_t step_lines_;
};

/*! \brief A panel of activations for the tile registers. */
struct ChannelPanel {
  const uint8_t* x;  //!< [group of 64 inputs][row of the registers][input of 64].
  int64_t row;       //!< The first row of the panel in the matrix.
  int64_t rows;      //!< Its rows in the matrix, which the registers may exceed.
};

/*!
 * \brief Multiplies the panels of a block.
 *
 * The last panel may have fewer rows. Beside others it gets rows of zeros, because the weights are
 * in the caches then; alone, the registers have its height.
 */
template <typename Tiles>
class ChannelTileKernel {
 public:
  static void Run(const LinearBlock& block) {
    const int64_t rows = block.row_end - block.row_begin;
    const int64_t height = rows < kPanelRows ? rows : kPanelRows;
    ChannelTileKernel(block, height).MultiplyTiles();
  }

 private:
  ChannelTileKernel(const LinearBlock& block, int64_t height)
      : block_(block),
        tiles_(ChannelShapes(height)),
        height_(height),
        last_(PanelOf(block.row_end - 1, block.row_end)),
        padded_(last_.height < height ? Padded() : nullptr) {}

  void MultiplyTiles() {
    const int64_t panel_pairs =
        (block_.row_end - block_.row_begin + 2 * height_ - 1) / (2 * height_);
    const int64_t steps = panel_pairs * ChannelGroupsOf(block_.num_inputs);
    const uint8_t* end = ChannelTileAt(block_, block_.tile_end);
    // Two panels by two tiles, so that each load of a register serves two products.
    for (int64_t tile = block_.tile_begin; tile < block_.tile_end; tile += 2) {
      const bool has_second_tile = tile + 1 < block_.tile_end;
      const uint8_t* next = has_second_tile ? ChannelTileAt(block_, tile + 2) : end;
      const int64_t left = end - next;
      const int64_t pair_bytes = 2 * ChannelTileBytes(block_.num_inputs);
      NextWeights ahead(next, next + (left < pair_bytes ? left : pair_bytes), steps);
      for (int64_t row = block_.row_begin; row < block_.row_end; row += 2 * height_) {
        const bool has_second_panel = row + height_ < block_.row_end;
        if (has_second_tile && has_second_panel) {
          Multiply<2, 2>(tile, row, ahead);
        } else if (has_second_tile) {
          Multiply<1, 2>(tile, row, ahead);
        } else if (has_second_panel) {
          Multiply<2, 1>(tile, row, ahead);
        } else {
          Multiply<1, 1>(tile, row, ahead);
        }
      }
    }
  }

  /*! \return The last panel with rows of zeros. */
  const uint8_t* Padded() const {
    const int64_t groups = ChannelGroupsOf(block_.num_inputs);
    const int64_t group_bytes = height_ * kChannelGroup;
    const int64_t bytes = last_.height * kChannelGroup;
    const uint8_t* x = block_.int8_rows + last_.panel * ChannelRowBytes(block_.num_inputs);
    auto* padded = reinterpret_cast<uint8_t*>(KernelScratch(groups * group_bytes));
    for (int64_t g = 0; g < groups; ++g, x += bytes) {
      uint8_t* group = padded + g * group_bytes;
      __builtin_memcpy(group, x, bytes);
      __builtin_memset(group + bytes, 0, group_bytes - bytes);
    }
    return padded;
  }

  ChannelPanel PanelAt(int64_t row) const {
    if (padded_ != nullptr && row == last_.panel) return {padded_, row, last_.height};
    return {block_.int8_rows + row * ChannelRowBytes(block_.num_inputs), row, height_};
  }

  template <int kPanels, int kTiles>
  void Multiply(int64_t tile, int64_t row, NextWeights& ahead) {
    const ChannelPanel first = PanelAt(row);
    const ChannelPanel second = kPanels == 2 ? PanelAt(row + height_) : first;
    AddProducts<kPanels, kTiles>(first.x, second.x, tile, ahead);
    StoreSums<0>(tile, first);
    if constexpr (kTiles == 2) StoreSums<1>(tile + 1, first);
    if constexpr (kPanels == 2) StoreSums<2>(tile, second);
    if constexpr (kPanels == 2 && kTiles == 2) StoreSums<3>(tile + 1, second);
  }

  template <int kPanels, int kTiles>
  void AddProducts(const uint8_t* x, const uint8_t* second_x, int64_t tile, NextWeights& ahead) {
    const int64_t groups = ChannelGroupsOf(block_.num_inputs);
    const int64_t tile_bytes = ChannelTileBytes(block_.num_inputs);
    const int64_t group_bytes = height_ * kChannelGroup;
    const uint8_t* weights = ChannelTileAt(block_, tile) + sizeof(ChannelTile);
    Tiles& tiles = tiles_;
    tiles.template Zero<0>();
    if constexpr (kTiles == 2) tiles.template Zero<1>();
    if constexpr (kPanels == 2) tiles.template Zero<2>();
    if constexpr (kPanels == 2 && kTiles == 2) tiles.template Zero<3>();
    for (int64_t g = 0; g < groups;
         ++g, x += group_bytes, second_x += group_bytes, weights += kChannelGroupBytes) {
      tiles.template Load<4>(x, kChannelGroup);
      tiles.template Load<6>(weights, kChannelQuadBytes);
      tiles.template AddBiasedDots<0, 4, 6>();
      if constexpr (kTiles == 2) {
        tiles.template Load<7>(weights + tile_bytes, kChannelQuadBytes);
        tiles.template AddBiasedDots<1, 4, 7>();
      }
      if constexpr (kPanels == 2) {
        tiles.template Load<5>(second_x, kChannelGroup);
        tiles.template AddBiasedDots<2, 5, 6>();
      }
      if constexpr (kPanels == 2 && kTiles == 2) tiles.template AddBiasedDots<3, 5, 7>();
      ahead.Prefetch();
    }
  }

  template <int kRegister>
  void StoreSums(int64_t tile, const ChannelPanel& panel) {
    alignas(64) int32_t sums[kPanelRows][kTileRows];
    tiles_.template Store<kRegister>(sums, sizeof(sums[0]));
    // A local variable, which the stores of outputs cannot change.
    const LinearBlock block = block_;
    const auto* header = reinterpret_cast<const ChannelTile*>(ChannelTileAt(block, tile));
    const __m512i offsets = _mm512_slli_epi32(_mm512_loadu_si512(header->sums), kBiasBits);
    const __m512 scales = _mm512_loadu_ps(header->scales);
    for (int64_t r = 0; r < panel.rows; ++r) {
      const __m512i dots = _mm512_sub_epi32(_mm512_load_si512(sums[r]), offsets);
      const float x_scale = ChannelScaleOf(block, {panel.row, panel.rows, r});
      StoreScaled<Avx512Lanes>(block, panel.row + r, tile, {scales}, x_scale, {dots});
    }
  }

  static constexpr int kBiasBits = 7;
  static_assert(1 << kBiasBits == kByteBias);

  const LinearBlock& block_;
  Tiles tiles_;
  int64_t height_;  // Of the registers.
  PanelCursor last_;
  const uint8_t* padded_;  // The last panel, if its height is another one.
};

// Fewer rows are as fast on AVX-512, because memory is the limit.
constexpr int64_t kMinChannelRows = 4;

/*!
 * \brief The kernel of int8 with one scale per output.
 * \tparam Tiles See linear_amx.h.
 */
template <typename Tiles>
void ChannelOnTiles(const LinearBlock& block) {
  if (block.row_end - block.row_begin >= kMinChannelRows) {
    ChannelTileKernel<Tiles>::Run(block);
  } else if (block.row_begin < block.row_end) {
    ChannelStreamsAvx512(block);
  }
}

/*!
 * \brief The kernel of 4 bits with progressive scales: some tiles at a time are unpacked to the
 * second-level cache, because the registers keep their sums over all inputs.
 */
template <typename Tiles>
void ProgressiveOnTiles(const LinearBlock& block) {
  if (block.row_end - block.row_begin < kMinChannelRows) {
    return kChannelAvx512.multiply_progressive(block);
  }
  constexpr int64_t kUnpackedBytes = 256 << 10;
  const int64_t tile_bytes = ChannelTileBytes(block.num_inputs);
  const int64_t pairs = kUnpackedBytes / tile_bytes / 2;
  const int64_t step = 2 * (pairs < 1 ? 1 : pairs);
  auto* unpacked = reinterpret_cast<uint8_t*>(UnpackedScratch(step * tile_bytes));
  for (int64_t tile = block.tile_begin; tile < block.tile_end; tile += step) {
    const int64_t left = block.tile_end - tile;
    const int64_t tiles = left < step ? left : step;
    for (int64_t t = 0; t < tiles; ++t) {
      const uint8_t* packed = ProgressiveMatrix::TileAt(block, tile + t);
      uint8_t* target = unpacked + t * tile_bytes;
      __builtin_memcpy(target, packed, sizeof(ChannelTile));
      UnpackGroups<Avx512Lanes, kPrefetchDistance>(
          reinterpret_cast<const ProgressiveGroup*>(packed + sizeof(ChannelTile)),
          ChannelGroupsOf(block.num_inputs), target + sizeof(ChannelTile));
    }
    const int64_t first = tile * kTileRows;
    LinearBlock part = block;
    part.packed = unpacked;
    part.num_outputs = block.num_outputs - first;
    part.tile_begin = 0;
    part.tile_end = tiles;
    if (block.bias != nullptr) part.bias = block.bias + first;
    const int64_t out_bytes = block.out_type == FloatType::kF32 ? 4 : 2;
    part.out = static_cast<uint8_t*>(block.out) + first * out_bytes;
    ChannelTileKernel<Tiles>::Run(part);
  }
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_AMX_H_
