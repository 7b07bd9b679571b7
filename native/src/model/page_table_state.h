/*!
 * \file model/page_table_state.h
 * \brief Keys and values in pages that the kernels of a library find through page tables.
 */
#ifndef AIOMLC_MODEL_PAGE_TABLE_STATE_H_
#define AIOMLC_MODEL_PAGE_TABLE_STATE_H_

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "model/model_state.h"
#include "model/recurrent_slots.h"
#include "model/tensor_memory.h"

namespace aiomlc {

/*!
 * \brief The keys and values of sequences in pages, which forks share while they are full, and the
 * states of recurrent layers in slots.
 *
 * The library's own kernels read and write them, so each layer may have other heads, windows and
 * rotations. `cache` is an array of tensors in the memory of the model: positions, slots and
 * sequences of the rows, the page tables, what pieces and recurrent states need, the pages of
 * each layer with attention, and the states of each recurrent layer.
 */
class PageTableState final : public ModelState {
 public:
  /*!
   * \param shape The sizes of the state. Not owned; must outlive this object, like `memory`.
   * \param machine A library with the functions `create_kv_pages` and `copy_kv_page`, and
   *     `create_recurrent_states` if the model has recurrent layers.
   * \throws ffi::Error MemoryError if the pages or the states cannot be allocated.
   */
  PageTableState(const ModelShape& shape, const tvm::ffi::Module& machine,
                 const TensorMemory& memory);

  Resources total() const final;
  Resources Cost(int64_t num_tokens) const final;
  Resources token_cost() const final;
  int64_t granularity() const final;
  int64_t sharing_granularity() const final;
  int64_t Checkpoint(int64_t sequence_id, int64_t num_tokens) const final;
  void Keep(int64_t sequence_id, int64_t num_tokens, Mark mark) final;

  void Add(int64_t sequence_id) final;
  void Fork(int64_t source_id, int64_t sequence_id, int64_t num_tokens) final;
  void Rewind(int64_t sequence_id, int64_t count) final;
  void Remove(int64_t sequence_id) final;

  /*! \brief Prefixes are not transferred; the engine refuses it before. */
  size_t ExportBytes(int64_t begin, int64_t end) const final;
  void Export(int64_t sequence_id, int64_t begin, int64_t end, std::byte* data) const final;
  void Import(int64_t sequence_id, int64_t count, const std::byte* data) final;

  const tvm::ffi::Any& cache() const final { return cache_; }
  void BeginForward(const ForwardInput& input) final;
  void EndForward() final;
  int64_t FreePages() const final { return static_cast<int64_t>(free_.size()); }

 private:
  struct Sequence {
    std::vector<int32_t> pages;
    int64_t length = 0;
  };

  int32_t TakePage();
  void ReleasePages(Sequence* sequence, size_t kept);
  int32_t CopyPage(int32_t source);
  /*! \brief Append the slots of `count` new tokens of a sequence, which are taken, to `slots`. */
  void AppendTokens(Sequence* sequence, int64_t count, std::vector<int32_t>* slots);
  tvm::ffi::Tensor ToMemory(const std::vector<int32_t>& values, const tvm::ffi::Shape& shape) const;
  /*! \brief Add the tensors of embedded pieces, if the model has any: positions on the axes of
   * RoPE, the ends of each row's piece, and what layers add to rows. */
  void AppendPieces(const ForwardInput& input, const std::vector<int32_t>& positions,
                    std::vector<tvm::ffi::Any>* tensors) const;
  /*! \brief Take slots for the states after the rows of a pass; add their runs. */
  void AppendRuns(const ForwardInput& input, std::vector<tvm::ffi::Any>* tensors);

  const ModelShape& shape_;
  const TensorMemory& memory_;
  const tvm::ffi::Function copy_page_;
  std::vector<tvm::ffi::Any> pages_, states_;
  std::unordered_map<int64_t, Sequence> sequences_;
  std::vector<int32_t> references_;  //!< Of each page.
  std::vector<int32_t> free_;
  std::optional<RecurrentSlots> slots_;
  tvm::ffi::Any cache_;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_PAGE_TABLE_STATE_H_
