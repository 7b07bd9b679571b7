/*!
 * \file weights/integers.h
 * \brief Read and unpack the integers of quantized matrices, stored by outputs or by inputs.
 */
#ifndef AIOMLC_WEIGHTS_INTEGERS_H_
#define AIOMLC_WEIGHTS_INTEGERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "weights/file.h"
#include "weights/source_matrix.h"

namespace aiomlc {

/*!
 * \brief The part of a two-dimensional tensor that holds some outputs, as it is stored.
 *
 * Elements are the units of `IntegerTensor`, or the floats of `ScaleTensor`.
 */
class Strip {
 public:
  /*!
   * \brief Read rows [first_row, first_row + rows), and of these elements [begin, end).
   * \param width The elements of a stored row.
   * \param element_bytes The bytes of an element.
   * \return Empty, or the error.
   */
  std::string Read(const File& file, uint64_t offset, int64_t width, int64_t element_bytes,
                   int64_t first_row, int64_t rows, int64_t begin, int64_t end);

  /*! \brief Exchange the two axes. */
  void Transpose();

  /*! \return The bytes of an element, by its place in the whole tensor. */
  const uint8_t* At(int64_t row, int64_t element) const {
    return data_.data() + ((row - first_row_) * count_ + element - begin_) * element_bytes_;
  }

  /*! \return The bytes from an element to that of the next row. */
  int64_t row_bytes() const { return count_ * element_bytes_; }
  const uint8_t* data() const { return data_.data(); }
  int64_t element_bytes() const { return element_bytes_; }

 private:
  std::vector<uint8_t> data_;
  int64_t first_row_ = 0, begin_ = 0, count_ = 0, element_bytes_ = 1;
};

/*! \brief Read the units of outputs [begin, end) of a tensor. \return Empty, or the error. */
std::string ReadIntegers(const IntegerTensor& tensor, const File& file, int64_t outputs,
                         int64_t inputs, int64_t begin, int64_t end, Strip* strip);

/*!
 * \brief Unpack outputs [begin, end) and inputs [0, inputs), which `strip` holds.
 * \param out uint8[end - begin, inputs].
 */
void UnpackIntegers(const IntegerTensor& tensor, const Strip& strip, int64_t begin, int64_t end,
                    int64_t inputs, uint8_t* out);

}  // namespace aiomlc

#endif  // AIOMLC_WEIGHTS_INTEGERS_H_
