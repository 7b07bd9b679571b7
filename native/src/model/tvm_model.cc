#include "model/tvm_model.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "model/hybrid_state.h"
#include "model/page_table_state.h"
#include "model/paged_kv_state.h"
#include "model/virtual_machine.h"

namespace aiomlc {

namespace ffi = tvm::ffi;

namespace {

/*! \brief The token of Gemma whose embeddings for each layer embedded rows have. */
constexpr int32_t kPaddingToken = 0;

}  // namespace

TvmModel::TvmModel(const ffi::Module& library, const ffi::Array<ffi::Tensor>& params,
                   ModelShape shape, int num_threads, DLDevice device)
    : shape_(std::move(shape)),
      pool_(num_threads),
      memory_(TensorMemoryOf(device)),
      params_(CopyAll(params, *memory_)),
      vm_(StartVirtualMachine(library, device)),
      embed_layers_(vm_->GetFunction("embed_layers")),
      embed_(RequireFunction(vm_, "embed")),
      prefill_(RequireFunction(vm_, "batch_prefill")),
      decode_(RequireFunction(vm_, "batch_decode")),
      reshape_(ffi::Function::GetGlobalRequired("vm.builtin.reshape")) {
  if (vm_->GetFunction("create_kv_pages").has_value()) {
    state_ = std::make_unique<PageTableState>(shape_, vm_, *memory_);
    return;
  }
  const ffi::Function create_cache = RequireFunction(vm_, "create_tir_paged_kv_cache");
  if (shape_.recurrent_sizes.empty()) {
    state_ = std::make_unique<PagedKVState>(shape_, create_cache, &huge_pages_);
    return;
  }
  auto state = std::make_unique<HybridState>(shape_, create_cache, &huge_pages_, &pool_);
  recurrent_ = &state->memory();
  state_ = std::move(state);
}

ffi::Tensor TvmModel::Embed(const ForwardInput& input) const {
  ffi::Tensor hidden =
      embed_(memory_->FromHost(HostTensor(input.token_ids)), params_).cast<ffi::Tensor>();
  if (!input.embedded.empty()) hidden = memory_->FromHost(WithPieces(input, hidden));
  if (!embed_layers_.has_value()) return hidden;
  std::vector<int32_t> ids = input.token_ids;
  for (const EmbeddedRows& embedded : input.embedded) {
    std::fill_n(ids.begin() + embedded.begin, embedded.count, kPaddingToken);
  }
  return (*embed_layers_)(hidden, memory_->FromHost(HostTensor(ids)), params_).cast<ffi::Tensor>();
}

ffi::Tensor TvmModel::WithPieces(const ForwardInput& input, const ffi::Tensor& embeddings) const {
  ffi::Tensor hidden = memory_->ToHost(embeddings);
  const size_t width = static_cast<size_t>(hidden.shape()[1]);
  auto* const rows = static_cast<float*>(hidden.data_ptr());
  for (const EmbeddedRows& embedded : input.embedded) {
    for (int32_t i = 0; i < embedded.count; ++i) {
      std::copy_n(embedded.data + i * shape_.embedded_row_size, width,
                  rows + static_cast<size_t>(embedded.begin + i) * width);
    }
  }
  return hidden;
}

ForwardOutput TvmModel::Forward(const ForwardInput& input) {
  RequireHiddenLayers(input.hidden.layers, hidden_layers());
  ThreadPool::Scope scope(pool_);
  HugePages::Scope huge_pages_scope(huge_pages_);
  std::optional<StateMemory::Scope> recurrent_scope;
  if (recurrent_ != nullptr) recurrent_scope.emplace(*recurrent_);
  const int64_t num_tokens = static_cast<int64_t>(input.token_ids.size());
  const int64_t num_rows = static_cast<int64_t>(input.sequence_ids.size());
  state_->BeginForward(input);
  ffi::Tensor hidden = Embed(input);
  const int64_t width = hidden.shape()[1];
  PassPieces pieces;
  pieces.num_rows = num_tokens;
  std::optional<PassPieces::Scope> pieces_scope;
  if (!input.embedded.empty() || !input.rope_positions.empty()) {
    piece_rows_.clear();
    for (const EmbeddedRows& embedded : input.embedded) {
      piece_rows_.push_back({embedded.begin, embedded.count, embedded.data});
    }
    pieces.pieces = piece_rows_;
    pieces.num_parts = std::max<int64_t>(1, shape_.embedded_row_size / width);
    if (!input.rope_positions.empty()) pieces.rope_positions = input.rope_positions.data();
    pieces.rope_axes = shape_.rope_axes;
    pieces_scope.emplace(pieces);
  }
  const bool only_decodes =
      num_rows == num_tokens && input.logit_positions.size() == input.token_ids.size();
  ffi::Any result;
  if (only_decodes) {
    hidden = reshape_(hidden, ffi::Shape{num_tokens, 1, width}).cast<ffi::Tensor>();
    result = decode_(hidden, state_->cache(), params_);
  } else {
    hidden = reshape_(hidden, ffi::Shape{1, num_tokens, width}).cast<ffi::Tensor>();
    result = prefill_(hidden, memory_->FromHost(HostTensor(input.logit_positions)), state_->cache(),
                      params_);
  }
  state_->EndForward();
  logits_ = memory_->ToHost(result.cast<ffi::Array<ffi::Any>>()[0].cast<ffi::Tensor>());
  logits_ = reshape_(logits_, ffi::Shape{static_cast<int64_t>(input.logit_positions.size()),
                                         shape_.vocab_size})
                .cast<ffi::Tensor>();
  return {.logits = static_cast<const float*>(logits_.data_ptr()), .hidden = {}};
}

}  // namespace aiomlc
