/*!
 * \file model/hybrid_state.h
 * \brief The state of models with attention layers and recurrent ones.
 */
#ifndef AIOMLC_MODEL_HYBRID_STATE_H_
#define AIOMLC_MODEL_HYBRID_STATE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/recurrent/state_memory.h"
#include "model/model_state.h"
#include "model/paged_kv_state.h"
#include "model/recurrent_slots.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief Keys and values in pages, and recurrent states in slots (`RecurrentSlots`). */
class HybridState final : public ModelState {
 public:
  /*!
   * \param shape The sizes of the state. Not owned; must outlive this object, as the others.
   * \param pool The threads that compute recorded tokens again.
   * \throws ffi::Error MemoryError if the state cannot be allocated.
   */
  HybridState(const ModelShape& shape, const tvm::ffi::Function& create_cache,
              HugePages* huge_pages, ThreadPool* pool);

  Resources total() const final;
  Resources Cost(int64_t num_tokens) const final;
  Resources token_cost() const final { return {.pages = 1, .slots = 2}; }
  int64_t granularity() const final { return slots_.interval(); }
  int64_t sharing_granularity() const final { return 0; }
  int64_t Checkpoint(int64_t sequence_id, int64_t num_tokens) const final {
    return slots_.Checkpoint(sequence_id, num_tokens);
  }

  void Add(int64_t sequence_id) final;
  void Fork(int64_t source_id, int64_t sequence_id, int64_t num_tokens) final;
  void Rewind(int64_t sequence_id, int64_t count) final;
  void Remove(int64_t sequence_id) final;
  void Keep(int64_t sequence_id, int64_t num_tokens, Mark mark) final {
    slots_.Keep(sequence_id, num_tokens, mark);
  }

  size_t ExportBytes(int64_t begin, int64_t end) const final;
  /*! \param data The bytes of `PagedKVState::Export`, then the recurrent state after `end`. */
  void Export(int64_t sequence_id, int64_t begin, int64_t end, std::byte* data) const final;
  void Import(int64_t sequence_id, int64_t count, const std::byte* data) final;

  const tvm::ffi::Any& cache() const final { return pages_.cache(); }
  void BeginForward(const ForwardInput& input) final;
  void EndForward() final;
  int64_t FreePages() const final { return pages_.FreePages(); }
  StateMemory& memory() { return memory_; }

 private:
  /*! \return The run with the memory of its slots; it begins at row `begin`. */
  StateRun ToStateRun(const SlotRun& run, int64_t begin);
  /*! \brief Compute recorded tokens of a sequence again, if `run` has any. */
  void Replay(int64_t sequence_id, const SlotRun& run);

  PagedKVState pages_;
  RecurrentSlots slots_;
  StateMemory memory_;
  ThreadPool* const pool_;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_HYBRID_STATE_H_
