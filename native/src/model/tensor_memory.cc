#include "model/tensor_memory.h"

#include <tvm/ffi/container/array.h>

namespace aiomlc {

namespace ffi = tvm::ffi;

namespace {

class HostMemory final : public TensorMemory {
 public:
  ffi::Tensor FromHost(const ffi::Tensor& tensor) const final { return tensor; }
  ffi::Tensor ToHost(const ffi::Tensor& tensor) const final { return tensor; }
};

class DeviceMemory final : public TensorMemory {
 public:
  explicit DeviceMemory(DLDevice device)
      : device_(device), copy_(ffi::Function::GetGlobalRequired("vm.builtin.to_device")) {}

  ffi::Tensor FromHost(const ffi::Tensor& tensor) const final {
    return copy_(tensor, static_cast<int>(device_.device_type), device_.device_id)
        .cast<ffi::Tensor>();
  }
  ffi::Tensor ToHost(const ffi::Tensor& tensor) const final {
    return copy_(tensor, static_cast<int>(kDLCPU), 0).cast<ffi::Tensor>();
  }

 private:
  const DLDevice device_;
  const ffi::Function copy_;
};

}  // namespace

std::unique_ptr<TensorMemory> TensorMemoryOf(DLDevice device) {
  if (device.device_type == kDLCPU) return std::make_unique<HostMemory>();
  return std::make_unique<DeviceMemory>(device);
}

ffi::Array<ffi::Tensor> CopyAll(const ffi::Array<ffi::Tensor>& tensors,
                                const TensorMemory& memory) {
  ffi::Array<ffi::Tensor> copies;
  for (const ffi::Tensor& tensor : tensors) copies.push_back(memory.FromHost(tensor));
  return copies;
}

}  // namespace aiomlc
