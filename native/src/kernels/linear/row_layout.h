/*!
 * \file kernels/linear/row_layout.h
 * \brief The layout of rows of activations in panels, for the active kernels of a weight format.
 */
#ifndef AIOMLC_KERNELS_LINEAR_ROW_LAYOUT_H_
#define AIOMLC_KERNELS_LINEAR_ROW_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/linear/linear.h"
#include "kernels/linear/linear_kernels.h"

namespace aiomlc {

/*! \brief The layout of rows of `cols` inputs: quantized, as floats, or split into bf16 parts. */
class RowLayout {
 public:
  RowLayout(WeightFormat format, int64_t cols);

  /*! \return The bytes of one row; a panel with first row r begins at byte r * row_bytes. */
  int64_t row_bytes() const { return row_bytes_; }

  /*! \brief Set the activations of a block to panels of this layout. */
  void SetActivations(const std::byte* panels, LinearBlock& block) const;

  /*!
   * \brief Write columns [first, first + count) of one panel.
   * \param x float32[height, count], dense.
   * \param first A multiple of 32.
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
