/*!
 * \file kernels/attention/disentangled_biases.h
 * \brief The biases of disentangled attention (DeBERTa, https://arxiv.org/abs/2006.03654): products
 * of contents and relative positions.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_DISENTANGLED_BIASES_H_
#define AIOMLC_KERNELS_ATTENTION_DISENTANGLED_BIASES_H_

#include <cstdint>
#include <span>

#include "kernels/attention/packed_attention.h"
#include "kernels/attention/score_biases.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*!
 * \brief The queries and keys of relative positions, in tiles of 16 positions, which are those of
 * packed float32 matrices: [heads, num_tiles, head_dim, 16] each.
 */
struct PositionTiles {
  const float* queries = nullptr;
  const float* keys = nullptr;
  int64_t num_tiles = 0;
};

/*! \return The tiles of a number of positions. The last one is padded with zeros. */
int64_t PositionTilesOf(int64_t num_positions);

/*!
 * \brief Write the tiles of the queries, or of the keys, of relative positions.
 * \param rows [num_positions, num_heads, head_dim].
 * \param stride The elements from a row to the next.
 * \param tiles [num_heads, PositionTilesOf(num_positions), head_dim, 16].
 */
void WritePositionTiles(ThreadPool& pool, const float* rows, int64_t stride, int64_t num_positions,
                        int64_t num_heads, int64_t head_dim, float* tiles);

/*!
 * \brief scale * (query of q . key of r + key of p . query of r), where r is the relative position
 * of the rows q and p.
 *
 * The products are float32. Each has the same bits in every tile and batch, on every tier.
 */
class DisentangledBiases final : public ScoreBiases {
 public:
  /*!
   * \param shape As many key-value heads as query heads.
   * \param relative For the position of the query less that of the key, from 1 - num_distances on:
   * the index of the relative position, which must be in the tiles and never falls;
   * [2 * num_distances - 1], where num_distances is at least the length of every sequence.
   */
  DisentangledBiases(const PackedAttentionShape& shape, const PackedInputs& inputs,
                     const PositionTiles& positions, std::span<const int32_t> relative);

  TileBiases OfTile(const TileQueries& tile) const override;

 private:
  /*! \brief Products of rows with some of the relative positions. */
  struct Products {
    const float* values;
    int64_t stride;    //!< From a row to the next.
    int64_t position;  //!< The relative position of the first column.
  };

  /*! \brief A range of distances of a query and a key. */
  struct Distances {
    int64_t least;
    int64_t most;
  };

  struct Scratch;

  Products Multiply(const float* rows, int64_t stride, int64_t count, const float* tiles,
                    Distances distances, Scratch& scratch, int which) const;

  int64_t head_dim_;
  float scale_;
  PackedInputs inputs_;
  PositionTiles positions_;
  const int32_t* relative_;  //!< Of distance 0.
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_DISENTANGLED_BIASES_H_
