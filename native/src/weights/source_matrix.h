/*!
 * \file weights/source_matrix.h
 * \brief A matrix in the files of a model: floats, integers with scales, or blocks.
 */
#ifndef AIOMLC_WEIGHTS_SOURCE_MATRIX_H_
#define AIOMLC_WEIGHTS_SOURCE_MATRIX_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/linear/format/matrix_format.h"

namespace aiomlc {

/*! \brief The storage types of a source matrix's elements. */
enum class SourceType {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,    //!< FP8 without infinities; may have scales.
  kF8E5M2,    //!< FP8 with the exponents of float16; may have scales.
  kF8E8M0,    //!< A power of two, without a sign; only of scales.
  kIntegers,  //!< Packed integers, with scales and perhaps zero points in other tensors.
  // The block types of GGUF, which contain their scales.
  kQ40,
  kQ41,
  kQ50,
  kQ51,
  kQ80,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIQ4NL,
  kMXFP4,
  kProgressive,  //!< The stored rows of `WeightFormat::kProgressive` (pack.h).
};

/*! \brief The place of a tensor. */
struct SourceTensor {
  int file = 0;        /*!< Index into `ConversionPlan::files`. */
  uint64_t offset = 0; /*!< In bytes. */
};

/*!
 * \brief A tensor of integers [outputs, inputs] or, if transposed, [inputs, outputs], of a few bits
 * each, packed along one axis into units of 1 or 4 bytes.
 */
struct IntegerTensor {
  SourceTensor tensor;
  int bits = 4;
  int unit_bytes = 4;
  int per_unit = 0;           /*!< Integers per unit, lowest bits first; 0: without any gap. */
  int padding = 1;            /*!< Inputs are padded to a multiple of this. */
  bool along_outputs = false; /*!< Whether outputs are packed, rather than inputs. */
  bool is_transposed = false;
  bool is_awq_order = false; /*!< The order in a unit is 0, 2, 4, 6, 1, 3, 5, 7. */
  bool is_signed = false;    /*!< Bytes are signed; the result has 128 added. */

  /*! \return The units that hold `count` integers of the packed axis. */
  int64_t Units(int64_t count) const {
    if (per_unit != 0) return (count + per_unit - 1) / per_unit;
    const int64_t unit_bits = int64_t{8} * unit_bytes;
    return (count * bits + unit_bits - 1) / unit_bits;
  }

  /*! \return The stored axes, in units, for this many outputs and inputs. */
  std::pair<int64_t, int64_t> Shape(int64_t outputs, int64_t inputs) const {
    inputs = (inputs + padding - 1) / padding * padding;
    (along_outputs ? outputs : inputs) = Units(along_outputs ? outputs : inputs);
    return is_transposed ? std::pair(inputs, outputs) : std::pair(outputs, inputs);
  }
};

/*! \brief A tensor with a float for each block of outputs and inputs. */
struct ScaleTensor {
  SourceTensor tensor;
  SourceType type = SourceType::kF16; /*!< kF32, kF16, kBF16 or kF8E8M0. */
  int64_t block_outputs = 1;
  int64_t block_inputs = 1;
  bool is_transposed = false; /*!< Whether the blocks of an input are adjacent. */

  int64_t bytes() const {
    return type == SourceType::kF32 ? 4 : type == SourceType::kF8E8M0 ? 1 : 2;
  }
};

/*! \brief A source matrix [rows, cols], where the columns are those of its parameter. */
struct SourceMatrix {
  SourceType type = SourceType::kF32;
  int64_t rows = 0;
  SourceTensor tensor;    /*!< The rows, unless they are integers. */
  bool by_inputs = false; /*!< Whether floats are [cols, rows]. */
  IntegerTensor integers; /*!< kIntegers only. */
  std::optional<ScaleTensor> scales;
  std::optional<IntegerTensor> zero_points; /*!< [rows, groups of inputs]. */
  int zero_point_offset = 0;                /*!< Added to the stored zero points. */
  /*! \brief int32[cols]: the group of each input, if groups do not consist of neighbors. */
  std::optional<SourceTensor> groups;
  MatrixFormat format; /*!< The format of the same numbers; unused for floats. */

  /*! \return Whether rows are not adjacent in the file, so that many should be read at once. */
  bool is_transposed() const {
    return type == SourceType::kIntegers ? integers.is_transposed : by_inputs;
  }
};

/*! \brief Rows of a source matrix at equal distances. */
struct SourceSlice {
  int matrix = 0; /*!< Index into `ParamPlan::matrices`. */
  int64_t first = 0;
  int64_t rows = 0;
  int64_t step = 1; /*!< From a row to the next one. */
};

/*!
 * \brief List the rows of matrices one after the other, in another order if `order` is not empty.
 *
 * The order is the number of blocks, the number of groups in a block, and the rows of each part of
 * a group. The result has in each block the first part of all groups, then the second one. Rows
 * after these keep their order.
 */
std::vector<SourceSlice> OrderRows(const std::vector<SourceMatrix>& matrices,
                                   const std::vector<int64_t>& order);

/*! \return Some of the rows; `runs` has the first row and the number of rows of each run. */
std::vector<SourceSlice> SelectRows(const std::vector<SourceSlice>& slices,
                                    const std::vector<int64_t>& runs);

/*! \return Whether a matrix consists of floats, which any format can hold. */
constexpr bool IsFloat(SourceType type) { return type < SourceType::kIntegers; }

/*! \return Whether a matrix consists of blocks of GGUF. */
constexpr bool IsBlocks(SourceType type) {
  return type > SourceType::kIntegers && type < SourceType::kProgressive;
}

}  // namespace aiomlc

#endif  // AIOMLC_WEIGHTS_SOURCE_MATRIX_H_
