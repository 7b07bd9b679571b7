/*!
 * \file speculation/ngram_index.h
 * \brief Where the end of a text occurred before.
 */
#ifndef AIOMLC_SPECULATION_NGRAM_INDEX_H_
#define AIOMLC_SPECULATION_NGRAM_INDEX_H_

#include <cstdint>
#include <span>
#include <vector>

namespace aiomlc {

/*!
 * \brief The last place of every run of `length` tokens in a text that only grows.
 *
 * A hash table of places alone: what is at a place is read in the text, so nothing is kept twice.
 * Every call gets the same text, or a longer one that begins with it.
 */
class NgramIndex {
 public:
  /*! \param length At least 1. */
  explicit NgramIndex(int64_t length) : length_(length) {}

  /*!
   * \brief Find the last earlier place of the text's last `length` tokens.
   * \return Where that place ends, so the index of the token after it; -1 where there is none.
   */
  int64_t FindEarlier(std::span<const int32_t> text);

 private:
  /*! \return The slot of the run that ends there: its own, or the empty one that it would get. */
  size_t SlotOf(std::span<const int32_t> text, int64_t end) const;
  void Put(std::span<const int32_t> text, int64_t end);
  void Grow(std::span<const int32_t> text);

  int64_t length_;
  /*! \brief Ends of runs, 0 where a slot is empty; a power of two of them. */
  std::vector<int32_t> slots_ = std::vector<int32_t>(64);
  int64_t num_used_ = 0;
  /*! \brief Runs that end here or before are in the table. */
  int64_t num_indexed_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_NGRAM_INDEX_H_
