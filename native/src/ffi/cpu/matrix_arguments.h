/*!
 * \file ffi/cpu/matrix_arguments.h
 * \brief The formats of matrices as arguments of FFI functions.
 */
#ifndef AIOMLC_FFI_CPU_MATRIX_ARGUMENTS_H_
#define AIOMLC_FFI_CPU_MATRIX_ARGUMENTS_H_

#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "ffi/tensor_arguments.h"
#include "kernels/linear/format/layout.h"
#include "kernels/linear/format/matrix_format.h"
#include "kernels/linear/row_layout.h"

namespace aiomlc {

/*! \return The format of a name. \throws ValueError if there is none. */
inline MatrixFormat MatrixFormatOf(const tvm::ffi::String& name) {
  try {
    return MatrixFormat::Parse(std::string_view(name.data(), name.size()));
  } catch (const std::invalid_argument& error) {
    TVM_FFI_THROW(ValueError) << error.what();
  }
  TVM_FFI_UNREACHABLE();
}

/*! \brief The layout of a matrix: the packed format and the rows of each segment, alternately. */
class LayoutArgument {
 public:
  LayoutArgument(const TensorArguments& args, const char* name, const tvm::ffi::Shape& layout)
      : args_(args), name_(name) {
    args.Require(!layout.empty() && layout.size() % 2 == 0, name,
                 " must be pairs of a format and a number of rows");
    segments_.reserve(layout.size() / 2);
    for (size_t i = 0; i < layout.size(); i += 2) Add(layout[i], layout[i + 1]);
  }

  MatrixLayout layout() const { return segments_; }
  int64_t rows() const { return RowsOf(segments_); }

  /*! \brief Require that the fused kernels support the layout. */
  void RequireQuantized() const {
    args_.Require(
        HasOneRowForm(segments_) && RowLayout(segments_, kTileRows).is_quantized(), name_,
        " must have only q4, only int8 or only bf16 segments, or only segments in grouped formats");
  }

  /*! \brief Require that the kernels of all segments read the same activations. */
  void RequireOneForm() const {
    args_.Require(HasOneRowForm(segments_), name_, " must have segments of one family");
  }

  /*! \brief Require that all segments consist of whole tiles. */
  void RequireWholeTiles() const {
    for (const MatrixSegment& segment : segments_) {
      args_.Require(segment.rows % kTileRows == 0, name_, " has a segment of ", segment.rows,
                    " rows, expected a multiple of ", kTileRows);
    }
  }

  /*! \return The bytes of `count` matrices of `cols` inputs, one after the other. */
  const void* Packed(const tvm::ffi::TensorView& packed, const char* name, int64_t cols,
                     int64_t count = 1) const {
    for (const MatrixSegment& segment : segments_) {
      const WeightFormat family = segment.format.family;
      const bool has_integer_sums = family == WeightFormat::kChannel ||
                                    family == WeightFormat::kProgressive ||
                                    family == WeightFormat::kRotated;
      args_.Require(!has_integer_sums || cols <= kMaxChannelInputs, name_,
                    " has a segment in the format ", segment.format.Name(), " and ", cols,
                    " inputs, expected at most ", kMaxChannelInputs);
    }
    args_.RequireShape(packed, name,
                       {count * static_cast<int64_t>(PackedMatrixBytes(segments_, cols))});
    return args_.Data<uint8_t>(packed, name);
  }

 private:
  void Add(int64_t format, int64_t rows) {
    args_.Require(rows > 0, name_, " has a segment of ", rows, " rows, expected at least 1");
    try {
      segments_.push_back({MatrixFormat::FromPacked(format), rows});
    } catch (const std::invalid_argument& error) {
      args_.Require(false, name_, ": ", error.what());
    }
  }

  const TensorArguments& args_;
  const char* name_;
  std::vector<MatrixSegment> segments_;
};

}  // namespace aiomlc

#endif  // AIOMLC_FFI_CPU_MATRIX_ARGUMENTS_H_
