/*!
 * \file opencl/opencl_error.h
 * \brief The errors of OpenCL as exceptions that Python gets with their type.
 */
#ifndef AIOMLC_OPENCL_OPENCL_ERROR_H_
#define AIOMLC_OPENCL_OPENCL_ERROR_H_

#include <string>

#include "opencl_api.h"

namespace aiomlc::opencl {

/*! \brief Return the name of an error code with the code, as `CL_OUT_OF_RESOURCES (-5)`. */
std::string ErrorName(cl_int code);

/*! \brief Throw a BadRequestError: the device is not there. */
[[noreturn]] void ThrowMissing(const std::string& problem);

/*!
 * \brief Throw the error of a call: a MemoryError if memory is exhausted, else a RuntimeError.
 * \param call The function's name and what it was to do.
 */
[[noreturn]] void ThrowError(const std::string& call, cl_int code);

/*! \brief Return whether a device does not work again in the same context after this error. */
bool IsFatal(cl_int code);

}  // namespace aiomlc::opencl

#endif  // AIOMLC_OPENCL_OPENCL_ERROR_H_
