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

ffi::Tensor TvmEncoder::Forward(const std::vector<int32_t>& token_ids,
                                const std::vector<int32_t>& lengths) {
  std::vector<int32_t> positions;
  positions.reserve(token_ids.size());
  for (const int32_t length : lengths) {
    for (int32_t i = 0; i < length; ++i) positions.push_back(i);
  }
  const std::vector<int32_t> types(token_ids.size(), 0);
  const std::lock_guard lock(mutex_);
  ThreadPool::Scope scope(pool_);
  return encode_(HostTensor(token_ids), HostTensor(positions), HostTensor(types),
                 HostTensor(lengths), params_)
      .cast<ffi::Tensor>();
}

}  // namespace aiomlc
