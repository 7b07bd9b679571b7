#include "metrics/meter.h"

#include <algorithm>

namespace aiomlc {

namespace {

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

int64_t Nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

}  // namespace

void Meter::OnSequenceAdded(const Sequence& sequence) {
  if (!trace_.is_enabled()) return;
  Trace(EventKind::kSubmitted, sequence.id, sequence.times.submitted, {sequence.num_prompt_tokens});
}

void Meter::OnStepBegin() {
  step_start_ = token_time_ = Clock::now();
  draft_seconds_ = 0;
}

void Meter::OnDraftsProposed(int64_t num_sequences, Clock::duration duration) {
  draft_seconds_ = Seconds(duration);
  CountStep(&totals_->draft_steps, num_sequences, draft_seconds_);
}

void Meter::OnStepPlanned(const StepPlan& plan) {
  totals_->preemptions += static_cast<int64_t>(plan.preempted.size());
  for (const StepAdmission& admission : plan.admitted) {
    std::optional<Clock::time_point>& admitted = admission.sequence->times.admitted;
    if (admitted.has_value()) continue;
    admitted = step_start_;
    totals_->queue_seconds.Observe(Seconds(step_start_ - admission.sequence->times.submitted));
  }
  rows_.clear();
  if (!trace_.is_enabled()) return;
  for (const Sequence* sequence : plan.preempted) {
    Trace(EventKind::kPreempted, sequence->id, step_start_, {sequence->num_computed});
  }
  for (const auto& [sequence, prefix] : plan.admitted) {
    Trace(EventKind::kAdmitted, sequence->id, step_start_, {prefix.num_tokens});
  }
  for (const StepRow& row : plan.rows) {
    rows_.push_back(
        {row.sequence->id, row.num_tokens + row.num_draft, row.sequence->is_decoding()});
  }
}

void Meter::OnForwardEnd() {
  token_time_ = Clock::now();
  TraceRows();
}

void Meter::OnToken(Sequence* sequence) {
  RequestTimes& times = sequence->times;
  if (times.last_token.has_value()) {
    totals_->inter_token_seconds.Observe(Seconds(token_time_ - *times.last_token));
  } else {
    times.first_token = token_time_;
    totals_->first_token_seconds.Observe(Seconds(token_time_ - times.submitted));
    if (trace_.is_enabled()) Trace(EventKind::kFirstToken, sequence->id, token_time_, {});
  }
  times.last_token = token_time_;
}

void Meter::OnDraftVerified(int64_t num_draft, int64_t num_accepted) {
  totals_->decode_tokens += num_accepted;
  totals_->draft_tokens += num_draft;
  totals_->accepted_tokens += num_accepted;
  ++totals_->verified_drafts;
  const int64_t num_positions = static_cast<int64_t>(totals_->draft_positions.size());
  for (int64_t i = 0; i < std::min(num_draft, num_positions); ++i) {
    DraftPositionCounts& counts = totals_->draft_positions[static_cast<size_t>(i)];
    ++counts.proposed;
    if (i < num_accepted) ++counts.accepted;
  }
}

void Meter::OnForcedTokens(Clock::duration duration) {
  totals_->forced_seconds += Seconds(duration);
}

void Meter::OnDraftFailure(int64_t sequence_id) {
  ++totals_->draft_failures;
  if (trace_.is_enabled()) Trace(EventKind::kDraftFailed, sequence_id, Clock::now(), {});
}

void Meter::CountStep(StepsBySize* steps, int64_t size, double seconds) {
  if (size < 1 || size > static_cast<int64_t>(steps->size())) return;
  DecodeSteps& of_size = (*steps)[static_cast<size_t>(size - 1)];
  ++of_size.count;
  of_size.seconds += seconds;
}

void Meter::OnStepEnd(const StepPlan& plan, const Scheduler& scheduler) {
  const Clock::duration duration = Clock::now() - step_start_;
  const double seconds = Seconds(duration);
  const double decode_tokens = static_cast<double>(plan.decode_tokens + plan.draft_tokens);
  const double num_tokens = static_cast<double>(plan.prefill_tokens) + decode_tokens;
  ++totals_->steps;
  totals_->prefill_tokens += plan.prefill_tokens;
  totals_->decode_tokens += plan.decode_tokens;
  totals_->prefill_seconds += seconds * static_cast<double>(plan.prefill_tokens) / num_tokens;
  totals_->decode_seconds += seconds * decode_tokens / num_tokens;
  totals_->batch_size.Observe(static_cast<double>(plan.rows.size()));
  if (plan.prefill_tokens == 0 && plan.draft_tokens == 0) {
    CountStep(&totals_->decode_steps, plan.decode_tokens, seconds);
  } else if (plan.prefill_tokens == 0) {
    CountStep(&totals_->verify_steps, plan.decode_tokens + plan.draft_tokens,
              seconds - draft_seconds_);
  }
  if (!trace_.is_enabled()) return;
  Trace(EventKind::kStep, -1, step_start_,
        {static_cast<int64_t>(plan.rows.size()), plan.prefill_tokens,
         plan.decode_tokens + plan.draft_tokens, static_cast<int64_t>(scheduler.running().size()),
         static_cast<int64_t>(scheduler.waiting().size()), scheduler.available().pages},
        duration);
}

RequestTiming Meter::OnSequenceEnd(const Sequence& sequence, FinishReason reason) {
  const Clock::time_point now = Clock::now();
  const RequestTimes& times = sequence.times;
  RequestTiming timing;
  if (times.admitted) timing.queue_seconds = Seconds(*times.admitted - times.submitted);
  if (times.first_token) timing.first_token_seconds = Seconds(*times.first_token - times.submitted);
  timing.total_seconds = Seconds(now - times.submitted);
  timing.forced_tokens = sequence.num_forced;
  ++totals_->ended[static_cast<size_t>(reason)];
  if (trace_.is_enabled()) {
    Trace(EventKind::kEnded, sequence.id, now,
          {static_cast<int64_t>(reason), sequence.num_completion_tokens()});
  }
  if (!IsSuccessful(reason)) return timing;
  totals_->request_seconds.Observe(timing.total_seconds);
  totals_->request_prompt_tokens.Observe(static_cast<double>(sequence.num_prompt_tokens));
  totals_->request_completion_tokens.Observe(static_cast<double>(sequence.num_completion_tokens()));
  totals_->last_finished = {sequence.num_prompt_tokens, sequence.num_completion_tokens(),
                            sequence.num_cached, timing};
  return timing;
}

void Meter::TraceRows() {
  for (const TracedRow& row : rows_) {
    Trace(row.is_decoding ? EventKind::kDecode : EventKind::kPrefill, row.sequence_id, step_start_,
          {row.num_tokens}, token_time_ - step_start_);
  }
}

void Meter::Trace(EventKind kind, int64_t sequence_id, Clock::time_point start,
                  std::initializer_list<int64_t> values, Clock::duration duration) {
  Event event;
  event.kind = kind;
  event.sequence_id = sequence_id;
  event.start_ns = Nanoseconds(start.time_since_epoch());
  event.duration_ns = Nanoseconds(duration);
  std::transform(values.begin(), values.end(), event.values.begin(),
                 [](int64_t value) { return static_cast<int32_t>(value); });
  trace_.Record(event);
}

}  // namespace aiomlc
