#include "model/paged_kv_state.h"

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/attention/imported_rows.h"
#include "model/virtual_machine.h"

namespace aiomlc {

namespace ffi = tvm::ffi;

namespace {

constexpr int64_t kPageSize = 16;

template <typename Integer>
ffi::Shape ToShape(const std::vector<Integer>& values) {
  return ffi::Shape(values.begin(), values.end());
}

}  // namespace

void ThrowCacheAllocationError(const ModelShape& shape, const char* cause) {
  throw ffi::Error("MemoryError",
                   "a KV cache of " + std::to_string(shape.max_total_tokens) +
                       " tokens cannot be allocated: " + cause,
                   "");
}

PagedKVState::PagedKVState(const ModelShape& shape, const ffi::Function& create_cache,
                           HugePages* huge_pages)
    : shape_(shape),
      dtype_(ffi::StringToDLDataType(shape.kv_dtype)),
      huge_pages_(huge_pages),
      add_sequence_(ffi::Function::GetGlobalRequired("vm.builtin.kv_state_add_sequence")),
      fork_sequence_(ffi::Function::GetGlobalRequired("vm.builtin.kv_state_fork_sequence")),
      remove_sequence_(ffi::Function::GetGlobalRequired("vm.builtin.kv_state_remove_sequence")),
      pop_(ffi::Function::GetGlobalRequired("vm.builtin.kv_state_popn")),
      begin_forward_(ffi::Function::GetGlobalRequired("vm.builtin.kv_state_begin_forward")),
      end_forward_(ffi::Function::GetGlobalRequired("vm.builtin.kv_state_end_forward")),
      free_pages_(ffi::Function::GetGlobalRequired(
          "vm.builtin.attention_kv_cache_get_num_available_pages")),
      get_kv_(ffi::Function::GetGlobalRequired("vm.builtin.attention_kv_cache_debug_get_kv")),
      attend_(ffi::Function::GetGlobalRequired(
          "vm.builtin.attention_kv_cache_attention_with_fused_qkv")) {
  try {
    cache_ =
        create_cache(ffi::Shape{shape_.max_batch_size}, ffi::Shape{shape_.max_total_tokens},
                     ffi::Shape{shape_.prefill_chunk_size}, ffi::Shape{kPageSize}, ffi::Shape{0});
  } catch (const std::exception& error) {
    ThrowCacheAllocationError(shape_, error.what());
  }
  num_pages_ = FreePages();
}

Resources PagedKVState::Cost(int64_t num_tokens) const {
  return {.pages = (num_tokens + kPageSize - 1) / kPageSize};
}

int64_t PagedKVState::sharing_granularity() const { return kPageSize; }

int64_t PagedKVState::FreePages() const { return free_pages_(cache_).cast<int64_t>(); }

void PagedKVState::Add(int64_t sequence_id) { add_sequence_(cache_, sequence_id); }

void PagedKVState::Fork(int64_t source_id, int64_t sequence_id, int64_t num_tokens) {
  fork_sequence_(cache_, source_id, sequence_id, num_tokens);
}

void PagedKVState::Rewind(int64_t sequence_id, int64_t count) { pop_(cache_, sequence_id, count); }

void PagedKVState::Remove(int64_t sequence_id) { remove_sequence_(cache_, sequence_id); }

void PagedKVState::BeginForward(const ForwardInput& input) {
  BeginForward(ToShape(input.sequence_ids), ToShape(input.append_lengths));
}

void PagedKVState::BeginForward(const ffi::Shape& sequence_ids, const ffi::Shape& append_lengths) {
  begin_forward_(cache_, sequence_ids, append_lengths);
}

void PagedKVState::EndForward() { end_forward_(cache_); }

size_t PagedKVState::LayerTokenBytes() const {
  return static_cast<size_t>(shape_.num_kv_heads * shape_.kv_row_size) *
         ffi::GetDataSize(1, dtype_);
}

size_t PagedKVState::token_bytes() const {
  return 2 * static_cast<size_t>(shape_.num_layers) * LayerTokenBytes();
}

size_t PagedKVState::ExportBytes(int64_t begin, int64_t end) const {
  return static_cast<size_t>(end - begin) * token_bytes();
}

void PagedKVState::Export(int64_t sequence_id, int64_t begin, int64_t end, std::byte* data) const {
  const ffi::Shape shape{shape_.num_layers, end - begin, shape_.num_kv_heads, shape_.kv_row_size};
  std::byte* const values = data + ExportBytes(begin, end) / 2;
  get_kv_(cache_, sequence_id, begin, end, TensorOver(data, shape, dtype_),
          TensorOver(values, shape, dtype_));
}

void PagedKVState::Import(int64_t sequence_id, int64_t count, const std::byte* data) {
  HugePages::Scope huge_pages_scope(*huge_pages_);
  const size_t token_bytes = LayerTokenBytes();
  const size_t layer_bytes = static_cast<size_t>(count) * token_bytes;
  const std::byte* const values = data + ExportBytes(0, count) / 2;
  for (int64_t begin = 0; begin < count; begin += shape_.prefill_chunk_size) {
    const int64_t rows = std::min(shape_.prefill_chunk_size, count - begin);
    // TVM checks the shapes; no kernel reads or writes these tensors.
    const ffi::Tensor qkv = EmptyTensor(
        {rows, shape_.num_query_heads + 2 * shape_.num_kv_heads, shape_.kv_row_size}, dtype_);
    const ffi::Tensor output =
        EmptyTensor({rows, shape_.num_query_heads, shape_.kv_row_size}, dtype_);
    BeginForward(ffi::Shape{sequence_id}, ffi::Shape{rows});
    for (int64_t layer = 0; layer < shape_.num_layers; ++layer) {
      const size_t offset =
          static_cast<size_t>(layer) * layer_bytes + static_cast<size_t>(begin) * token_bytes;
      const ImportedRows::Scope scope({data + offset, values + offset, rows, token_bytes});
      attend_(cache_, layer, 1.0, qkv, output);
    }
    EndForward();
  }
}

}  // namespace aiomlc
