/*!
 * \file engine/stepper.h
 * \brief A step of the engine: plan, reserve resources, run the model, commit tokens.
 */
#ifndef AIOMLC_ENGINE_STEPPER_H_
#define AIOMLC_ENGINE_STEPPER_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/inbox.h"
#include "engine/prefix_transfer.h"
#include "engine/sequence_table.h"
#include "engine/step_context.h"
#include "engine/token_committer.h"
#include "metrics/event_trace.h"
#include "metrics/statistics.h"
#include "scheduling/step_plan.h"
#include "sequence/record.h"

namespace aiomlc {

/*!
 * \brief Runs steps, and owns their state. Used by one thread at a time.
 *
 * The results of a step (records, notices and statistics) stay here until the caller takes them.
 */
class Stepper {
 public:
  /*!
   * \param model Not owned; must outlive the stepper.
   * \param ids The source of the ids of submitted sequences. Not owned.
   * \throws EngineError kBadRequest for an invalid option.
   */
  Stepper(Model* model, const EngineOptions& options, IdSource* ids);

  /*!
   * \brief Apply the calls since the last step, and then run one step if there is work.
   * \throws The exceptions of the model, std::bad_alloc; afterwards, only `Abort` may be called.
   */
  void Step(Inbox calls);

  /*! \brief Apply the calls since the last step, without a step. \throws As `Step`. */
  void ApplyCalls(Inbox calls);

  /*!
   * \brief End every sequence, including `submitted`, and empty the prefix cache.
   * \return The first error of the model during this call; empty if there was none.
   */
  std::string Abort(std::vector<std::unique_ptr<Sequence>> submitted, FinishReason reason,
                    const std::string& error);

  /*! \brief Join the thread that computes masks, after `Abort`; it may wait for a lock. */
  void StopMasks() { committer_.StopMasks(); }

  /*! \brief The records to publish; the caller clears the vector. */
  std::vector<Record>& records() { return context_.records; }
  /*! \return Log messages about the draft failures since the last call. */
  std::vector<std::string> TakeNotices();
  /*! \brief Update the gauges. \return All statistics. */
  const Statistics& UpdateStatistics();
  bool has_unpaused() const { return sequences_.has_unpaused(); }
  TimePoint next_deadline() { return sequences_.next_deadline(); }
  /*! \brief Used between two steps. */
  PrefixTransfer& prefixes() { return prefixes_; }
  /*! \brief May be enabled and read from any thread. */
  EventTrace& trace() { return context_.meter.trace(); }

  /*! \throws std::logic_error that lists every violated invariant. */
  void CheckInvariants(int64_t max_sequence_tokens) const;

 private:
  /*! \brief Plan a step, run the model and commit tokens; or wait for a grammar mask. */
  void RunPlan();
  /*! \brief Propose draft tokens for decoding sequences. */
  void ProposeDrafts();
  /*! \brief Remove, fork and add the model's sequences as planned. */
  void ApplySequenceChanges(const StepPlan& plan);
  /*! \brief Add the embedded rows of the tokens that `row` has just added to `input`. */
  static void AddEmbedded(const StepRow& row, ForwardInput* input);
  /*! \brief Add the RoPE positions of all tokens, if those of a sequence are not its indices. */
  static void AddRopePositions(const StepPlan& plan, ForwardInput* input);
  /*! \brief Run the model, and keep what the drafter reads. \return The logits. */
  const float* ForwardForDrafter(const StepPlan& plan, ForwardInput input);
  /*! \return The logits of the plan's rows, in order: scored prompt tokens, last token, drafts. */
  const float* Forward(const StepPlan& plan);

  StepContext context_;
  SequenceTable sequences_;
  TokenCommitter committer_;
  PrefixTransfer prefixes_;
  /*! \brief Sequences that `ApplyCalls` has not added yet; those that it has are null. */
  std::vector<std::unique_ptr<Sequence>> submitted_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_STEPPER_H_
