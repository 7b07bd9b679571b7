#include "model/tvm_encoder.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "model/virtual_machine.h"

namespace aiomlc {

namespace ffi = tvm::ffi;

TvmEncoder::TvmEncoder(const ffi::Module& library, ffi::Array<ffi::Tensor> params, int num_threads)
    : pool_(num_threads), params_(std::move(params)), vm_(StartVirtualMachine(library)) {
  RequireFunction(vm_, "encode");
}

ffi::Tensor TvmEncoder::Forward(const ffi::String& function,
                                const ffi::Array<ffi::Tensor>& inputs) {
  const std::lock_guard lock(mutex_);
  ThreadPool::Scope scope(pool_);
  const std::vector<ffi::Tensor> tensors(inputs.begin(), inputs.end());
  std::vector<ffi::AnyView> arguments(tensors.begin(), tensors.end());
  arguments.emplace_back(params_);
  ffi::Any result;
  RequireFunction(vm_, function.c_str())
      .CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
  return result.cast<ffi::Tensor>();
}

}  // namespace aiomlc
