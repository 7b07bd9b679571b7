#include "model/page_table_state.h"

#include <tvm/ffi/container/array.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "model/paged_kv_state.h"
#include "model/virtual_machine.h"

namespace aiomlc {

namespace ffi = tvm::ffi;

namespace {

constexpr int64_t kPageSize = 16;

int64_t NumPages(int64_t num_tokens) { return (num_tokens + kPageSize - 1) / kPageSize; }

/*! \brief Require that a slot holds a state; only after drafts, tokens must be computed again. */
void RequireComputed(const SlotRun& run) {
  if (run.count > 0) throw std::logic_error("drafts cannot be rewound on this device");
}

std::vector<ffi::Any> CreateTensors(const ffi::Module& machine, const char* function,
                                    int64_t count) {
  const auto tensors =
      RequireFunction(machine, function)(ffi::Shape{count}).cast<ffi::Array<ffi::Any>>();
  return {tensors.begin(), tensors.end()};
}

}  // namespace

PageTableState::PageTableState(const ModelShape& shape, const ffi::Module& machine,
                               const TensorMemory& memory)
    : shape_(shape), memory_(memory), copy_page_(RequireFunction(machine, "copy_kv_page")) {
  // One page more than the tokens need, as TVM's cache and the memory plan have.
  const int64_t num_pages = NumPages(shape_.max_total_tokens) + 1;
  try {
    pages_ = CreateTensors(machine, "create_kv_pages", num_pages);
    if (!shape_.recurrent_sizes.empty()) {
      states_ = CreateTensors(machine, "create_recurrent_states", shape_.num_slots);
      slots_.emplace(shape_.num_slots, shape_.checkpoint_interval);
    }
  } catch (const std::exception& error) {
    ThrowCacheAllocationError(shape_, error.what());
  }
  references_.resize(static_cast<size_t>(num_pages));
  for (int64_t page = num_pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
}

Resources PageTableState::total() const {
  Resources total{.pages = static_cast<int64_t>(references_.size())};
  if (slots_) total.slots = slots_->num_slots();
  return total;
}

Resources PageTableState::Cost(int64_t num_tokens) const {
  Resources cost{.pages = NumPages(num_tokens)};
  if (slots_) cost.slots = RecurrentSlots::Cost(num_tokens, slots_->interval());
  return cost;
}

Resources PageTableState::token_cost() const {
  Resources cost{.pages = 1};
  if (slots_) cost.slots = 2;
  return cost;
}

int64_t PageTableState::granularity() const { return slots_ ? slots_->interval() : 1; }

int64_t PageTableState::sharing_granularity() const { return slots_ ? 0 : kPageSize; }

int64_t PageTableState::Checkpoint(int64_t sequence_id, int64_t num_tokens) const {
  return slots_ ? slots_->Checkpoint(sequence_id, num_tokens) : num_tokens;
}

void PageTableState::Keep(int64_t sequence_id, int64_t num_tokens, Mark mark) {
  if (slots_) slots_->Keep(sequence_id, num_tokens, mark);
}

void PageTableState::Add(int64_t sequence_id) {
  sequences_.try_emplace(sequence_id);
  if (slots_) slots_->Add(sequence_id);
}

void PageTableState::Fork(int64_t source_id, int64_t sequence_id, int64_t num_tokens) {
  const Sequence& source = sequences_.at(source_id);
  Sequence fork;
  fork.length = num_tokens;
  const auto num_full = static_cast<size_t>(num_tokens / kPageSize);
  for (size_t i = 0; i < num_full; ++i) {
    fork.pages.push_back(source.pages[i]);
    ++references_[static_cast<size_t>(source.pages[i])];
  }
  if (num_tokens % kPageSize != 0) fork.pages.push_back(CopyPage(source.pages[num_full]));
  sequences_.insert_or_assign(sequence_id, std::move(fork));
  if (slots_) RequireComputed(slots_->Fork(source_id, sequence_id, num_tokens));
}

void PageTableState::Rewind(int64_t sequence_id, int64_t count) {
  Sequence& sequence = sequences_.at(sequence_id);
  sequence.length -= count;
  ReleasePages(&sequence, static_cast<size_t>(NumPages(sequence.length)));
  if (slots_) RequireComputed(slots_->Rewind(sequence_id, sequence.length));
}

void PageTableState::Remove(int64_t sequence_id) {
  auto entry = sequences_.extract(sequence_id);
  if (entry.empty()) return;  // It could not be added.
  ReleasePages(&entry.mapped(), 0);
  if (slots_) slots_->Remove(sequence_id);
}

size_t PageTableState::ExportBytes(int64_t /*begin*/, int64_t /*end*/) const { return 0; }

void PageTableState::Export(int64_t /*sequence_id*/, int64_t /*begin*/, int64_t /*end*/,
                            std::byte* /*data*/) const {
  throw std::logic_error("prefixes on this device cannot be exported");
}

void PageTableState::Import(int64_t /*sequence_id*/, int64_t /*count*/, const std::byte* /*data*/) {
  throw std::logic_error("prefixes on this device cannot be imported");
}

void PageTableState::BeginForward(const ForwardInput& input) {
  const size_t num_rows = input.sequence_ids.size();
  std::vector<int32_t> positions, slots, sequences;
  size_t widest = 1;
  for (size_t i = 0; i < num_rows; ++i) {
    Sequence& sequence = sequences_.at(input.sequence_ids[i]);
    const int64_t begin = sequence.length;
    AppendTokens(&sequence, input.append_lengths[i], &slots);
    for (int64_t position = begin; position < sequence.length; ++position) {
      positions.push_back(static_cast<int32_t>(position));
      sequences.push_back(static_cast<int32_t>(i));
    }
    widest = std::max(widest, sequence.pages.size());
  }
  std::vector<int32_t> table(num_rows * widest);
  for (size_t i = 0; i < num_rows; ++i) {
    const std::vector<int32_t>& pages = sequences_.at(input.sequence_ids[i]).pages;
    std::copy(pages.begin(), pages.end(), table.begin() + static_cast<int64_t>(i * widest));
  }
  const auto count = static_cast<int64_t>(positions.size());
  std::vector<ffi::Any> tensors = {
      ToMemory(positions, {count}), ToMemory(slots, {count}), ToMemory(sequences, {count}),
      ToMemory(table, {static_cast<int64_t>(num_rows), static_cast<int64_t>(widest)})};
  AppendPieces(input, positions, &tensors);
  if (slots_) AppendRuns(input, &tensors);
  tensors.insert(tensors.end(), pages_.begin(), pages_.end());
  tensors.insert(tensors.end(), states_.begin(), states_.end());
  cache_ = ffi::Array<ffi::Any>(tensors.begin(), tensors.end());
}

void PageTableState::EndForward() {
  if (slots_) slots_->EndPass();
}

void PageTableState::AppendPieces(const ForwardInput& input, const std::vector<int32_t>& positions,
                                  std::vector<ffi::Any>* tensors) const {
  const auto count = static_cast<int64_t>(positions.size());
  const auto at = [](int32_t row) { return static_cast<size_t>(row); };
  if (!shape_.rope_axes.empty()) {
    std::vector<int32_t> axes = input.rope_positions;
    for (int i = 0; i < 3 && input.rope_positions.empty(); ++i) {
      axes.insert(axes.end(), positions.begin(), positions.end());
    }
    tensors->emplace_back(ToMemory(axes, {3, count}));
  }
  if (shape_.needs_whole_pieces) {
    std::vector<int32_t> ends = positions;
    ends.insert(ends.end(), positions.begin(), positions.end());
    for (const EmbeddedRows& piece : input.embedded) {
      const int32_t end = piece.begin + piece.count;
      for (int32_t row = piece.begin; row < end; ++row) {
        ends[at(row)] = positions[at(piece.begin)];
        ends[positions.size() + at(row)] = positions[at(end - 1)];
      }
    }
    tensors->emplace_back(ToMemory(ends, {2, count}));
  }
  if (shape_.num_piece_layers > 0) {
    std::vector<int32_t> indices(positions.size(), -1);
    std::vector<float> rows;
    for (const EmbeddedRows& piece : input.embedded) {
      for (int32_t i = 0; i < piece.count; ++i) {
        indices[at(piece.begin + i)] =
            static_cast<int32_t>(rows.size()) / static_cast<int32_t>(shape_.embedded_row_size);
        const float* const row = piece.data + i * shape_.embedded_row_size;
        rows.insert(rows.end(), row, row + shape_.embedded_row_size);
      }
    }
    if (rows.empty()) rows.resize(static_cast<size_t>(shape_.embedded_row_size));
    const auto num_rows = static_cast<int64_t>(rows.size()) / shape_.embedded_row_size;
    const ffi::Tensor tensor =
        EmptyTensor({num_rows, shape_.embedded_row_size}, DLDataType{kDLFloat, 32, 1});
    std::copy(rows.begin(), rows.end(), static_cast<float*>(tensor.data_ptr()));
    tensors->emplace_back(ToMemory(indices, {count}));
    tensors->emplace_back(memory_.FromHost(tensor));
  }
}

void PageTableState::AppendRuns(const ForwardInput& input, std::vector<ffi::Any>* tensors) {
  std::vector<int32_t> indptr = {0};
  std::vector<int32_t> runs;
  int64_t begin = 0;
  for (size_t i = 0; i < input.sequence_ids.size(); ++i) {
    for (const SlotRun& run :
         slots_->Append(input.sequence_ids[i], input.append_lengths[i], false)) {
      const auto first = static_cast<int32_t>(begin);
      const auto count = static_cast<int32_t>(run.count);
      runs.insert(runs.end(), {first, count, run.source, run.target});
      begin += run.count;
    }
    indptr.push_back(static_cast<int32_t>(runs.size() / 4));
  }
  const auto num_runs = static_cast<int64_t>(runs.size() / 4);
  tensors->emplace_back(ToMemory(indptr, {static_cast<int64_t>(indptr.size())}));
  tensors->emplace_back(ToMemory(runs, {num_runs, 4}));
}

int32_t PageTableState::TakePage() {
  if (free_.empty()) throw std::logic_error("more pages are used than exist");
  const int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void PageTableState::ReleasePages(Sequence* sequence, size_t kept) {
  for (; sequence->pages.size() > kept; sequence->pages.pop_back()) {
    const int32_t page = sequence->pages.back();
    if (--references_[static_cast<size_t>(page)] == 0) free_.push_back(page);
  }
}

int32_t PageTableState::CopyPage(int32_t source) {
  const int32_t target = TakePage();
  copy_page_(ffi::Array<ffi::Any>(pages_.begin(), pages_.end()), ToMemory({source, target}, {2}));
  return target;
}

void PageTableState::AppendTokens(Sequence* sequence, int64_t count, std::vector<int32_t>* slots) {
  // After a rewind, other sequences may share the page that the next token is written to.
  if (count > 0 && sequence->length % kPageSize != 0) {
    const int32_t last = sequence->pages.back();
    if (references_[static_cast<size_t>(last)] > 1) {
      sequence->pages.back() = CopyPage(last);
      --references_[static_cast<size_t>(last)];
    }
  }
  for (int64_t i = 0; i < count; ++i, ++sequence->length) {
    const int64_t offset = sequence->length % kPageSize;
    if (offset == 0) sequence->pages.push_back(TakePage());
    slots->push_back(static_cast<int32_t>(sequence->pages.back() * kPageSize + offset));
  }
}

ffi::Tensor PageTableState::ToMemory(const std::vector<int32_t>& values,
                                     const ffi::Shape& shape) const {
  const ffi::Tensor tensor = EmptyTensor(shape, DLDataType{kDLInt, 32, 1});
  std::copy(values.begin(), values.end(), static_cast<int32_t*>(tensor.data_ptr()));
  return memory_.FromHost(tensor);
}

}  // namespace aiomlc
