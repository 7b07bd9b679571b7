/*!
 * \file weights/source_rows.h
 * \brief Read rows of a parameter from the source files, as float32 or as MLC LLM's q4 words.
 */
#ifndef AIOMLC_WEIGHTS_SOURCE_ROWS_H_
#define AIOMLC_WEIGHTS_SOURCE_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "weights/file.h"
#include "weights/weights.h"

namespace aiomlc {

/*! \return The bytes of one row of a source slice, including its scales. */
uint64_t SourceRowBytes(SourceType type, int64_t cols);

/*!
 * \brief Reads rows into buffers that are reused for the next block.
 *
 * Each thread needs its own reader. The buffers are valid until the next read.
 */
class SourceReader {
 public:
  /*! \param files Open source files by index; not owned. */
  explicit SourceReader(const std::vector<File>* files) : files_(files) {}

  /*!
   * \brief Read rows [begin, end) as float32. A non-finite value is an error, and so is one that
   * overflows float16 in a matrix to be quantized.
   * \return Whether it succeeded; otherwise `error()` is set.
   */
  bool ReadFloats(const ParamPlan& param, int64_t begin, int64_t end);

  /*! \brief Read rows [begin, end) of kQ4 sources. \return See `ReadFloats`. */
  bool ReadQ4(const ParamPlan& param, int64_t begin, int64_t end);

  const float* floats() const { return floats_.data(); }
  const uint32_t* q_weight() const { return q_weight_.data(); }
  const uint16_t* q_scale() const { return q_scale_.data(); }
  const ConversionError& error() const { return error_; }

 private:
  bool Read(int file, uint64_t offset, void* data, uint64_t bytes);
  bool Fail(int file, std::string message);

  const std::vector<File>* files_;
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
  std::vector<uint32_t> q_weight_;
  std::vector<uint16_t> q_scale_;
  ConversionError error_;
};

}  // namespace aiomlc

#endif  // AIOMLC_WEIGHTS_SOURCE_ROWS_H_
