/*!
 * \file model/paged_kv_state.h
 * \brief TVM's paged KV cache as the state of a model's sequences.
 */
#ifndef AIOMLC_MODEL_PAGED_KV_STATE_H_
#define AIOMLC_MODEL_PAGED_KV_STATE_H_

#include <tvm/ffi/tvm_ffi.h>

#include <cstddef>
#include <cstdint>

#include "model/model_state.h"
#include "platform/huge_pages.h"

namespace aiomlc {

/*! \brief Throw a MemoryError: the KV cache cannot be allocated. */
[[noreturn]] void ThrowCacheAllocationError(const ModelShape& shape, const char* cause);

/*!
 * \brief The keys and values of sequences in pages, which forks share while they are full.
 *
 * Every token is a checkpoint. A fork copies the partially filled last page of its source.
 */
class PagedKVState final : public ModelState {
 public:
  /*!
   * \param shape The sizes of the cache. Not owned; must outlive this object, like `huge_pages`.
   * \param create_cache The library's `create_tir_paged_kv_cache`.
   * \throws ffi::Error MemoryError if the cache cannot be allocated.
   */
  PagedKVState(const ModelShape& shape, const tvm::ffi::Function& create_cache,
               HugePages* huge_pages);

  Resources total() const final { return {.pages = num_pages_}; }
  Resources Cost(int64_t num_tokens) const final;
  Resources token_cost() const final { return {.pages = 1}; }
  int64_t granularity() const final { return 1; }
  int64_t sharing_granularity() const final;
  int64_t Checkpoint(int64_t /*sequence_id*/, int64_t num_tokens) const final { return num_tokens; }
  void Keep(int64_t /*sequence_id*/, int64_t /*num_tokens*/, Mark /*mark*/) final {}

  void Add(int64_t sequence_id) final;
  void Fork(int64_t source_id, int64_t sequence_id, int64_t num_tokens) final;
  void Rewind(int64_t sequence_id, int64_t count) final;
  void Remove(int64_t sequence_id) final;

  size_t ExportBytes(int64_t begin, int64_t end) const final;
  /*! \param data Shape [2, layers, end - begin, heads, row]: first all keys, then all values. */
  void Export(int64_t sequence_id, int64_t begin, int64_t end, std::byte* data) const final;
  void Import(int64_t sequence_id, int64_t count, const std::byte* data) final;

  /*! \brief The bytes of the keys and values of one token, in all layers. */
  size_t token_bytes() const;
  int64_t FreePages() const final;
  const tvm::ffi::Any& cache() const final { return cache_; }
  void BeginForward(const ForwardInput& input) final;
  void EndForward() final;

 private:
  void BeginForward(const tvm::ffi::Shape& sequence_ids, const tvm::ffi::Shape& append_lengths);
  /*! \return The bytes of the keys, or of the values, of one token in one layer. */
  size_t LayerTokenBytes() const;

  const ModelShape& shape_;
  const DLDataType dtype_;
  HugePages* const huge_pages_;
  tvm::ffi::Function add_sequence_, fork_sequence_, remove_sequence_, pop_;
  tvm::ffi::Function begin_forward_, end_forward_;
  tvm::ffi::Function free_pages_, get_kv_, attend_;
  tvm::ffi::Any cache_;
  int64_t num_pages_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_PAGED_KV_STATE_H_
