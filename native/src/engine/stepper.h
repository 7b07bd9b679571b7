/*!
 * \file engine/stepper.h
 * \brief One step of the engine: plan, reserve, run, commit.
 */
#ifndef AIOMLC_ENGINE_STEPPER_H_
#define AIOMLC_ENGINE_STEPPER_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/inbox.h"
#include "engine/sequence_table.h"
#include "engine/step_context.h"
#include "engine/token_committer.h"
#include "metrics/event_trace.h"
#include "metrics/statistics.h"
#include "scheduling/step_plan.h"
#include "sequence/record.h"

namespace aiomlc {

/*!
 * \brief Everything that the stepping thread owns. One thread at a time may use it.
 *
 * What a step produced stays here until the caller takes it: records, notices, statistics.
 */
class Stepper {
 public:
  /*!
   * \param model Not owned; must outlive the stepper.
   * \param ids Not owned; where submitted sequences got their ids.
   * \throws EngineError kBadRequest for a bad option.
   */
  Stepper(Model* model, const EngineOptions& options, IdSource* ids);

  /*!
   * \brief Carry out the calls that came since the last step, then compute one step, if there is
   * anything to compute.
   * \throws What the model throws; then `Abort` is all that may follow.
   */
  void Step(Inbox calls);

  /*!
   * \brief End every sequence, those of `submitted` too, and empty the prefix cache.
   * \return The first error of the model on the way; empty if there was none.
   */
  std::string Abort(std::vector<std::unique_ptr<Sequence>> submitted, FinishReason reason,
                    const std::string& error);

  /*! \brief Records to publish; the caller takes them and clears the list. */
  std::vector<Record>& records() { return context_.records; }
  /*! \return Sentences for the log about drafts that failed since the last call. */
  std::vector<std::string> TakeNotices();
  /*! \brief The counters, with the gauges of this moment. */
  const Statistics& UpdateStatistics();
  bool has_unpaused() const { return sequences_.has_unpaused(); }
  TimePoint next_deadline() { return sequences_.next_deadline(); }
  /*! \brief May be enabled and read from any thread. */
  EventTrace& trace() { return context_.meter.trace(); }

  /*! \throws std::logic_error that lists every contradiction between two counts of one thing. */
  void CheckInvariants(int64_t max_sequence_tokens) const;

 private:
  void ApplyCalls(Inbox calls);
  void RunPlan();
  /*! \brief Give decoding sequences draft tokens. */
  void ProposeDrafts();
  /*! \brief Preempt, fork, evict and add sequences of the model as planned. */
  void ApplySequenceChanges(const StepPlan& plan);
  const float* Forward(const StepPlan& plan);

  StepContext context_;
  SequenceTable sequences_;
  TokenCommitter committer_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_STEPPER_H_
