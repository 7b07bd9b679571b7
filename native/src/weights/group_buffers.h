/*!
 * \file weights/group_buffers.h
 * \brief The numbers of rows in a grouped format, or in int8 per channel, before they are packed.
 */
#ifndef AIOMLC_WEIGHTS_GROUP_BUFFERS_H_
#define AIOMLC_WEIGHTS_GROUP_BUFFERS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/linear/format/matrix_format.h"
#include "kernels/linear/format/pack.h"

namespace aiomlc {

/*! \brief Keep only the columns [first, first + kept) of a matrix with `cols` columns. */
template <typename Element>
void CutColumns(std::vector<Element>* matrix, int64_t rows, int64_t cols, int64_t first,
                int64_t kept) {
  if (kept == cols) return;
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(matrix->begin() + row * cols + first, kept, matrix->begin() + row * kept);
  }
  matrix->resize(static_cast<size_t>(rows * kept));
}

/*! \brief Destinations for the numbers of one row; see `GroupedRows`. */
struct GroupedRow {
  uint8_t* codes;
  uint8_t* scales;
  uint8_t* zeros;
  uint16_t* super_scales;
  uint16_t* super_minima;
};

/*!
 * \brief The buffers of `GroupedRows`, which are reused for the next rows.
 *
 * Rows of int8 per channel are one group, with a float32 scale and the zero point 128.
 */
class GroupBuffers {
 public:
  void Resize(MatrixFormat format, int64_t rows, int64_t cols);

  MatrixFormat format() const { return format_; }
  int64_t cols() const { return cols_; }
  int64_t group() const { return group_; }   /*!< Inputs of a group. */
  int64_t groups() const { return groups_; } /*!< Groups of a row. */
  int64_t supers() const { return supers_; } /*!< Super groups of a row. */
  int64_t scale_bytes() const { return scale_bytes_; }

  /*! \brief Keep only the columns [first, first + cols), which begin and end with a group. */
  void Cut(int64_t first, int64_t cols);

  GroupedRow Row(int64_t row);
  GroupedRows View() const;

  /*! \return Whether all scales and minima of some rows are finite. */
  bool AllFinite(int64_t first, int64_t rows) const;

  /*!
   * \brief Compute the weights, with the float32 operations that define each format.
   * \param out float32[rows, cols].
   */
  void Dequantize(float* out) const;

 private:
  void DequantizeRow(int64_t row, float* out) const;

  MatrixFormat format_;
  ScaleType scale_ = ScaleType::kF16;
  int64_t group_ = 1;
  int64_t rows_ = 0, cols_ = 0, groups_ = 0, supers_ = 0;
  int64_t scale_bytes_ = 0, zero_bytes_ = 0;
  std::vector<uint8_t> codes_, scales_, zeros_;
  std::vector<uint16_t> super_scales_, super_minima_;
};

}  // namespace aiomlc

#endif  // AIOMLC_WEIGHTS_GROUP_BUFFERS_H_
