#include "model/hybrid_state.h"

#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace aiomlc {

namespace ffi = tvm::ffi;

namespace {

StateMemory Allocate(const ModelShape& shape) {
  try {
    return {shape.num_slots, shape.recurrent_sizes};
  } catch (const std::bad_alloc&) {
    throw ffi::Error("MemoryError",
                     std::to_string(shape.num_slots) + " recurrent states cannot be allocated", "");
  }
}

}  // namespace

HybridState::HybridState(const ModelShape& shape, const ffi::Function& create_cache,
                         HugePages* huge_pages, ThreadPool* pool)
    : pages_(shape, create_cache, huge_pages),
      slots_(shape.num_slots, shape.checkpoint_interval),
      memory_(Allocate(shape)),
      pool_(pool) {
  huge_pages->Request(memory_.slot(0), static_cast<size_t>(shape.num_slots) * memory_.slot_bytes());
}

Resources HybridState::total() const {
  Resources total = pages_.total();
  total.slots = slots_.num_slots();
  return total;
}

Resources HybridState::Cost(int64_t num_tokens) const {
  Resources cost = pages_.Cost(num_tokens);
  cost.slots = RecurrentSlots::Cost(num_tokens, slots_.interval());
  return cost;
}

void HybridState::Add(int64_t sequence_id) {
  pages_.Add(sequence_id);
  slots_.Add(sequence_id);
}

void HybridState::Fork(int64_t source_id, int64_t sequence_id, int64_t num_tokens) {
  pages_.Fork(source_id, sequence_id, num_tokens);
  Replay(source_id, slots_.Fork(source_id, sequence_id, num_tokens));
}

void HybridState::Rewind(int64_t sequence_id, int64_t count) {
  pages_.Rewind(sequence_id, count);
  Replay(sequence_id, slots_.Rewind(sequence_id, slots_.length(sequence_id) - count));
}

void HybridState::Remove(int64_t sequence_id) {
  memory_.Forget(sequence_id);
  slots_.Remove(sequence_id);
  pages_.Remove(sequence_id);
}

size_t HybridState::ExportBytes(int64_t begin, int64_t end) const {
  return pages_.ExportBytes(begin, end) + memory_.slot_bytes();
}

void HybridState::Export(int64_t sequence_id, int64_t begin, int64_t end, std::byte* data) const {
  pages_.Export(sequence_id, begin, end, data);
  std::byte* const state = data + pages_.ExportBytes(begin, end);
  const SlotRun run = slots_.Find(sequence_id, end);
  if (run.count == 0) {
    std::memcpy(state, memory_.slot(run.source), memory_.slot_bytes());
    return;
  }
  std::vector<float> target(memory_.slot_bytes() / sizeof(float));
  const ThreadPool::Scope scope(*pool_);
  memory_.Replay(sequence_id,
                 {0, run.count, run.source == SlotRun::kEmpty ? nullptr : memory_.slot(run.source),
                  target.data()});
  std::memcpy(state, target.data(), memory_.slot_bytes());
}

void HybridState::Import(int64_t sequence_id, int64_t count, const std::byte* data) {
  pages_.Import(sequence_id, count, data);
  memory_.Forget(sequence_id);
  const int32_t slot = slots_.Replace(sequence_id, count);
  std::memcpy(memory_.slot(slot), data + pages_.ExportBytes(0, count), memory_.slot_bytes());
}

void HybridState::BeginForward(const ForwardInput& input) {
  pages_.BeginForward(input);
  std::vector<StateRow> rows;
  int64_t begin = 0;
  for (size_t i = 0; i < input.sequence_ids.size(); ++i) {
    StateRow row;
    row.sequence_id = input.sequence_ids[i];
    row.records = !input.draft_lengths.empty() && input.draft_lengths[i] > 0;
    for (const SlotRun& run :
         slots_.Append(row.sequence_id, input.append_lengths[i], row.records)) {
      row.chain.push_back(ToStateRun(run, begin));
      begin += run.count;
    }
    rows.push_back(std::move(row));
  }
  memory_.Begin(std::move(rows));
}

void HybridState::EndForward() {
  pages_.EndForward();
  slots_.EndPass();
}

StateRun HybridState::ToStateRun(const SlotRun& run, int64_t begin) {
  return {begin, run.count, run.source == SlotRun::kEmpty ? nullptr : memory_.slot(run.source),
          memory_.slot(run.target)};
}

void HybridState::Replay(int64_t sequence_id, const SlotRun& run) {
  if (run.count == 0) return;
  const ThreadPool::Scope scope(*pool_);
  memory_.Replay(sequence_id, ToStateRun(run, 0));
}

}  // namespace aiomlc
