/*!
 * \file model/tvm_model.h
 * \brief A compiled model library with its weights.
 */
#ifndef AIOMLC_MODEL_TVM_MODEL_H_
#define AIOMLC_MODEL_TVM_MODEL_H_

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/attention/pass_pieces.h"
#include "kernels/recurrent/state_memory.h"
#include "model/model.h"
#include "model/model_state.h"
#include "model/tensor_memory.h"
#include "platform/huge_pages.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*!
 * \brief Runs a compiled library in TVM's virtual machine over TVM's paged KV cache, and over
 * recurrent states if the model has such layers.
 *
 * TVM is called only through FFI globals and module functions, so only tvm-ffi's headers are
 * needed. Not thread-safe: the engine's step thread makes all calls.
 */
class TvmModel final : public Model {
 public:
  /*!
   * \param library The compiled library, as loaded by the FFI.
   * \param params The packed parameters on the host, in the order of the library's metadata.
   * \param shape The sizes of the model and of its KV cache.
   * \param num_threads Threads per kernel, including the calling thread.
   * \param device Where the functions run, and the parameters are copied to.
   */
  TvmModel(const tvm::ffi::Module& library, const tvm::ffi::Array<tvm::ffi::Tensor>& params,
           ModelShape shape, int num_threads, DLDevice device);

  int64_t vocab_size() const final { return shape_.vocab_size; }
  int64_t context_window() const final { return shape_.context_window; }
  int64_t max_batch_size() const final { return shape_.max_batch_size; }
  int64_t prefill_chunk_size() const final { return shape_.prefill_chunk_size; }
  PieceTraits piece_traits() const final {
    return {shape_.embedded_row_size, !shape_.rope_axes.empty(), shape_.needs_whole_pieces};
  }
  /*! \brief Its libraries return logits only. */
  std::span<const HiddenLayer> hidden_layers() const final { return {}; }
  int64_t hidden_size() const final { return 0; }
  ThreadPool* thread_pool() final { return &pool_; }
  ModelState& state() final { return *state_; }
  const ModelState& state() const final { return *state_; }
  ForwardOutput Forward(const ForwardInput& input) final;

  /*! \brief The result of the last `Forward`, float32[rows, vocab_size]; empty before the first. */
  tvm::ffi::Tensor logits() const { return logits_; }

 private:
  /*! \return The embeddings of the tokens, float32[tokens, size]. */
  tvm::ffi::Tensor Embed(const ForwardInput& input) const;
  /*! \return The embeddings on the host, with the rows of pieces in their places. */
  tvm::ffi::Tensor WithPieces(const ForwardInput& input, const tvm::ffi::Tensor& embeddings) const;

  const ModelShape shape_;
  ThreadPool pool_;
  HugePages huge_pages_;
  const std::unique_ptr<TensorMemory> memory_;
  tvm::ffi::Array<tvm::ffi::Tensor> params_;
  tvm::ffi::Module vm_;
  /*! \brief Adds embeddings for each layer; null if the model has none. */
  tvm::ffi::Optional<tvm::ffi::Function> embed_layers_;
  tvm::ffi::Function embed_, prefill_, decode_, reshape_;
  std::unique_ptr<ModelState> state_;
  /*! \brief Of the recurrent layers; null if there is none. */
  StateMemory* recurrent_ = nullptr;
  std::vector<PieceRows> piece_rows_;
  tvm::ffi::Tensor logits_;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_TVM_MODEL_H_
