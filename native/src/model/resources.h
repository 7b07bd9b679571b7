/*!
 * \file model/resources.h
 * \brief The units in which the memory of sequences is counted.
 */
#ifndef AIOMLC_MODEL_RESOURCES_H_
#define AIOMLC_MODEL_RESOURCES_H_

#include <cstdint>
#include <string>

namespace aiomlc {

/*!
 * \brief Counts of pages, which hold tokens of a KV cache, and of slots, which hold a state of
 * constant size.
 */
struct Resources {
  int64_t pages = 0;
  int64_t slots = 0;

  Resources& operator+=(const Resources& other) {
    pages += other.pages;
    slots += other.slots;
    return *this;
  }
  Resources& operator-=(const Resources& other) {
    pages -= other.pages;
    slots -= other.slots;
    return *this;
  }
  friend Resources operator+(Resources a, const Resources& b) { return a += b; }
  friend Resources operator-(Resources a, const Resources& b) { return a -= b; }
  friend Resources operator*(const Resources& a, int64_t count) {
    return {a.pages * count, a.slots * count};
  }
  bool operator==(const Resources& other) const = default;

  bool is_zero() const { return pages == 0 && slots == 0; }
  /*! \brief Whether no count is larger than that of `available`. */
  bool FitsIn(const Resources& available) const {
    return pages <= available.pages && slots <= available.slots;
  }
  /*! \return For example "3 pages" or "3 pages and 2 slots". */
  std::string ToString() const;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_RESOURCES_H_
