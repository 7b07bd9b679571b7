/*!
 * \file engine/engine_options.h
 * \brief The settings of an engine, and the limits that follow from them and the model.
 */
#ifndef AIOMLC_ENGINE_ENGINE_OPTIONS_H_
#define AIOMLC_ENGINE_ENGINE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <limits>

#include "model/model.h"
#include "sequence/deadline_queue.h"
#include "speculation/speculation.h"

namespace aiomlc {

/*! \brief Settings of an engine. */
struct EngineOptions {
  /*! \brief Tokens of one step at most, at least 1; capped by the model's prefill_chunk_size(). */
  int64_t step_token_budget = 512;
  /*!
   * \brief Ended sequences to keep in the prefix cache; -1: no limit, 0: the prefix cache is off,
   * and prompts do not fork from running sequences either.
   */
  int64_t max_recycling_sequences = 0;
  /*!
   * \brief Sequences that may wait beside those that run, at least 0; any more are refused.
   */
  int64_t max_queue_size = std::numeric_limits<int32_t>::max();
  /*! \brief Whether a step that prefills has no decodes. */
  bool separate_prefill = false;
  /*! \brief The clock of deadlines. */
  std::function<TimePoint()> now = Clock::now;
  SpeculativeMode speculative_mode = SpeculativeMode::kDisable;
  /*! \brief Draft tokens per proposal; 0 adapts the number to each sequence. */
  int64_t draft_length = 0;
  /*! \brief The draft model of kSmallDraft; not owned, as the model. */
  Model* draft_model = nullptr;
};

/*!
 * \return Tokens of one step at most, given what the model takes.
 * \throws EngineError kBadRequest if step_token_budget is below 1.
 */
int64_t StepTokenBudget(const Model& model, const EngineOptions& options);

/*!
 * \return Sequences that may be live at once: those that run and those that wait.
 * \throws EngineError kBadRequest if max_queue_size is negative.
 */
int64_t MaxLiveSequences(const Model& model, const EngineOptions& options);

/*!
 * \return What proposes draft tokens; null when speculative decoding is disabled.
 * \throws EngineError kBadRequest for a bad draft length, or a draft model that is missing or has
 *     another vocabulary.
 */
std::unique_ptr<Speculation> CreateSpeculation(const Model& model, const EngineOptions& options);

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_ENGINE_OPTIONS_H_
