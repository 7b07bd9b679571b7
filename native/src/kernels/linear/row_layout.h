/*!
 * \file kernels/linear/row_layout.h
 * \brief The layout of rows of activations in panels, for the active kernels of a weight format.
 */
#ifndef AIOMLC_KERNELS_LINEAR_ROW_LAYOUT_H_
#define AIOMLC_KERNELS_LINEAR_ROW_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/linear/base/linear_kernels.h"
#include "kernels/linear/format/panel.h"

namespace aiomlc {

/*! \brief The form of the activations that a kernel reads. */
enum class RowForm {
  kFloats,
  kBF16,      //!< `BF16Group`.
  kGroups,    //!< `ActivationGroup`.
  kBiased,    //!< `BiasedGroup`.
  kSigned,    //!< `SignedGroup`.
  kInt8,      //!< The panels of channel_kernels.h.
  kRotated,   //!< The same, of rows that were rotated.
  kFloatRows  //!< Row-major floats, which no kernel reads: see `RowLayout::Columns`.
};

/*! \return Whether the active kernels of all segments can read the same. */
bool HasOneRowForm(MatrixLayout layout);

/*!
 * \return The form of activations that the active kernels of the segments read.
 *
 * With grouped formats, AMX reads kSigned if the kernels of all segments can.
 * \param layout If not `HasOneRowForm`, its first segment decides.
 */
RowForm RowFormOf(MatrixLayout layout);

/*! \brief The layout of rows of `cols` inputs: quantized, rounded, or as floats. */
class RowLayout {
 public:
  RowLayout(RowForm form, int64_t cols);

  /*! \brief The layout of `RowFormOf(matrix)`. */
  RowLayout(MatrixLayout matrix, int64_t cols) : RowLayout(RowFormOf(matrix), cols) {}

  RowForm form() const { return form_; }
  int64_t cols() const { return cols_; }
  /*! \return Whether rows are quantized or rounded. */
  bool is_quantized() const { return form_ != RowForm::kFloats && form_ != RowForm::kFloatRows; }
  /*! \return Whether a row has one scale, so that its columns cannot be quantized separately. */
  bool has_row_scales() const { return form_ == RowForm::kInt8 || form_ == RowForm::kRotated; }
  /*!
   * \return The layout to which columns are written: this one, or if `has_row_scales` rows of
   * floats, which are then quantized.
   */
  RowLayout Columns() const {
    return has_row_scales() ? RowLayout(RowForm::kFloatRows, cols_) : *this;
  }
  /*! \return The bytes of one row; a panel with first row r begins at byte r * row_bytes. */
  int64_t row_bytes() const { return row_bytes_; }

  /*! \brief Set the activations of a block to panels of this layout. */
  void SetActivations(const std::byte* panels, LinearBlock& block) const;

  /*! \brief Quantize rows [begin, end) of a matrix. \param panels The panels of all rows. */
  void Quantize(const void* x, FloatType type, int64_t rows, int64_t begin, int64_t end,
                std::byte* panels) const;

  /*! \brief Quantize one of `rows` rows. \param panels The panels of all rows. */
  void QuantizeRow(const float* x, int64_t row, int64_t rows, std::byte* panels) const;

  /*!
   * \brief Copy a quantized row to a panel.
   * \param source The row as a panel of height 1.
   * \param row The index in the panel of `height` rows.
   */
  void CopyRow(const std::byte* source, int64_t row, int64_t height, std::byte* panel) const;

  /*!
   * \brief Write columns [first, first + count) of one panel, in any form but kFloatRows.
   * \param x float32[height, count], dense.
   * \param first A multiple of 32. If the layout `has_row_scales`, all columns must be written.
   */
  void WriteColumns(const float* x, int64_t height, int64_t first, int64_t count,
                    std::byte* panel) const;

 private:
  /*! \return The bytes of the adjacent inputs of a row, without scales of whole rows. */
  int64_t group_bytes() const;

  /*! \return The kernel that quantizes rows to this form. */
  void (*quantize() const)(const QuantizeBlock&);

  /*! \brief Quantize a row that `has_row_scales`. \param first Its first element in `x`. */
  void QuantizeInt8(const void* x, FloatType type, int64_t first, const PanelCursor& at,
                    std::byte* panels) const;

  RowForm form_;
  int64_t cols_;
  int64_t row_bytes_;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_ROW_LAYOUT_H_
