/*!
 * \file kernels/linear/grouped_amx.h
 * \brief The kernel of grouped formats on tile registers, as a template over a class of registers.
 *
 * See linear_amx.h. The activations are the unsigned operand of the tile instructions.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_GROUPED_AMX_H_
#define AIOMLC_KERNELS_LINEAR_GROUPED_AMX_H_

#include <cstddef>

#include "kernels/linear/grouped_avx512.h"
#include "kernels/linear/linear_amx.h"

namespace aiomlc {

namespace {

/*! \brief The registers of linear_amx.h, with the inputs of one part of a chunk. */
template <int kParts>
constexpr TileShapes kGroupedShapes = {.row_bytes = {64, 64, 32 / kParts, 32 / kParts, 64, 64},
                                       .rows = {16, 16, 16, 16, kQuads / kParts, kQuads / kParts}};

template <typename Tiles, int kParts, bool kSubtracts>
class GroupedTileKernel {
 public:
  /*! \brief Multiply at most kGroupedRows rows by one tile of weights. */
  static void Run(Tiles& tiles, const LinearBlock& block, int64_t tile, int64_t row_begin,
                  int64_t row_end) {
    const int64_t chunks = GroupsOf(block.num_inputs);
    ChunkReader<Avx512GroupedDot, kParts> reader(block.tile, GroupedTileAt(block, tile));
    Chunk unpacked[kUnpackedChunks];
    alignas(64) float sums[kGroupedRows][kTileRows] = {};
    for (int64_t begin = 0; begin < chunks; begin += kUnpackedChunks) {
      const int count =
          static_cast<int>(chunks - begin < kUnpackedChunks ? chunks - begin : kUnpackedChunks);
      reader.template Unpack<0>(count, unpacked);
      for (int c = 0; c < kUnpackedChunks; ++c) reader.Prefetch(c);
      for (int64_t row = row_begin; row < row_end; row += kPanelRows) {
        AddPanel(tiles, block, row, begin, {unpacked, nullptr, 0, count}, sums[row - row_begin]);
      }
    }
    for (int64_t row = row_begin; row < row_end; ++row) {
      StoreSums(block, row, tile, _mm512_load_ps(sums[row - row_begin]));
    }
  }

 private:
  using Chunk = UnpackedChunk<kParts>;

  /*! \brief Chunks of a panel of activations, and the same chunks of a tile of weights. */
  struct PanelChunks {
    const Chunk* weights;
    const BiasedGroup* x;  //!< 16 rows of each chunk are read.
    int64_t stride;        //!< The distance between chunks of x.
    int count;             //!< The number of chunks.
  };

  /*! \brief Compute the dot products of a part. \tparam kTurn Selects one of two register sets. */
  template <int kTurn>
  [[gnu::always_inline]] static void MultiplyPart(Tiles& tiles, const PanelChunks& panel,
                                                  int step) {
    const int part = step % kParts;
    const BiasedGroup* x = panel.x + step / kParts * panel.stride;
    tiles.template Zero<kDots[kTurn]>();
    tiles.template Load<kActivations[kTurn]>(x->bytes + part * (kGroupSize / kParts),
                                             sizeof(BiasedGroup));
    tiles.template Load<kWeights[kTurn]>(
        panel.weights[step / kParts].quads[part * (kQuads / kParts)], kQuadBytes);
    tiles.template AddBiasedDots<kDots[kTurn], kActivations[kTurn], kWeights[kTurn]>();
  }

  /*! \brief Add the products of all chunks to `sums`, [16][16]. */
  static void AddChunks(Tiles& tiles, const PanelChunks& panel, float* sums) {
    static_assert(offsetof(BiasedGroup, bytes) == 0);
    alignas(64) int32_t dots[kSlots][kPanelRows][kTileRows];
    __m512 rows[kPanelRows];
#pragma GCC unroll 16
    for (int r = 0; r < kPanelRows; ++r) rows[r] = _mm512_load_ps(sums + r * kTileRows);
    const int steps = panel.count * kParts;
    for (int step = 0; step < steps + kLag; ++step) {
      if (step < steps && step % 2 == 0) MultiplyPart<0>(tiles, panel, step);
      if (step < steps && step % 2 == 1) MultiplyPart<1>(tiles, panel, step);
      if (step >= kLag) AddDots(panel, step - kLag, dots[(step - kLag) % kSlots], rows);
      if (step > 0 && step <= steps) {
        if (step % 2 == 0) {
          tiles.template Store<kDots[1]>(dots[(step - 1) % kSlots], 64);
        } else {
          tiles.template Store<kDots[0]>(dots[(step - 1) % kSlots], 64);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kPanelRows; ++r) _mm512_store_ps(sums + r * kTileRows, rows[r]);
  }

  [[gnu::always_inline]] static void AddDots(const PanelChunks& panel, int step,
                                             const int32_t (&dots)[kPanelRows][kTileRows],
                                             __m512 (&rows)[kPanelRows]) {
    const int part = step % kParts;
    const Chunk& weights = panel.weights[step / kParts];
    const BiasedGroup* x = panel.x + step / kParts * panel.stride;
    const __m512i offsets = _mm512_load_si512(weights.offsets[part]);
#pragma GCC unroll 16
    for (int r = 0; r < kPanelRows; ++r) {
      const __m512i dot = _mm512_add_epi32(_mm512_load_si512(dots[r]), offsets);
      rows[r] = AddPart<Avx512Lanes, kParts, kSubtracts>(weights, part, {dot}, x[r], {rows[r]}).all;
    }
  }

  /*!
   * \brief Add the products of chunks from `begin` on for the panel at `row`.
   *
   * The panel has 8 to 16 rows, but 16 rows are always read, as in linear_amx.h.
   */
  static void AddPanel(Tiles& tiles, const LinearBlock& block, int64_t row, int64_t begin,
                       PanelChunks panel, float* sums) {
    const int64_t chunks = GroupsOf(block.num_inputs);
    const int64_t left = block.row_end - row;
    const int64_t height = left < kPanelRows ? left : kPanelRows;
    panel.x = block.biased + row * chunks + begin * height;
    panel.stride = height;
    if (height == kPanelRows || begin + panel.count < chunks) {
      AddChunks(tiles, panel, sums);
      return;
    }
    const int last = panel.count - 1;
    BiasedGroup copy[kPanelRows] = {};
    __builtin_memcpy(copy, panel.x + last * height, height * sizeof(BiasedGroup));
    const PanelChunks last_chunk = {panel.weights + last, copy, height, 1};
    panel.count = last;
    AddChunks(tiles, panel, sums);
    AddChunks(tiles, last_chunk, sums);
  }
};

template <typename Tiles>
struct GroupedTilesKernel {
  template <int kParts, bool kSubtracts>
  static void Run(const LinearBlock& block) {
    Tiles tiles(kGroupedShapes<kParts>);
    for (int64_t row = block.row_begin; row < block.row_end; row += kGroupedRows) {
      const int64_t end = row + kGroupedRows < block.row_end ? row + kGroupedRows : block.row_end;
      for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
        GroupedTileKernel<Tiles, kParts, kSubtracts>::Run(tiles, block, tile, row, end);
      }
    }
  }
};

/*! \brief The kernel of grouped formats. \tparam Tiles See `Q4OnTiles`. */
template <typename Tiles>
void GroupedOnTiles(const LinearBlock& block) {
  const auto [on_tiles, on_avx512] = DivideRows(block);
  if (on_tiles.row_begin < on_tiles.row_end) Grouped<GroupedTilesKernel<Tiles>>(on_tiles);
  if (on_avx512.row_begin < on_avx512.row_end) GroupedAvx512(on_avx512);
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_GROUPED_AMX_H_
