/*!
 * \file kernels/linear/grouped/grouped_amx.h
 * \brief The kernel of grouped formats on tile registers, as a template over a class of registers.
 *
 * See tile_products.h. The codes of most formats are unsigned; their activations are `SignedGroup`.
 * If codes are indices of signed values, AVX-512 multiplies a few rows as `BiasedGroup`, which are
 * then the unsigned operand of the tile instructions, too.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_AMX_H_
#define AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_AMX_H_

#include <cstdint>
#include <type_traits>

#include "kernels/linear/base/tile_products.h"
#include "kernels/linear/grouped/grouped_avx512.h"

namespace aiomlc {

namespace {

/*! \brief Unpacks weights for signed activations, which need no offsets. */
struct SignedDot : Avx512GroupedDot {
  static constexpr bool kIsBiased = false;
};

/*!
 * \brief A grouped format with one scale per chunk for `TileKernel`; its groups are chunks.
 * \tparam Group Of activations: SignedGroup or BiasedGroup.
 */
template <typename Group, bool kSubtracts>
struct ChunkFormat {
  using Weights = UnpackedChunk<1>;
  using Activations = Group;
  static constexpr bool kIsBiased = std::is_same_v<Group, BiasedGroup>;

  static const Activations* Panels(const LinearBlock& block) {
    if constexpr (kIsBiased) {
      return block.biased;
    } else {
      return block.signed_groups;
    }
  }

  /*! \brief Begin biased rows with the offsets, which would cost a vector addition each later. */
  template <int kSums, typename Tiles>
  static void Begin(Tiles& tiles, const Weights& weights) {
    if constexpr (kIsBiased) {
      tiles.template Load<kSums>(weights.offsets[0], 0);
    } else {
      tiles.template Zero<kSums>();
    }
  }

  template <int kSums, int kA, int kB, typename Tiles>
  static void AddProducts(Tiles& tiles) {
    if constexpr (kIsBiased) {
      tiles.template AddBiasedDots<kSums, kA, kB>();
    } else {
      tiles.template AddDots<kSums, kA, kB>();
    }
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
    ChunkReader<std::conditional_t<kIsBiased, Avx512GroupedDot, SignedDot>, 1> chunks_;
  };
};

/*! \brief Multiply the rows of a block on the tile registers. */
template <typename Group, typename Tiles>
void ChunksOnTiles(const LinearBlock& block) {
  if (block.tile.subtracts) {
    TileKernel<ChunkFormat<Group, true>, Tiles>::Run(block);
  } else {
    TileKernel<ChunkFormat<Group, false>, Tiles>::Run(block);
  }
}

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
    if (block.signed_groups != nullptr) {
      ChunksOnTiles<SignedGroup, Tiles>(on_tiles);
    } else {
      ChunksOnTiles<BiasedGroup, Tiles>(on_tiles);
    }
  }
  if (on_avx512.row_begin < on_avx512.row_end) GroupedStreamsAvx512(on_avx512);
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_AMX_H_
