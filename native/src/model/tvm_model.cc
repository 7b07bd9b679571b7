#include "model/tvm_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/attention/imported_rows.h"
#include "model/virtual_machine.h"

namespace aiomlc {

namespace ffi = tvm::ffi;

namespace {

constexpr int64_t kPageSize = 16;

ffi::Shape ToShape(const std::vector<int64_t>& values) {
  return ffi::Shape(values.begin(), values.end());
}

ffi::Shape ToShape(const std::vector<int32_t>& values) {
  return ffi::Shape(values.begin(), values.end());
}

}  // namespace

void ThrowCacheAllocationError(const ModelShape& shape, const char* cause) {
  throw ffi::Error("MemoryError",
                   "a KV cache of " + std::to_string(shape.max_total_tokens) +
                       " tokens cannot be allocated: " + cause,
                   "");
}

TvmModel::TvmModel(const ffi::Module& library, ffi::Array<ffi::Tensor> params, ModelShape shape,
                   int num_threads)
    : shape_(std::move(shape)),
      kv_dtype_(ffi::StringToDLDataType(shape_.kv_dtype)),
      pool_(num_threads),
      params_(std::move(params)),
      vm_(StartVirtualMachine(library)) {
  embed_ = RequireFunction(vm_, "embed");
  prefill_ = RequireFunction(vm_, "batch_prefill");
  decode_ = RequireFunction(vm_, "batch_decode");
  add_sequence_ = ffi::Function::GetGlobalRequired("vm.builtin.kv_state_add_sequence");
  fork_sequence_ = ffi::Function::GetGlobalRequired("vm.builtin.kv_state_fork_sequence");
  remove_sequence_ = ffi::Function::GetGlobalRequired("vm.builtin.kv_state_remove_sequence");
  pop_ = ffi::Function::GetGlobalRequired("vm.builtin.kv_state_popn");
  begin_forward_ = ffi::Function::GetGlobalRequired("vm.builtin.kv_state_begin_forward");
  end_forward_ = ffi::Function::GetGlobalRequired("vm.builtin.kv_state_end_forward");
  free_pages_ =
      ffi::Function::GetGlobalRequired("vm.builtin.attention_kv_cache_get_num_available_pages");
  reshape_ = ffi::Function::GetGlobalRequired("vm.builtin.reshape");
  get_kv_ = ffi::Function::GetGlobalRequired("vm.builtin.attention_kv_cache_debug_get_kv");
  attend_ =
      ffi::Function::GetGlobalRequired("vm.builtin.attention_kv_cache_attention_with_fused_qkv");
  const ffi::Function create_cache = RequireFunction(vm_, "create_tir_paged_kv_cache");
  try {
    kv_cache_ =
        create_cache(ffi::Shape{shape_.max_batch_size}, ffi::Shape{shape_.max_total_tokens},
                     ffi::Shape{shape_.prefill_chunk_size}, ffi::Shape{kPageSize}, ffi::Shape{0});
  } catch (const std::exception& error) {
    ThrowCacheAllocationError(shape_, error.what());
  }
  num_pages_ = FreePages();
}

int64_t TvmModel::page_size() const { return kPageSize; }

int64_t TvmModel::FreePages() const { return free_pages_(kv_cache_).cast<int64_t>(); }

void TvmModel::AddSequence(int64_t sequence_id) { add_sequence_(kv_cache_, sequence_id); }

void TvmModel::ForkSequence(int64_t source_id, int64_t sequence_id, int64_t num_tokens) {
  fork_sequence_(kv_cache_, source_id, sequence_id, num_tokens);
}

void TvmModel::RemoveSequence(int64_t sequence_id) { remove_sequence_(kv_cache_, sequence_id); }

void TvmModel::PopTokens(int64_t sequence_id, int64_t count) {
  pop_(kv_cache_, sequence_id, count);
}

const float* TvmModel::Forward(const ForwardInput& input) {
  ThreadPool::Scope scope(pool_);
  HugePages::Scope huge_pages_scope(huge_pages_);
  const int64_t num_tokens = static_cast<int64_t>(input.token_ids.size());
  const int64_t num_rows = static_cast<int64_t>(input.sequence_ids.size());
  begin_forward_(kv_cache_, ToShape(input.sequence_ids), ToShape(input.append_lengths));
  ffi::Tensor hidden = embed_(HostTensor(input.token_ids), params_).cast<ffi::Tensor>();
  const int64_t width = hidden.shape()[1];
  const bool only_decodes =
      num_rows == num_tokens && input.logit_positions.size() == input.token_ids.size();
  ffi::Any result;
  if (only_decodes) {
    hidden = reshape_(hidden, ffi::Shape{num_tokens, 1, width}).cast<ffi::Tensor>();
    result = decode_(hidden, kv_cache_, params_);
  } else {
    hidden = reshape_(hidden, ffi::Shape{1, num_tokens, width}).cast<ffi::Tensor>();
    result = prefill_(hidden, HostTensor(input.logit_positions), kv_cache_, params_);
  }
  end_forward_(kv_cache_);
  logits_ = result.cast<ffi::Array<ffi::Any>>()[0].cast<ffi::Tensor>();
  logits_ = reshape_(logits_, ffi::Shape{static_cast<int64_t>(input.logit_positions.size()),
                                         shape_.vocab_size})
                .cast<ffi::Tensor>();
  return static_cast<const float*>(logits_.data_ptr());
}

size_t TvmModel::LayerTokenBytes() const {
  return static_cast<size_t>(shape_.num_kv_heads * shape_.kv_row_size) *
         ffi::GetDataSize(1, kv_dtype_);
}

size_t TvmModel::kv_token_bytes() const {
  return 2 * static_cast<size_t>(shape_.num_layers) * LayerTokenBytes();
}

void TvmModel::ExportTokens(int64_t sequence_id, int64_t begin, int64_t end,
                            std::byte* data) const {
  const int64_t count = end - begin;
  const ffi::Shape shape{shape_.num_layers, count, shape_.num_kv_heads, shape_.kv_row_size};
  std::byte* const values = data + static_cast<size_t>(count) * kv_token_bytes() / 2;
  get_kv_(kv_cache_, sequence_id, begin, end, TensorOver(data, shape, kv_dtype_),
          TensorOver(values, shape, kv_dtype_));
}

void TvmModel::ImportTokens(int64_t sequence_id, int64_t count, const std::byte* data) {
  HugePages::Scope huge_pages_scope(huge_pages_);
  const size_t token_bytes = LayerTokenBytes();
  const size_t layer_bytes = static_cast<size_t>(count) * token_bytes;
  const std::byte* const values = data + static_cast<size_t>(count) * kv_token_bytes() / 2;
  for (int64_t begin = 0; begin < count; begin += shape_.prefill_chunk_size) {
    const int64_t rows = std::min(shape_.prefill_chunk_size, count - begin);
    // TVM checks the shapes; no kernel reads or writes these tensors.
    const ffi::Tensor qkv = EmptyTensor(
        {rows, shape_.num_query_heads + 2 * shape_.num_kv_heads, shape_.kv_row_size}, kv_dtype_);
    const ffi::Tensor output =
        EmptyTensor({rows, shape_.num_query_heads, shape_.kv_row_size}, kv_dtype_);
    begin_forward_(kv_cache_, ffi::Shape{sequence_id}, ffi::Shape{rows});
    for (int64_t layer = 0; layer < shape_.num_layers; ++layer) {
      const size_t offset =
          static_cast<size_t>(layer) * layer_bytes + static_cast<size_t>(begin) * token_bytes;
      const ImportedRows::Scope scope({data + offset, values + offset, rows, token_bytes});
      attend_(kv_cache_, layer, 1.0, qkv, output);
    }
    end_forward_(kv_cache_);
  }
}

}  // namespace aiomlc
