#include "model/virtual_machine.h"

#include <algorithm>

namespace aiomlc {

namespace ffi = tvm::ffi;

namespace {

constexpr int kNaiveAllocator = 1;

/*! \brief Allocates the memory of tensors. */
struct HostAllocation {
  void AllocData(DLTensor* tensor) { tensor->data = ::operator new(ffi::GetDataSize(*tensor)); }
  void FreeData(DLTensor* tensor) { ::operator delete(tensor->data); }
};

/*! \brief Gives tensors memory that they do not own. */
struct BorrowedMemory {
  void AllocData(DLTensor* tensor) { tensor->data = data; }
  void FreeData(DLTensor* /*tensor*/) {}
  void* data;
};

}  // namespace

ffi::Function RequireFunction(const ffi::Module& module, const char* name) {
  ffi::Optional<ffi::Function> function = module->GetFunction(name);
  if (!function.has_value()) {
    TVM_FFI_THROW(ModelLoadError) << "the compiled library has no function \"" << name << "\"";
  }
  return *function;
}

ffi::Module StartVirtualMachine(const ffi::Module& library, DLDevice device) {
  ffi::Module machine = RequireFunction(library, "vm_load_executable")().cast<ffi::Module>();
  const ffi::Function initialize = RequireFunction(machine, "vm_initialization");
  const int host = static_cast<int>(kDLCPU);
  if (device.device_type == kDLCPU) {
    initialize(host, 0, kNaiveAllocator);
  } else {  // Shapes are computed on the host, which is the last device.
    initialize(static_cast<int>(device.device_type), device.device_id, kNaiveAllocator, host, 0,
               kNaiveAllocator);
  }
  return machine;
}

ffi::Tensor HostTensor(const std::vector<int32_t>& values) {
  const int64_t size = static_cast<int64_t>(values.size());
  ffi::Tensor tensor = EmptyTensor({size}, DLDataType{kDLInt, 32, 1});
  std::copy(values.begin(), values.end(), static_cast<int32_t*>(tensor.data_ptr()));
  return tensor;
}

ffi::Tensor EmptyTensor(const ffi::Shape& shape, DLDataType dtype) {
  return ffi::Tensor::FromNDAlloc(HostAllocation(), shape, dtype, kHost);
}

ffi::Tensor TensorOver(void* data, const ffi::Shape& shape, DLDataType dtype) {
  return ffi::Tensor::FromNDAlloc(BorrowedMemory{data}, shape, dtype, kHost);
}

}  // namespace aiomlc
