/*!
 * \file model/tvm_encoder.h
 * \brief A compiled encoder with its weights, which computes a row for each token or each input.
 */
#ifndef AIOMLC_MODEL_TVM_ENCODER_H_
#define AIOMLC_MODEL_TVM_ENCODER_H_

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>

#include <mutex>

#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief Runs a compiled encoder in TVM's virtual machine. Thread-safe: calls are serialized. */
class TvmEncoder final {
 public:
  /*!
   * \param library The compiled library, as loaded by the FFI.
   * \param params The packed parameters in the order of the library's metadata.
   * \param num_threads Threads per kernel, including the calling thread.
   */
  TvmEncoder(const tvm::ffi::Module& library, tvm::ffi::Array<tvm::ffi::Tensor> params,
             int num_threads);

  /*!
   * \brief Encode concatenated inputs without padding.
   * \param inputs The arguments of the library's function, in its order. The inputs of texts are
   * the ids, positions and types of all tokens, and the number of tokens of each text.
   * \return float32, a row for each token, or for each input if the library pools.
   */
  tvm::ffi::Tensor Forward(const tvm::ffi::Array<tvm::ffi::Tensor>& inputs);

 private:
  std::mutex mutex_;
  ThreadPool pool_;
  tvm::ffi::Array<tvm::ffi::Tensor> params_;
  tvm::ffi::Module vm_;
  tvm::ffi::Function encode_;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_TVM_ENCODER_H_
