#include "model/tvm_encoder.h"

#include <utility>

#include "model/virtual_machine.h"

namespace aiomlc {

namespace ffi = tvm::ffi;

TvmEncoder::TvmEncoder(const ffi::Module& library, ffi::Array<ffi::Tensor> params, int num_threads)
    : pool_(num_threads),
      params_(std::move(params)),
      vm_(StartVirtualMachine(library)),
      encode_(RequireFunction(vm_, "encode")) {}

ffi::Tensor TvmEncoder::Forward(const EncoderTokens& tokens, const std::vector<int32_t>& lengths) {
  const std::lock_guard lock(mutex_);
  ThreadPool::Scope scope(pool_);
  return encode_(HostTensor(tokens.ids), HostTensor(tokens.positions), HostTensor(tokens.types),
                 HostTensor(lengths), params_)
      .cast<ffi::Tensor>();
}

}  // namespace aiomlc
