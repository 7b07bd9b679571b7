/*!
 * \file model/tensor_memory.h
 * \brief The memory of a model's tensors, and the copies from and to the host.
 */
#ifndef AIOMLC_MODEL_TENSOR_MEMORY_H_
#define AIOMLC_MODEL_TENSOR_MEMORY_H_

#include <tvm/ffi/tvm_ffi.h>

#include <memory>

namespace aiomlc {

/*! \brief The memory that a library's functions take their tensors from. */
class TensorMemory {
 public:
  virtual ~TensorMemory() = default;
  /*! \brief Return the tensor of the host here. */
  virtual tvm::ffi::Tensor FromHost(const tvm::ffi::Tensor& tensor) const = 0;
  /*! \brief Return the tensor on the host, with the results of all calls before this one. */
  virtual tvm::ffi::Tensor ToHost(const tvm::ffi::Tensor& tensor) const = 0;
};

/*! \brief Return the memory of a device; the host's needs no copies. */
std::unique_ptr<TensorMemory> TensorMemoryOf(DLDevice device);

/*! \brief Return tensors of the host in another memory, one after the other. */
tvm::ffi::Array<tvm::ffi::Tensor> CopyAll(const tvm::ffi::Array<tvm::ffi::Tensor>& tensors,
                                          const TensorMemory& memory);

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_TENSOR_MEMORY_H_
