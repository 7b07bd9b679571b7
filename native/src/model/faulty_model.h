/*!
 * \file model/faulty_model.h
 * \brief A model wrapper that injects faults, for tests.
 */
#ifndef AIOMLC_MODEL_FAULTY_MODEL_H_
#define AIOMLC_MODEL_FAULTY_MODEL_H_

#include <cstddef>
#include <cstdint>
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

/*! \brief Forwards all calls to another model, and injects faults. */
class FaultyModel final : public Model {
 public:
  /*! \param model Not owned; must outlive this object. */
  FaultyModel(Model* model, Faults faults) : model_(model), faults_(faults) {}

  int64_t vocab_size() const final { return model_->vocab_size(); }
  int64_t context_window() const final { return model_->context_window(); }
  int64_t page_size() const final { return model_->page_size(); }
  int64_t num_pages() const final { return model_->num_pages(); }
  int64_t max_batch_size() const final { return model_->max_batch_size(); }
  int64_t prefill_chunk_size() const final { return model_->prefill_chunk_size(); }
  int64_t embedded_row_size() const final { return model_->embedded_row_size(); }
  size_t kv_token_bytes() const final { return model_->kv_token_bytes(); }

  void AddSequence(int64_t sequence_id) final { model_->AddSequence(sequence_id); }
  void ForkSequence(int64_t source_id, int64_t sequence_id, int64_t num_tokens) final {
    model_->ForkSequence(source_id, sequence_id, num_tokens);
  }
  void RemoveSequence(int64_t sequence_id) final { model_->RemoveSequence(sequence_id); }
  void PopTokens(int64_t sequence_id, int64_t count) final {
    model_->PopTokens(sequence_id, count);
  }
  const float* Forward(const ForwardInput& input) final;
  void ExportTokens(int64_t sequence_id, int64_t begin, int64_t end, std::byte* data) const final {
    model_->ExportTokens(sequence_id, begin, end, data);
  }
  void ImportTokens(int64_t sequence_id, int64_t count, const std::byte* data) final;

 private:
  Model* const model_;
  const Faults faults_;
  int64_t num_passes_ = 0;
  int64_t num_passes_with_logits_ = 0;
  int64_t num_imports_ = 0;
  /*! \brief A copy of the logits with a row of NaN. */
  std::vector<float> nan_logits_;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_FAULTY_MODEL_H_
