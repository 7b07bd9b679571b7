/*!
 * \file metrics/meter.h
 * \brief Records the timing of sequences and steps in the statistics and the trace.
 */
#ifndef AIOMLC_METRICS_METER_H_
#define AIOMLC_METRICS_METER_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "metrics/event_trace.h"
#include "metrics/statistics.h"
#include "scheduling/scheduler.h"
#include "scheduling/step_plan.h"
#include "sequence/record.h"
#include "sequence/request_times.h"
#include "sequence/sequence.h"

namespace aiomlc {

/*!
 * \brief Observes the step thread, and updates the statistics and the event trace.
 *
 * It reads the clock three times per step and once per ended sequence, never once per token.
 * Drafting and forced tokens are timed by the caller, with two more clock reads each.
 */
class Meter {
 public:
  /*! \param totals Not owned; must outlive the meter. */
  explicit Meter(Statistics* totals) : totals_(totals) {}

  /*! \brief Start a step, or calls between two. Tokens before a forward pass get this timestamp. */
  void OnStepBegin();
  /*! \brief Record that a sequence was taken from the inbox. */
  void OnSequenceAdded(const Sequence& sequence);
  /*! \brief Record the proposal of drafts for `num_sequences` sequences. */
  void OnDraftsProposed(int64_t num_sequences, Clock::duration duration);
  /*! \brief Record a plan, before it is applied. */
  void OnStepPlanned(const StepPlan& plan);
  /*! \brief Record the end of the forward pass. The tokens of the step get this timestamp. */
  void OnForwardEnd();
  /*! \brief Record a new token of a sequence. */
  void OnToken(Sequence* sequence);
  /*! \brief Record a verified draft. \param num_accepted The accepted tokens of the draft. */
  void OnDraftVerified(int64_t num_draft, int64_t num_accepted);
  /*! \brief Record the time of one query for forced tokens. */
  void OnForcedTokens(Clock::duration duration);
  /*! \brief Record that drafting ended for a sequence, or for all if `sequence_id` is -1. */
  void OnDraftFailure(int64_t sequence_id);
  /*! \brief Record the end of a step. Sequences of the plan may have been destroyed. */
  void OnStepEnd(const StepPlan& plan, const Scheduler& scheduler);
  /*! \brief Record the end of a sequence. \return The timing for its last record. */
  RequestTiming OnSequenceEnd(const Sequence& sequence, FinishReason reason);

  /*! \brief May be enabled and read from any thread. */
  EventTrace& trace() { return trace_; }

 private:
  /*! \brief The data of a row for the trace, valid after its sequence is destroyed. */
  struct TracedRow {
    int64_t sequence_id;
    int64_t num_tokens;
    bool is_decoding;
  };

  static void CountStep(StepsBySize* steps, int64_t size, double seconds);
  void TraceRows();
  void Trace(EventKind kind, int64_t sequence_id, Clock::time_point start,
             std::initializer_list<int64_t> values,
             Clock::duration duration = Clock::duration::zero());

  Statistics* totals_;
  EventTrace trace_;
  Clock::time_point step_start_;
  /*! \brief The timestamp of tokens that are committed now. */
  Clock::time_point token_time_;
  /*! \brief Time of drafting in this step. */
  double draft_seconds_ = 0;
  std::vector<TracedRow> rows_;
};

}  // namespace aiomlc

#endif  // AIOMLC_METRICS_METER_H_
