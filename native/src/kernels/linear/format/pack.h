/*!
 * \file kernels/linear/format/pack.h
 * \brief Packing of matrices, and reading rows of packed embedding tables.
 */
#ifndef AIOMLC_KERNELS_LINEAR_FORMAT_PACK_H_
#define AIOMLC_KERNELS_LINEAR_FORMAT_PACK_H_

#include <cstddef>
#include <cstdint>

#include "kernels/linear/format/matrix_format.h"

namespace aiomlc {

/*!
 * \brief Pack rows [row_begin, row_end) of a row-major float32 matrix; kQ4 quantizes them.
 *
 * Grouped formats are packed by `PackGrouped`, and int8 per channel by `PackChannel`.
 * Ranges can be packed in parallel if their bounds are multiples of 16 or `rows`.
 * \param weights The whole matrix, float32[rows, cols].
 * \param packed The whole result, `PackedMatrixBytes` bytes.
 */
void PackMatrixF32(WeightFormat format, const float* weights, int64_t rows, int64_t cols,
                   int64_t row_begin, int64_t row_end, void* packed);

/*!
 * \brief Pack rows [row_begin, row_end) of a matrix in MLC LLM's `q4f16_1`, without changing
 * values.
 * \param q_weight uint32[rows, ceil(cols / 32) * 4], element k in bits 4 * (k % 8) of word k / 8.
 * \param q_scale float16[rows, ceil(cols / 32)].
 */
void PackMatrixQ4(const uint32_t* q_weight, const uint16_t* q_scale, int64_t rows, int64_t cols,
                  int64_t row_begin, int64_t row_end, void* packed);

/*!
 * \brief Copy a row out of the tiles of a `WeightFormat::kQ4` matrix.
 * \param row uint8[ceil(cols / 32), 18]: for each group its 32 values, the first of a byte in the
 *     low nibble, and the float16 scale.
 */
void CopyQ4Row(const void* packed, int64_t cols, int64_t index, uint8_t* row);

/*! \return The bytes of such a row. */
size_t Q4RowBytes(int64_t cols);

/*!
 * \brief Rows of a matrix in a grouped format before packing, with the numbers of the source.
 *
 * All arrays are dense and begin with the first of these rows. There are ceil(cols / group) groups
 * per row, and ceil(cols / 256) super groups.
 */
struct GroupedRows {
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* codes = nullptr;  //!< [rows, cols], each less than 2^bits.
  /*! \brief [rows, groups]: the bits of float16, bfloat16 or float32; uint8 or int8 for k8, k8s. */
  const void* scales = nullptr;
  /*! \brief [rows, groups]: kPoints: uint8; kMinima: as `scales`, but uint8 for k8s as well. */
  const void* zeros = nullptr;
  const uint16_t* super_scales = nullptr;  //!< k8 and k8s: float16[rows, super groups].
  const uint16_t* super_minima = nullptr;  //!< k8 and k8s with kMinima: as `super_scales`.
};

/*!
 * \brief Pack rows without changing a number.
 *
 * \param format A grouped format.
 * \param rows Consecutive rows of the matrix. Their first is a multiple of 16, and so is their
 *     number, unless they end the matrix or segment.
 * \param packed The first tile of these rows, PackedMatrixBytes(format, rows.rows, rows.cols).
 */
void PackGrouped(MatrixFormat format, const GroupedRows& rows, void* packed);

/*!
 * \brief `PackGrouped` for `WeightFormat::kChannel`.
 *
 * \param rows Codes of 8 bits, which are the weights plus 128, and float32 scales[rows].
 */
void PackChannel(const GroupedRows& rows, void* packed);

/*!
 * \brief `PackMatrixF32` for `WeightFormat::kProgressive`.
 *
 * Weights are rotated in groups of 32 and divided by the scale of their output, max|w| / 127. The
 * levels of a group are equally spaced, with an integer scale and offset: of a few that span almost
 * all of its weights, those of the least squared error.
 */
void PackProgressive(const float* weights, int64_t cols, int64_t row_begin, int64_t row_end,
                     void* packed);

/*!
 * \brief The bytes of a stored row of `WeightFormat::kProgressive`: the float32 scale of the
 * output, then for each group of 32 inputs its scale (uint8), its offset (int8) and 16 bytes of
 * codes, of which inputs 0 to 15 are the low bits and 16 to 31 the high ones.
 */
int64_t ProgressiveRowBytes(int64_t cols);

/*! \brief Quantize float32[cols], finite, to a stored row. */
void QuantizeProgressiveRow(const float* weights, int64_t cols, uint8_t* row);

/*! \return The problem of a stored row, or null if it is valid. */
const char* CheckProgressiveRow(const uint8_t* row, int64_t cols);

/*! \brief Copy columns of a stored row. \param first_col A multiple of 32. */
void CutProgressiveRow(const uint8_t* row, int64_t first_col, int64_t cols, uint8_t* out);

/*!
 * \brief Pack stored rows, which are valid, without changing a number.
 * \param packed The first tile of these rows.
 */
void PackProgressiveRows(const uint8_t* stored, int64_t rows, int64_t cols, void* packed);

/*!
 * \brief `PackMatrixF32` for `WeightFormat::kRotated`.
 *
 * Weights are rotated in groups of 32, divided by the scale of their output, max|w| / 127, and
 * rounded to nearest, ties to even.
 */
void PackRotated(const float* weights, int64_t cols, int64_t row_begin, int64_t row_end,
                 void* packed);

/*! \brief Copy one row of a packed embedding table into float32[hidden]. */
void EmbedRow(MatrixFormat format, const void* packed, int64_t hidden, int64_t row, float* out);

/*! \brief `EmbedRow` for a grouped format: scale * (code - zero), or scale * code - minimum. */
void EmbedGroupedRow(MatrixFormat format, const void* packed, int64_t hidden, int64_t row,
                     float* out);

/*! \brief `EmbedRow` for int8 with one scale per output. */
void EmbedChannelRow(const void* packed, int64_t hidden, int64_t row, float* out);

/*! \brief `EmbedRow` for 4 bits with progressive scales, rotated back. */
void EmbedProgressiveRow(const void* packed, int64_t hidden, int64_t row, float* out);

/*! \brief `EmbedChannelRow`, rotated back. */
void EmbedRotatedRow(const void* packed, int64_t hidden, int64_t row, float* out);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_FORMAT_PACK_H_
