#include "engine/engine_options.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "options/engine_error.h"
#include "speculation/model_drafter.h"
#include "speculation/prompt_lookup.h"

namespace aiomlc {

namespace {

std::unique_ptr<Drafter> CreateDrafter(const Model& model, const EngineOptions& options) {
  if (options.speculative_mode == SpeculativeMode::kPromptLookup) {
    return std::make_unique<PromptLookup>();
  }
  if (options.speculative_mode == SpeculativeMode::kCustom) {
    if (!options.create_drafter) {
      throw EngineError(ErrorKind::kBadRequest, "a custom drafter needs create_drafter, got none");
    }
    return options.create_drafter(model);
  }
  Model* draft_model = options.draft_model;
  if (draft_model == nullptr) {
    throw EngineError(ErrorKind::kBadRequest, "small_draft needs an additional model, got none");
  }
  if (draft_model->vocab_size() != model.vocab_size()) {
    throw EngineError(ErrorKind::kBadRequest, "the vocabulary of the additional model must have " +
                                                  std::to_string(model.vocab_size()) +
                                                  " tokens like the model's, got " +
                                                  std::to_string(draft_model->vocab_size()));
  }
  return std::make_unique<ModelDrafter>(draft_model, StepTokenBudget(model, options));
}

}  // namespace

int64_t StepTokenBudget(const Model& model, const EngineOptions& options) {
  if (options.step_token_budget < 1) {
    throw EngineError(ErrorKind::kBadRequest, "step_token_budget must be >= 1, got " +
                                                  std::to_string(options.step_token_budget));
  }
  return std::min(options.step_token_budget, model.prefill_chunk_size());
}

int64_t MaxLiveSequences(const Model& model, const EngineOptions& options) {
  if (options.max_queue_size < 0) {
    throw EngineError(ErrorKind::kBadRequest,
                      "max_queue_size must be >= 0, got " + std::to_string(options.max_queue_size));
  }
  return std::min(model.max_batch_size(), StepTokenBudget(model, options)) + options.max_queue_size;
}

std::unique_ptr<Speculation> CreateSpeculation(const Model& model, const EngineOptions& options) {
  if (options.draft_length < 0) {
    throw EngineError(ErrorKind::kBadRequest,
                      "draft_length must be >= 0, got " + std::to_string(options.draft_length));
  }
  if (options.speculative_mode == SpeculativeMode::kDisable) return nullptr;
  std::unique_ptr<Drafter> drafter = CreateDrafter(model, options);
  RequireHiddenLayers(drafter->hidden_layers(), model.hidden_layers());
  return std::make_unique<Speculation>(std::move(drafter), options.draft_length);
}

}  // namespace aiomlc
