#include "model/virtual_machine.h"

#include <algorithm>

namespace aiomlc {

namespace ffi = tvm::ffi;

namespace {

constexpr int kNaiveAllocator = 1;

/*! \brief Allocates the memory of small input tensors. */
struct HostAllocation {
  void AllocData(DLTensor* tensor) { tensor->data = ::operator new(ffi::GetDataSize(*tensor)); }
  void FreeData(DLTensor* tensor) { ::operator delete(tensor->data); }
};

}  // namespace

ffi::Function RequireFunction(const ffi::Module& module, const char* name) {
  ffi::Optional<ffi::Function> function = module->GetFunction(name);
  if (!function.has_value()) {
    TVM_FFI_THROW(ModelLoadError) << "the compiled library has no function \"" << name << "\"";
  }
  return *function;
}

ffi::Module StartVirtualMachine(const ffi::Module& library) {
  ffi::Module machine = RequireFunction(library, "vm_load_executable")().cast<ffi::Module>();
  RequireFunction(machine, "vm_initialization")(static_cast<int>(kDLCPU), 0, kNaiveAllocator);
  return machine;
}

ffi::Tensor HostTensor(const std::vector<int32_t>& values) {
  const int64_t size = static_cast<int64_t>(values.size());
  ffi::Tensor tensor = ffi::Tensor::FromNDAlloc(HostAllocation(), ffi::Shape{size},
                                                DLDataType{kDLInt, 32, 1}, DLDevice{kDLCPU, 0});
  std::copy(values.begin(), values.end(), static_cast<int32_t*>(tensor.data_ptr()));
  return tensor;
}

}  // namespace aiomlc
