/*!
 * \file model/tvm_encoder.h
 * \brief A compiled encoder and its weights: texts in, one vector for each token out.
 */
#ifndef AIOMLC_MODEL_TVM_ENCODER_H_
#define AIOMLC_MODEL_TVM_ENCODER_H_

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief Runs a compiled encoder in TVM's virtual machine. Thread-safe: calls wait in line. */
class TvmEncoder final {
 public:
  /*!
   * \param library The compiled library, as loaded by the FFI.
   * \param params The packed parameters in the order of the library's metadata.
   * \param num_threads Threads of every kernel, the calling thread included.
   */
  TvmEncoder(const tvm::ffi::Module& library, tvm::ffi::Array<tvm::ffi::Tensor> params,
             int num_threads);

  /*!
   * \brief Texts one after the other, without padding; all tokens are of type 0.
   * \param token_ids Of all texts.
   * \param lengths Tokens of each text, at least one each.
   * \return float32[tokens, hidden]
   */
  tvm::ffi::Tensor Forward(const std::vector<int32_t>& token_ids,
                           const std::vector<int32_t>& lengths);

 private:
  std::mutex mutex_;
  ThreadPool pool_;
  tvm::ffi::Array<tvm::ffi::Tensor> params_;
  tvm::ffi::Module vm_;
  tvm::ffi::Function encode_;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_TVM_ENCODER_H_
