/*!
 * \file model/virtual_machine.h
 * \brief TVM's virtual machine through the FFI: start it, find functions, hand tensors over.
 */
#ifndef AIOMLC_MODEL_VIRTUAL_MACHINE_H_
#define AIOMLC_MODEL_VIRTUAL_MACHINE_H_

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>
#include <vector>

namespace aiomlc {

/*! \throws ModelLoadError The module has no function of that name. */
tvm::ffi::Function RequireFunction(const tvm::ffi::Module& module, const char* name);

/*! \brief Start a machine with the functions of a compiled library. */
tvm::ffi::Module StartVirtualMachine(const tvm::ffi::Module& library);

/*! \return int32[values.size()] with a copy of the values. */
tvm::ffi::Tensor HostTensor(const std::vector<int32_t>& values);

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_VIRTUAL_MACHINE_H_
