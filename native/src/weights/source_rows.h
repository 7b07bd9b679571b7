/*!
 * \file weights/source_rows.h
 * \brief Read rows of a parameter from the source files, as float32 or in a grouped format.
 */
#ifndef AIOMLC_WEIGHTS_SOURCE_ROWS_H_
#define AIOMLC_WEIGHTS_SOURCE_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "weights/file.h"
#include "weights/group_buffers.h"
#include "weights/integers.h"
#include "weights/weights.h"

namespace aiomlc {

/*! \return About how many bytes of the files a row of a source matrix takes. */
uint64_t SourceRowBytes(const SourceMatrix& matrix, int64_t cols);

/*! \brief The rows of a source matrix that are in memory, as they are stored. */
struct LoadedRows {
  int64_t begin = 0, end = 0; /*!< Empty if no row is needed. */
  Strip values, zero_points, scales;
  std::vector<int32_t> order; /*!< The inputs in the order of their groups, if they have one. */
};

/*!
 * \brief Reads rows into buffers that are reused for the next block.
 *
 * Each thread needs its own reader. The results are valid until the next call.
 */
class SourceReader {
 public:
  /*! \param files Open source files by index; not owned. */
  explicit SourceReader(const std::vector<File>* files) : files_(files) {}

  /*!
   * \brief Read rows [begin, end) of a parameter into memory, as they are stored.
   * \return Whether it succeeded; otherwise `error()` is set. The same holds for the functions
   *     below, which decode some of these rows.
   */
  bool Load(const ParamPlan& param, int64_t begin, int64_t end);

  /*!
   * \brief Decode rows to `floats()`. A non-finite value is an error, and so is one that overflows
   * float16 in a matrix to be quantized.
   */
  bool DecodeFloats(const ParamPlan& param, MatrixFormat format, int64_t begin, int64_t end);

  /*!
   * \brief Decode rows to `groups()`, in a grouped format. A non-finite scale is an error.
   *
   * Floats are quantized, for which the format must be that of `QuantizeBytes`.
   */
  bool DecodeGroups(const ParamPlan& param, MatrixFormat format, int64_t begin, int64_t end);

  /*! \brief Copy rows to `stored_rows()`. An invalid scale or offset is an error. */
  bool DecodeProgressive(const ParamPlan& param, int64_t begin, int64_t end);

  /*! \brief Read the order of inputs, which all matrices of a parameter share. */
  bool ReadOrder(const ParamPlan& param);

  const float* floats() const { return floats_.data(); }
  const GroupBuffers& groups() const { return groups_; }
  const uint8_t* stored_rows() const { return stored_rows_.data(); }
  const std::vector<int32_t>& order() const { return order_; }
  const ConversionError& error() const { return error_; }

 private:
  const File& FileOf(const SourceTensor& tensor) const;
  bool Check(const SourceTensor& tensor, std::string reason);
  bool LoadRows(const SourceMatrix& matrix, int64_t cols, LoadedRows* rows);
  bool LoadScales(const SourceMatrix& matrix, int64_t cols, LoadedRows* rows);
  bool LoadOrder(const SourceMatrix& matrix, int64_t cols, std::vector<int32_t>* order);
  bool DecodeFloatRows(const SourceMatrix& matrix, const LoadedRows& loaded, int64_t from,
                       int64_t rows, int64_t cols, float* out);
  bool DecodeGroupRows(const SourceMatrix& matrix, const LoadedRows& loaded, int64_t from,
                       int64_t rows, int64_t at, GroupBuffers* out);
  bool QuantizeRows(const SourceMatrix& matrix, const LoadedRows& loaded, int64_t from,
                    int64_t rows, int64_t at, GroupBuffers* out);
  bool DecodeIntegers(const SourceMatrix& matrix, const LoadedRows& loaded, int64_t from,
                      int64_t rows, int64_t at, GroupBuffers* out);
  bool DecodeZeroPoints(const SourceMatrix& matrix, const LoadedRows& loaded, int64_t from,
                        int64_t rows, int64_t at, GroupBuffers* out);

  const std::vector<File>* files_;
  std::vector<LoadedRows> loaded_;
  std::vector<float> floats_;
  std::vector<int32_t> order_, group_of_input_;
  std::vector<uint8_t> row_, zero_points_, stored_rows_;
  GroupBuffers groups_, single_;
  ConversionError error_;
};

}  // namespace aiomlc

#endif  // AIOMLC_WEIGHTS_SOURCE_ROWS_H_
