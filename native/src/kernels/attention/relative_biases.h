/*!
 * \file kernels/attention/relative_biases.h
 * \brief Numbers added to attention scores, by the distance of two rows of a sequence.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_RELATIVE_BIASES_H_
#define AIOMLC_KERNELS_ATTENTION_RELATIVE_BIASES_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "kernels/attention/attention_types.h"
#include "kernels/attention/score_biases.h"

namespace aiomlc {

/*! \brief The biases of each head for all distances in sequences of up to `longest` rows. */
class RelativeBiases final : public ScoreBiases {
 public:
  /*!
   * \brief Biases that a model has learned.
   * \param table [2 * num_distances - 1, heads], by the position of the key less that of the query,
   * from 1 - num_distances on; `num_distances` is at least `longest`.
   */
  static RelativeBiases FromTable(const float* table, int64_t num_distances, int64_t heads,
                                  int64_t longest) {
    return RelativeBiases(heads, longest, [=](int64_t head, int64_t distance) {
      return table[(num_distances - 1 - distance) * heads + head];
    });
  }

  /*! \brief Minus a slope of each head times the distance (ALiBi,
   * https://arxiv.org/abs/2108.12409), which counts in both directions. */
  static RelativeBiases Alibi(std::span<const float> slopes, int64_t longest) {
    return RelativeBiases(static_cast<int64_t>(slopes.size()), longest,
                          [=](int64_t head, int64_t distance) {
                            return -slopes[head] * static_cast<float>(std::abs(distance));
                          });
  }

  TileBiases OfTile(const TileQueries& tile) const override {
    return {values_.data() + tile.head * stride_ + center_ + tile.first, -1};
  }

 private:
  // The lanes of tiles that belong to no row are read, too.
  static constexpr int64_t kPadding = kTilePageSize;

  template <typename Bias>
  RelativeBiases(int64_t heads, int64_t longest, Bias bias)
      : stride_(2 * (longest + kPadding)),
        center_(longest + kPadding),
        values_(static_cast<size_t>(heads * stride_)) {
    for (int64_t head = 0; head < heads; ++head) {
      float* const middle = values_.data() + head * stride_ + center_;
      for (int64_t distance = 1 - longest; distance < longest; ++distance) {
        middle[distance] = bias(head, distance);
      }
    }
  }

  int64_t stride_;  //!< Floats from a head to the next.
  int64_t center_;  //!< The element of distance 0.
  std::vector<float> values_;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_RELATIVE_BIASES_H_
