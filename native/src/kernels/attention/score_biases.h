/*!
 * \file kernels/attention/score_biases.h
 * \brief Numbers that are added to the attention scores of a tile.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_SCORE_BIASES_H_
#define AIOMLC_KERNELS_ATTENTION_SCORE_BIASES_H_

#include <cstdint>

namespace aiomlc {

/*! \brief The queries of a tile: consecutive rows of a sequence, and one head. */
struct TileQueries {
  int64_t begin;   //!< The sequence's first row in the inputs.
  int64_t length;  //!< The rows of the sequence.
  int64_t head;
  int64_t first;  //!< The first row of the tile in the sequence.
  int64_t count;  //!< At most kMaxTileQueries.
};

/*! \brief The biases of a tile; `AttentionTile` has the same two fields. */
struct TileBiases {
  const float* values = nullptr;
  int64_t stride = 0;
};

/*! \brief The biases of a layer's attention. Thread-safe. */
class ScoreBiases {
 public:
  ScoreBiases() = default;
  ScoreBiases(const ScoreBiases&) = default;
  ScoreBiases& operator=(const ScoreBiases&) = default;
  virtual ~ScoreBiases() = default;

  /*! \return The biases of a tile, valid until the next call of this thread. */
  virtual TileBiases OfTile(const TileQueries& tile) const = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_SCORE_BIASES_H_
