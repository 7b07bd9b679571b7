/*!
 * \file model/tvm_model.h
 * \brief A compiled model library with its weights.
 */
#ifndef AIOMLC_MODEL_TVM_MODEL_H_
#define AIOMLC_MODEL_TVM_MODEL_H_

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "model/model.h"
#include "platform/huge_pages.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief The sizes that a model is opened with. */
struct ModelShape {
  int64_t vocab_size = 0;
  int64_t context_window = 0;
  int64_t max_batch_size = 0;
  int64_t prefill_chunk_size = 0;
  int64_t max_total_tokens = 0;
  int64_t num_layers = 0;
  int64_t num_query_heads = 0;
  int64_t num_kv_heads = 0;
  /*! \brief The stored elements of one head at one position, including the bytes of a scale. */
  int64_t kv_row_size = 0;
  std::string kv_dtype;
};

/*! \brief Throw a MemoryError: the KV cache cannot be allocated. */
[[noreturn]] void ThrowCacheAllocationError(const ModelShape& shape, const char* cause);

/*!
 * \brief Runs a compiled library in TVM's virtual machine over TVM's paged KV cache.
 *
 * TVM is called only through FFI globals and module functions, so only tvm-ffi's headers are
 * needed. Not thread-safe: the engine's step thread makes all calls.
 */
class TvmModel final : public Model {
 public:
  /*!
   * \param library The compiled library, as loaded by the FFI.
   * \param params The packed parameters in the order of the library's metadata.
   * \param shape The sizes of the model and of its KV cache.
   * \param num_threads Threads per kernel, including the calling thread.
   */
  TvmModel(const tvm::ffi::Module& library, tvm::ffi::Array<tvm::ffi::Tensor> params,
           ModelShape shape, int num_threads);

  int64_t vocab_size() const final { return shape_.vocab_size; }
  int64_t context_window() const final { return shape_.context_window; }
  int64_t page_size() const final;
  int64_t num_pages() const final { return num_pages_; }
  int64_t max_batch_size() const final { return shape_.max_batch_size; }
  int64_t prefill_chunk_size() const final { return shape_.prefill_chunk_size; }
  /*! \brief Its libraries embed token ids only. */
  int64_t embedded_row_size() const final { return 0; }
  size_t kv_token_bytes() const final;

  void AddSequence(int64_t sequence_id) final;
  void ForkSequence(int64_t source_id, int64_t sequence_id, int64_t num_tokens) final;
  void RemoveSequence(int64_t sequence_id) final;
  void PopTokens(int64_t sequence_id, int64_t count) final;
  const float* Forward(const ForwardInput& input) final;
  void ExportTokens(int64_t sequence_id, int64_t begin, int64_t end, std::byte* data) const final;
  void ImportTokens(int64_t sequence_id, int64_t count, const std::byte* data) final;

  /*! \brief The result of the last `Forward`, float32[rows, vocab_size]; empty before the first. */
  tvm::ffi::Tensor logits() const { return logits_; }

  /*! \brief Return the number of free pages according to TVM's KV cache. */
  int64_t FreePages() const;

 private:
  /*! \return The bytes of the keys, or of the values, of one token in one layer. */
  size_t LayerTokenBytes() const;

  const ModelShape shape_;
  const DLDataType kv_dtype_;
  ThreadPool pool_;
  HugePages huge_pages_;
  tvm::ffi::Array<tvm::ffi::Tensor> params_;
  tvm::ffi::Module vm_;
  tvm::ffi::Function embed_, prefill_, decode_;
  tvm::ffi::Function add_sequence_, fork_sequence_, remove_sequence_, pop_;
  tvm::ffi::Function begin_forward_, end_forward_;
  tvm::ffi::Function free_pages_, reshape_;
  tvm::ffi::Function get_kv_, attend_;
  tvm::ffi::Any kv_cache_;
  tvm::ffi::Tensor logits_;
  int64_t num_pages_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_TVM_MODEL_H_
