#include "kernels/recurrent/state_memory.h"

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace aiomlc {

namespace {

constexpr std::align_val_t kAlignment{64};

thread_local StateMemory* current_memory = nullptr;

/*! \brief Rows that a layer reads, and which must be kept to compute its state again. */
struct InputRows {
  const float** rows;
  int64_t size;  //!< Floats of a row.
};

std::array<InputRows, 1> StateInputs(ShortConvCall* call) {
  return {{{&call->inputs, 3 * call->channels}}};
}

std::array<InputRows, 2> StateInputs(GatedDeltaCall* call) {
  return {{{&call->inputs, call->row_size()}, {&call->gates, 2 * call->num_value_heads}}};
}

void Compute(const ShortConvCall& call, std::span<const StateChain> chains, int64_t offset) {
  ShortConv(ThreadPool::Current(), call, chains, offset);
}

void Compute(const GatedDeltaCall& call, std::span<const StateChain> chains, int64_t offset) {
  GatedDelta(ThreadPool::Current(), call, chains, offset);
}

}  // namespace

void StateMemory::Free::operator()(float* memory) const { ::operator delete(memory, kAlignment); }

StateMemory::StateMemory(int64_t num_slots, const std::vector<int64_t>& layer_sizes)
    : calls_(layer_sizes.size()) {
  for (const int64_t size : layer_sizes) {
    offsets_.push_back(slot_size_);
    slot_size_ += (size + 15) / 16 * 16;
  }
  // The system gives the pages when they are first written.
  memory_.reset(static_cast<float*>(
      ::operator new(static_cast<size_t>(num_slots) * slot_bytes(), kAlignment)));
}

void StateMemory::Begin(std::vector<StateRow> rows) {
  rows_ = std::move(rows);
  chains_.clear();
  for (const StateRow& row : rows_) {
    chains_.push_back(row.chain);
    if (row.records) {
      records_[row.sequence_id].resize(offsets_.size());
    } else {
      Forget(row.sequence_id);
    }
  }
}

template <typename LayerCall>
void StateMemory::RunLayer(int64_t layer, const LayerCall& call) {
  const auto index = static_cast<size_t>(layer);
  if (index >= offsets_.size()) throw std::out_of_range("the model has fewer recurrent layers");
  LayerCall kept = call;
  for (const StateRow& row : rows_) {
    if (!row.records) continue;
    const int64_t begin = row.chain.front().begin;
    const int64_t end = row.chain.back().begin + row.chain.back().count;
    std::vector<float>& record = records_.at(row.sequence_id)[index];
    record.clear();
    for (const auto& [rows, size] : StateInputs(&kept)) {
      record.insert(record.end(), *rows + begin * size, *rows + end * size);
    }
  }
  calls_[index] = call;
  Compute(call, chains_, offsets_[index]);
}

void StateMemory::Run(int64_t layer, const ShortConvCall& call) { RunLayer(layer, call); }
void StateMemory::Run(int64_t layer, const GatedDeltaCall& call) { RunLayer(layer, call); }

void StateMemory::Replay(int64_t sequence_id, const StateRun& run) const {
  const Inputs& inputs = records_.at(sequence_id);
  const std::array<StateChain, 1> chains{StateChain{run}};
  for (size_t layer = 0; layer < calls_.size(); ++layer) {
    std::visit(
        [&](auto call) {
          if constexpr (!std::is_same_v<decltype(call), std::monostate>) {
            int64_t row_size = 0;
            for (const auto& [rows, size] : StateInputs(&call)) row_size += size;
            if (row_size == 0) return;
            const auto count = static_cast<int64_t>(inputs[layer].size()) / row_size;
            const float* next = inputs[layer].data();
            for (const auto& [rows, size] : StateInputs(&call)) {
              *rows = next;
              next += count * size;
            }
            call.out = nullptr;
            Compute(call, chains, offsets_[layer]);
          }
        },
        calls_[layer]);
  }
}

StateMemory& StateMemory::Current() {
  if (current_memory == nullptr) throw std::logic_error("no model with recurrent layers runs");
  return *current_memory;
}

StateMemory::Scope::Scope(StateMemory& memory)
    : previous_(std::exchange(current_memory, &memory)) {}

StateMemory::Scope::~Scope() { current_memory = previous_; }

}  // namespace aiomlc
