/*!
 * \file model/virtual_machine.h
 * \brief Access to TVM's virtual machine through the FFI.
 */
#ifndef AIOMLC_MODEL_VIRTUAL_MACHINE_H_
#define AIOMLC_MODEL_VIRTUAL_MACHINE_H_

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>
#include <vector>

namespace aiomlc {

/*! \brief Return a function of a module. \throws ModelLoadError if the module lacks it. */
tvm::ffi::Function RequireFunction(const tvm::ffi::Module& module, const char* name);

inline constexpr DLDevice kHost{kDLCPU, 0};

/*! \brief Create a virtual machine on a device with the functions of a compiled library. */
tvm::ffi::Module StartVirtualMachine(const tvm::ffi::Module& library, DLDevice device = kHost);

/*! \brief Create an int32[values.size()] tensor with a copy of the values. */
tvm::ffi::Tensor HostTensor(const std::vector<int32_t>& values);

/*! \brief Create a tensor without setting its elements. */
tvm::ffi::Tensor EmptyTensor(const tvm::ffi::Shape& shape, DLDataType dtype);

/*! \brief Create a tensor over memory that is not owned, and must outlive the tensor. */
tvm::ffi::Tensor TensorOver(void* data, const tvm::ffi::Shape& shape, DLDataType dtype);

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_VIRTUAL_MACHINE_H_
