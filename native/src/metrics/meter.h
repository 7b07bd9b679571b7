/*!
 * \file metrics/meter.h
 * \brief Takes the times of sequences and steps: into the statistics and, if asked, a trace.
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
 * \brief Is told what happens, by the thread that steps.
 *
 * The clock is read three times per step and once per sequence that ends, never once per token;
 * by whoever guesses and by grammars twice more.
 */
class Meter {
 public:
  /*! \param totals Not owned; must outlive the meter. */
  explicit Meter(Statistics* totals) : totals_(totals) {}

  /*! \brief A step begins: the moment of tokens that are given before its forward pass. */
  void OnStepBegin();
  /*! \brief A sequence was taken from the inbox. */
  void OnSequenceAdded(const Sequence& sequence);
  /*! \brief Guesses were made, for so many sequences. */
  void OnDraftsProposed(int64_t num_sequences, Clock::duration duration);
  /*! \brief A plan was made, and nothing has been done about it yet. */
  void OnStepPlanned(const StepPlan& plan);
  /*! \brief The logits are there: the moment that the step's tokens are given. */
  void OnForwardEnd();
  /*! \brief A token was sampled. */
  void OnToken(Sequence* sequence);
  /*! \brief A draft was verified. \param accepted Of its tokens. */
  void OnDraftVerified(int64_t num_draft, int64_t accepted);
  /*! \brief A grammar was asked what it forces. */
  void OnForcedTokens(Clock::duration duration);
  /*! \brief There are no guesses any more for a sequence, or for all if it is -1. */
  void OnDraftFailure(int64_t sequence_id);
  /*! \brief The tokens are accepted. Some sequences of the plan may be gone. */
  void OnStepEnd(const StepPlan& plan, const Scheduler& scheduler);
  /*! \return What its last record says. */
  RequestTiming OnSequenceEnd(const Sequence& sequence, FinishReason reason);

  /*! \brief May be enabled and read from any thread. */
  EventTrace& trace() { return trace_; }

 private:
  /*! \brief What a trace wants to know of a row once its sequence may be gone. */
  struct TracedRow {
    int64_t sequence_id;
    int64_t num_tokens;
    bool is_decoding;
  };

  static void Count(StepsBySize* steps, int64_t size, double seconds);
  void TraceRows();
  void Trace(EventKind kind, int64_t sequence_id, Clock::time_point start,
             std::initializer_list<int64_t> values,
             Clock::duration duration = Clock::duration::zero());

  Statistics* totals_;
  EventTrace trace_;
  Clock::time_point step_start_;
  /*! \brief When the tokens that are sampled now were given. */
  Clock::time_point moment_;
  /*! \brief What guessing took of this step. */
  double guess_seconds_ = 0;
  std::vector<TracedRow> rows_;
};

}  // namespace aiomlc

#endif  // AIOMLC_METRICS_METER_H_
