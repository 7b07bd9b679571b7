/*!
 * \file model/faulty_model.h
 * \brief A model wrapper that injects faults, for tests.
 */
#ifndef AIOMLC_MODEL_FAULTY_MODEL_H_
#define AIOMLC_MODEL_FAULTY_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace aiomlc {

/*! \brief The faults to inject. Forward passes are counted from 1; 0 disables a fault. */
struct Faults {
  /*! \brief The pass that throws std::runtime_error. */
  int64_t fail_at_pass = 0;
  /*! \brief The pass that throws std::bad_alloc. */
  int64_t allocation_fails_at_pass = 0;
  /*! \brief The pass whose first row of logits is NaN; only passes with logits are counted. */
  int64_t nan_at_pass = 0;
  /*! \brief The first row of logits is NaN in every n-th pass with logits. */
  int64_t nan_every = 0;
  /*! \brief The import of tokens that throws std::runtime_error, counted from 1. */
  int64_t fail_at_import = 0;
};

/*! \brief Forwards all calls to the state of another model, and injects faults into imports. */
class FaultyState final : public SequenceState {
 public:
  /*! \param state Not owned; must outlive this object. */
  FaultyState(SequenceState* state, int64_t fail_at_import)
      : state_(state), fail_at_import_(fail_at_import) {}

  Resources total() const final { return state_->total(); }
  Resources Cost(int64_t num_tokens) const final { return state_->Cost(num_tokens); }
  Resources token_cost() const final { return state_->token_cost(); }
  int64_t granularity() const final { return state_->granularity(); }
  int64_t sharing_granularity() const final { return state_->sharing_granularity(); }
  int64_t Checkpoint(int64_t sequence_id, int64_t num_tokens) const final {
    return state_->Checkpoint(sequence_id, num_tokens);
  }
  void Keep(int64_t sequence_id, int64_t num_tokens, Mark mark) final {
    state_->Keep(sequence_id, num_tokens, mark);
  }
  void Add(int64_t sequence_id) final { state_->Add(sequence_id); }
  void Fork(int64_t source_id, int64_t sequence_id, int64_t num_tokens) final {
    state_->Fork(source_id, sequence_id, num_tokens);
  }
  void Rewind(int64_t sequence_id, int64_t count) final { state_->Rewind(sequence_id, count); }
  void Remove(int64_t sequence_id) final { state_->Remove(sequence_id); }
  size_t ExportBytes(int64_t begin, int64_t end) const final {
    return state_->ExportBytes(begin, end);
  }
  void Export(int64_t sequence_id, int64_t begin, int64_t end, std::byte* data) const final {
    state_->Export(sequence_id, begin, end, data);
  }
  void Import(int64_t sequence_id, int64_t count, const std::byte* data) final;

 private:
  SequenceState* const state_;
  const int64_t fail_at_import_;
  int64_t num_imports_ = 0;
};

/*! \brief Forwards all calls to another model, and injects faults. */
class FaultyModel final : public Model {
 public:
  /*! \param model Not owned; must outlive this object. */
  FaultyModel(Model* model, Faults faults)
      : model_(model), faults_(faults), state_(&model->state(), faults.fail_at_import) {}

  int64_t vocab_size() const final { return model_->vocab_size(); }
  int64_t context_window() const final { return model_->context_window(); }
  int64_t max_batch_size() const final { return model_->max_batch_size(); }
  int64_t prefill_chunk_size() const final { return model_->prefill_chunk_size(); }
  PieceTraits piece_traits() const final { return model_->piece_traits(); }
  std::span<const HiddenLayer> hidden_layers() const final { return model_->hidden_layers(); }
  int64_t hidden_size() const final { return model_->hidden_size(); }
  ThreadPool* thread_pool() final { return model_->thread_pool(); }
  SequenceState& state() final { return state_; }
  const SequenceState& state() const final { return state_; }
  ForwardOutput Forward(const ForwardInput& input) final;

 private:
  Model* const model_;
  const Faults faults_;
  FaultyState state_;
  int64_t num_passes_ = 0;
  int64_t num_passes_with_logits_ = 0;
  /*! \brief A copy of the logits with a row of NaN. */
  std::vector<float> nan_logits_;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_FAULTY_MODEL_H_
