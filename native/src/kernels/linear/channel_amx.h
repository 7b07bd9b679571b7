/*!
 * \file kernels/linear/channel_amx.h
 * \brief The kernel of int8 with one scale per output on tile registers, as a template over a class
 * of registers.
 *
 * See linear_amx.h. The registers keep the sums over all inputs, at their full depth of 64.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_CHANNEL_AMX_H_
#define AIOMLC_KERNELS_LINEAR_CHANNEL_AMX_H_

#include "kernels/linear/channel_lanes.h"
#include "kernels/linear/linear_avx512.h"
#include "kernels/linear/tile_shapes.h"

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

/*! \brief Multiplies panels of the same height. */
template <typename Tiles>
class ChannelTileKernel {
 public:
  /*! \param block Its rows are panels of `height` rows. */
  static void Run(const LinearBlock& block, int64_t height) {
    Tiles tiles(ChannelShapes(height));
    const int64_t panel_pairs = (block.row_end - block.row_begin + 2 * height - 1) / (2 * height);
    const int64_t steps = panel_pairs * ChannelGroupsOf(block.num_inputs);
    const uint8_t* end = ChannelTileAt(block, block.tile_end);
    // Two panels by two tiles, so that each load of a register serves two products.
    for (int64_t tile = block.tile_begin; tile < block.tile_end; tile += 2) {
      const bool has_second_tile = tile + 1 < block.tile_end;
      const uint8_t* next = has_second_tile ? ChannelTileAt(block, tile + 2) : end;
      const int64_t left = end - next;
      const int64_t pair_bytes = 2 * ChannelTileBytes(block.num_inputs);
      NextWeights ahead(next, next + (left < pair_bytes ? left : pair_bytes), steps);
      for (int64_t row = block.row_begin; row < block.row_end; row += 2 * height) {
        const bool has_second_panel = row + height < block.row_end;
        if (has_second_tile && has_second_panel) {
          Multiply<2, 2>(tiles, block, tile, row, height, ahead);
        } else if (has_second_tile) {
          Multiply<1, 2>(tiles, block, tile, row, height, ahead);
        } else if (has_second_panel) {
          Multiply<2, 1>(tiles, block, tile, row, height, ahead);
        } else {
          Multiply<1, 1>(tiles, block, tile, row, height, ahead);
        }
      }
    }
  }

 private:
  template <int kPanels, int kTiles>
  static void Multiply(Tiles& tiles, const LinearBlock& block, int64_t tile, int64_t row,
                       int64_t height, NextWeights& ahead) {
    const int64_t groups = ChannelGroupsOf(block.num_inputs);
    const int64_t tile_bytes = ChannelTileBytes(block.num_inputs);
    const int64_t panel_bytes = height * ChannelRowBytes(block.num_inputs);
    const uint8_t* weights = ChannelTileAt(block, tile) + sizeof(ChannelTile);
    const uint8_t* x = block.int8_rows + row * ChannelRowBytes(block.num_inputs);
    tiles.template Zero<0>();
    if constexpr (kTiles == 2) tiles.template Zero<1>();
    if constexpr (kPanels == 2) tiles.template Zero<2>();
    if constexpr (kPanels == 2 && kTiles == 2) tiles.template Zero<3>();
    for (int64_t g = 0; g < groups;
         ++g, x += height * kChannelGroup, weights += kChannelGroupBytes) {
      tiles.template Load<4>(x, kChannelGroup);
      tiles.template Load<6>(weights, kChannelQuadBytes);
      tiles.template AddBiasedDots<0, 4, 6>();
      if constexpr (kTiles == 2) {
        tiles.template Load<7>(weights + tile_bytes, kChannelQuadBytes);
        tiles.template AddBiasedDots<1, 4, 7>();
      }
      if constexpr (kPanels == 2) {
        tiles.template Load<5>(x + panel_bytes, kChannelGroup);
        tiles.template AddBiasedDots<2, 5, 6>();
      }
      if constexpr (kPanels == 2 && kTiles == 2) tiles.template AddBiasedDots<3, 5, 7>();
      ahead.Prefetch();
    }
    StoreSums<0>(tiles, block, tile, row, height);
    if constexpr (kTiles == 2) StoreSums<1>(tiles, block, tile + 1, row, height);
    if constexpr (kPanels == 2) StoreSums<2>(tiles, block, tile, row + height, height);
    if constexpr (kPanels == 2 && kTiles == 2) {
      StoreSums<3>(tiles, block, tile + 1, row + height, height);
    }
  }

  template <int kRegister>
  static void StoreSums(Tiles& tiles, const LinearBlock& block, int64_t tile, int64_t row,
                        int64_t height) {
    alignas(64) int32_t sums[kPanelRows][kTileRows];
    tiles.template Store<kRegister>(sums, sizeof(sums[0]));
    const auto* header = reinterpret_cast<const ChannelTile*>(ChannelTileAt(block, tile));
    const __m512i offsets = _mm512_slli_epi32(_mm512_loadu_si512(header->sums), kBiasBits);
    for (int64_t r = 0; r < height; ++r) {
      const __m512i dots = _mm512_load_si512(sums[r]);
      _mm512_store_si512(sums[r], _mm512_sub_epi32(dots, offsets));
      StoreChannelSums<Avx512Lanes>(block, row + r, tile, ChannelScaleOf(block, {row, height, r}),
                                    sums[r]);
    }
  }

  static constexpr int kBiasBits = 7;
  static_assert(1 << kBiasBits == kByteBias);
};

/*!
 * \brief The kernel of int8 with one scale per output.
 * \tparam Tiles See linear_amx.h.
 */
template <typename Tiles>
void ChannelOnTiles(const LinearBlock& block) {
  LinearBlock rest = block;
  rest.row_begin = block.row_end - (block.row_end - block.row_begin) % kPanelRows;
  if (block.row_begin < rest.row_begin) {
    LinearBlock whole = block;
    whole.row_end = rest.row_begin;
    ChannelTileKernel<Tiles>::Run(whole, kPanelRows);
  }
  const int64_t height = rest.row_end - rest.row_begin;
  // Fewer rows are as fast on AVX-512, because memory is the limit.
  constexpr int64_t kMinHeight = 4;
  if (height >= kMinHeight) {
    ChannelTileKernel<Tiles>::Run(rest, height);
  } else if (height > 0) {
    ChannelStreamsAvx512(rest);
  }
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_CHANNEL_AMX_H_
