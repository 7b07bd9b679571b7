/*!
 * \file kernels/linear/row_layout.h
 * \brief How rows of activations lie in panels, as the active kernels of a format read them.
 */
#ifndef AIOMLC_KERNELS_LINEAR_ROW_LAYOUT_H_
#define AIOMLC_KERNELS_LINEAR_ROW_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/linear/linear.h"
#include "kernels/linear/linear_kernels.h"

namespace aiomlc {

/*! \brief Rows of `cols` inputs of a matrix: quantised, as floats, or cut into bf16 parts. */
class RowLayout {
 public:
  RowLayout(WeightFormat format, int64_t cols);

  /*! \return Bytes of one row; the panel of row r begins at r times as many. */
  int64_t row_bytes() const { return row_bytes_; }

  /*! \brief Let a block read panels. */
  void Read(const std::byte* panels, LinearBlock& block) const;

  /*!
   * \brief Write columns of one panel.
   * \param x float32[height, count], dense. \param first A multiple of 32.
   */
  void WriteColumns(const float* x, int64_t height, int64_t first, int64_t count,
                    std::byte* panel) const;

 private:
  WeightFormat format_;
  int64_t cols_;
  int64_t row_bytes_;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_ROW_LAYOUT_H_
