/*!
 * \file speculation/ngram_index.h
 * \brief An index of the n-grams of a growing token sequence.
 */
#ifndef AIOMLC_SPECULATION_NGRAM_INDEX_H_
#define AIOMLC_SPECULATION_NGRAM_INDEX_H_

#include <cstdint>
#include <span>
#include <vector>

namespace aiomlc {

/*!
 * \brief The last occurrence of every n-gram of `length` tokens in a sequence that only grows.
 *
 * The hash table stores only positions; the n-grams are read from the tokens that the caller
 * passes. Each call must pass the tokens of the previous call, optionally followed by more.
 */
class NgramIndex {
 public:
  /*! \param length At least 1. */
  explicit NgramIndex(int64_t length) : length_(length) {}

  /*!
   * \brief Find the last earlier occurrence of the last `length` tokens.
   * \return The index of the token that follows the occurrence; -1 if there is none.
   */
  int64_t FindEarlier(std::span<const int32_t> tokens);

 private:
  /*! \return The slot of the n-gram that ends at `end`, or the empty slot to insert it at. */
  size_t FindSlot(std::span<const int32_t> tokens, int64_t end) const;
  void Insert(std::span<const int32_t> tokens, int64_t end);
  void Grow(std::span<const int32_t> tokens);

  int64_t length_;
  /*! \brief The end positions of n-grams, 0 for empty slots; the size is a power of two. */
  std::vector<int32_t> slots_ = std::vector<int32_t>(64);
  int64_t num_used_ = 0;
  /*! \brief N-grams that end at or before this position are in the table. */
  int64_t num_indexed_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_NGRAM_INDEX_H_
