/*!
 * \file ffi/matrix_arguments.h
 * \brief The formats of matrices as arguments of FFI functions.
 */
#ifndef AIOMLC_FFI_MATRIX_ARGUMENTS_H_
#define AIOMLC_FFI_MATRIX_ARGUMENTS_H_

#include <tvm/ffi/tvm_ffi.h>

#include <stdexcept>
#include <string_view>

#include "kernels/linear/matrix_format.h"

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

}  // namespace aiomlc

#endif  // AIOMLC_FFI_MATRIX_ARGUMENTS_H_
