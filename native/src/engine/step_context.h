/*!
 * \file engine/step_context.h
 * \brief The state shared by the classes of the step thread.
 */
#ifndef AIOMLC_ENGINE_STEP_CONTEXT_H_
#define AIOMLC_ENGINE_STEP_CONTEXT_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "engine/engine_options.h"
#include "metrics/meter.h"
#include "metrics/statistics.h"
#include "model/model.h"
#include "scheduling/scheduler.h"
#include "sequence/record.h"
#include "speculation/speculation.h"

namespace aiomlc {

/*! \brief The shared state; used only by the thread that steps the model. */
struct StepContext {
  /*! \throws EngineError kBadRequest for an invalid option. */
  StepContext(Model* model, const EngineOptions& options)
      : model(model),
        now(options.now),
        scheduler(&model->state(),
                  {.max_batch_size = model->max_batch_size(),
                   .step_token_budget = StepTokenBudget(*model, options),
                   .idle_step_token_budget =
                       std::min(options.idle_step_token_budget, model->prefill_chunk_size()),
                   .max_recycling = options.max_recycling_sequences,
                   .separate_prefill = options.separate_prefill,
                   .needs_whole_pieces = model->piece_traits().needs_whole_pieces}),
        speculation(CreateSpeculation(*model, options)) {}
  StepContext(const StepContext&) = delete;
  StepContext& operator=(const StepContext&) = delete;

  Model* const model;
  const std::function<TimePoint()> now;
  Scheduler scheduler;
  /*! \brief Null if speculative decoding is disabled. */
  const std::unique_ptr<Speculation> speculation;
  Statistics totals;
  Meter meter{&totals};
  /*! \brief The records since the last `Engine::Publish`. */
  std::vector<Record> records;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_STEP_CONTEXT_H_
