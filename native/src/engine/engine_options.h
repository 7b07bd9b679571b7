/*!
 * \file engine/engine_options.h
 * \brief The options of an engine, and the limits that follow from them and the model.
 */
#ifndef AIOMLC_ENGINE_ENGINE_OPTIONS_H_
#define AIOMLC_ENGINE_ENGINE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

#include "model/model.h"
#include "sequence/deadline_queue.h"
#include "speculation/speculation.h"

namespace aiomlc {

/*! \brief The options of an engine. */
struct EngineOptions {
  /*!
   * \brief The maximum number of tokens per step, >= 1; limited by the model's
   * prefill_chunk_size().
   */
  int64_t step_token_budget = 512;
  /*! \brief The same of a step with one sequence while none is waiting; ignored if it is less. */
  int64_t idle_step_token_budget = 0;
  /*!
   * \brief The maximum number of ended sequences in the prefix cache; -1: no limit, 0: the prefix
   * cache is disabled, and prompts are not forked from running sequences either.
   */
  int64_t max_recycling_sequences = 0;
  /*! \brief The maximum number of waiting sequences, >= 0; `Submit` rejects more. */
  int64_t max_queue_size = std::numeric_limits<int32_t>::max();
  /*! \brief Whether a step with prefills has no decodes. */
  bool separate_prefill = false;
  /*! \brief The clock of deadlines. */
  std::function<TimePoint()> now = Clock::now;
  SpeculativeMode speculative_mode = SpeculativeMode::kDisable;
  /*! \brief Draft tokens per proposal; 0 adapts the number to each sequence. */
  int64_t draft_length = 0;
  /*! \brief The draft model of kSmallDraft. Not owned; must outlive the engine. */
  Model* draft_model = nullptr;
  /*! \brief Creates the drafter of kCustom, for the target model. */
  std::function<std::unique_ptr<Drafter>(const Model&)> create_drafter = nullptr;
};

/*!
 * \return The maximum number of tokens per step, limited by the model's prefill_chunk_size().
 * \throws EngineError kBadRequest if step_token_budget is less than 1.
 */
int64_t StepTokenBudget(const Model& model, const EngineOptions& options);

/*!
 * \return The maximum number of live sequences: running and waiting.
 * \throws EngineError kBadRequest if max_queue_size is negative.
 */
int64_t MaxLiveSequences(const Model& model, const EngineOptions& options);

/*!
 * \return The proposer of draft tokens; null if speculative decoding is disabled.
 * \throws EngineError kBadRequest if the draft length is negative, or if the draft model is missing
 *     or has a vocabulary of another size.
 * \throws HiddenLayerError if the model does not return the hidden states that the drafter reads.
 */
std::unique_ptr<Speculation> CreateSpeculation(const Model& model, const EngineOptions& options);

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_ENGINE_OPTIONS_H_
