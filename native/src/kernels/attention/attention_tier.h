/*!
 * \file kernels/attention/attention_tier.h
 * \brief Attention of a tile in one instruction-set tier, for every type of pages.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_ATTENTION_TIER_H_
#define AIOMLC_KERNELS_ATTENTION_ATTENTION_TIER_H_

#include <cstdint>

#include "kernels/attention/attention_block.h"
#include "kernels/attention/attention_chunks.h"
#include "kernels/attention/attention_products.h"
#include "kernels/attention/attention_tile.h"
#include "kernels/attention/attention_types.h"
#include "kernels/simd/bf16_pairs.h"
#include "platform/flush_denormals.h"

namespace aiomlc {

/*! \tparam Operands What is multiplied: see attention_products.h. */
template <typename Operands, typename Element, bool kWindowed>
void AttendStored(const AttentionTile& tile, const TileWork& work,
                  const AttentionScratch& scratch) {
  using Lanes = typename Operands::Lanes;
  if (tile.HeadQueries() < Lanes::kWidth) {
    AttendPart<Lanes>(TileAttention<Operands, Element, kWindowed>(tile, scratch), tile, work,
                      scratch);
  } else {
    AttendPart<Lanes>(BlockAttention<Operands, Element, kWindowed>(tile, scratch), tile, work,
                      scratch);
  }
}

/*! \brief Compute a part of a tile whose operands are pairs. */
template <typename Operands>
void AttendPairs(const AttentionTile& tile, const TileWork& work, const AttentionScratch& scratch) {
  const FlushDenormals flush;
  const bool is_windowed = tile.window > 0;
  if (tile.type == FloatType::kF16) {
    (is_windowed ? AttendStored<Operands, uint16_t, true>
                 : AttendStored<Operands, uint16_t, false>)(tile, work, scratch);
  } else {
    (is_windowed ? AttendStored<Operands, float, true>
                 : AttendStored<Operands, float, false>)(tile, work, scratch);
  }
}

/*! \brief Compute a part of a tile of bf16 pages, or of pages of 4 bits. */
template <typename Pairs>
void AttendPairsTile(const AttentionTile& tile, const TileWork& work,
                     const AttentionScratch& scratch) {
  (tile.stored == KvType::kI4 ? AttendPairs<HalfByteOperands<Pairs>>
                              : AttendPairs<PairOperands<Pairs>>)(tile, work, scratch);
}

template <typename Lanes, typename Element, bool kWindowed>
void AttendElements(const AttentionTile& tile, const TileWork& work,
                    const AttentionScratch& scratch) {
  if (tile.stored == KvType::kI8) {
    AttendStored<FloatOperands<Lanes, int8_t>, Element, kWindowed>(tile, work, scratch);
  } else {
    AttendStored<FloatOperands<Lanes, Element>, Element, kWindowed>(tile, work, scratch);
  }
}

template <typename Lanes, bool kWindowed>
void AttendType(const AttentionTile& tile, const TileWork& work, const AttentionScratch& scratch) {
  if (tile.type == FloatType::kF16) {
    AttendElements<Lanes, uint16_t, kWindowed>(tile, work, scratch);
  } else {
    AttendElements<Lanes, float, kWindowed>(tile, work, scratch);
  }
}

/*! \brief Compute a part of a tile; instantiated once per instruction-set tier. */
template <typename Lanes>
void AttendTile(const AttentionTile& tile, const TileWork& work, const AttentionScratch& scratch) {
  if (tile.stored == KvType::kBF16 || tile.stored == KvType::kI4) {
    AttendPairsTile<WidenedPairs<Lanes>>(tile, work, scratch);
  } else if (tile.window > 0) {
    AttendType<Lanes, true>(tile, work, scratch);
  } else {
    AttendType<Lanes, false>(tile, work, scratch);
  }
}

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_TIER_H_
