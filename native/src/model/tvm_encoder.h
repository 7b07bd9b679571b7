/*!
 * \file model/tvm_encoder.h
 * \brief A compiled model without a KV cache of its own, with its weights: an encoder, a tower, or
 * a model that transcribes speech.
 */
#ifndef AIOMLC_MODEL_TVM_ENCODER_H_
#define AIOMLC_MODEL_TVM_ENCODER_H_

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/string.h>
#include <tvm/ffi/tvm_ffi.h>

#include <mutex>

#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief Runs a compiled model in TVM's virtual machine. Thread-safe: calls are serialized. */
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
   * \brief Call a function of the library, whose inputs are concatenated without padding.
   * \param function Its name; "encode" is the function of an encoder.
   * \param inputs Its arguments, in its order. The inputs of texts are the ids, positions and types
   * of all tokens, and the number of tokens of each text.
   * \return The result; of `encode` float32, a row for each token, or for each input if the library
   * pools.
   */
  tvm::ffi::Tensor Forward(const tvm::ffi::String& function,
                           const tvm::ffi::Array<tvm::ffi::Tensor>& inputs);

 private:
  std::mutex mutex_;
  ThreadPool pool_;
  tvm::ffi::Array<tvm::ffi::Tensor> params_;
  tvm::ffi::Module vm_;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_TVM_ENCODER_H_
