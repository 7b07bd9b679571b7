/*!
 * \file kernels/linear/grouped_amx.h
 * \brief The kernel of grouped formats on tile registers, as a template over a class of registers.
 *
 * See tile_products.h. The activations are the unsigned operand of the tile instructions.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_GROUPED_AMX_H_
#define AIOMLC_KERNELS_LINEAR_GROUPED_AMX_H_

#include <cstdint>

#include "kernels/linear/grouped_avx512.h"
#include "kernels/linear/tile_products.h"

namespace aiomlc {

namespace {

/*! \brief A grouped format with one scale per chunk for `TileKernel`; its groups are chunks. */
template <bool kSubtracts>
struct ChunkFormat {
  using Weights = UnpackedChunk<1>;
  using Activations = BiasedGroup;

  static const Activations* Panels(const LinearBlock& block) { return block.biased; }

  /*! \brief Begin each row with the offsets, which would cost a vector addition per row later. */
  template <int kSums, typename Tiles>
  static void Begin(Tiles& tiles, const Weights& weights) {
    tiles.template Load<kSums>(weights.offsets[0], 0);
  }

  template <int kSums, int kA, int kB, typename Tiles>
  static void AddProducts(Tiles& tiles) {
    tiles.template AddBiasedDots<kSums, kA, kB>();
  }

  [[gnu::always_inline]] static __m512 Add(const Weights& weights, __m512i dot,
                                           const Activations& x, __m512 sums) {
    return AddPart<Avx512Lanes, 1, kSubtracts>(weights, 0, {dot}, x, {sums}).all;
  }

  class Reader {
   public:
    Reader(const LinearBlock& block, int64_t tile)
        : chunks_(block.tile, GroupedTileAt(block, tile)) {}

    void Unpack(int count, Weights* weights) { chunks_.template Unpack<0>(count, weights); }
    void Prefetch(int ahead) const { chunks_.Prefetch(ahead); }

   private:
    ChunkReader<Avx512GroupedDot, 1> chunks_;
  };
};

/*!
 * \brief The kernel of grouped formats. \tparam Tiles See `Q4OnTiles`.
 *
 * With two or four scales per chunk the registers would be filled to a quarter or less, and AVX-512
 * is faster.
 */
template <typename Tiles>
void GroupedOnTiles(const LinearBlock& block) {
  if (block.tile.parts > 1) return GroupedStreamsAvx512(block);
  const auto [on_tiles, on_avx512] = DivideRows(block);
  if (on_tiles.row_begin < on_tiles.row_end) {
    if (block.tile.subtracts) {
      TileKernel<ChunkFormat<true>, Tiles>::Run(on_tiles);
    } else {
      TileKernel<ChunkFormat<false>, Tiles>::Run(on_tiles);
    }
  }
  if (on_avx512.row_begin < on_avx512.row_end) GroupedStreamsAvx512(on_avx512);
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_GROUPED_AMX_H_
