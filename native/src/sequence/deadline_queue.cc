#include "sequence/deadline_queue.h"

namespace aiomlc {

namespace {

/*! \return `begin` plus `seconds`, or TimePoint::max() if that overflows the clock. */
TimePoint AddSaturated(TimePoint begin, double seconds) {
  const std::chrono::duration<double> remaining = TimePoint::max() - begin;
  const std::chrono::duration<double> span(seconds);
  if (span >= remaining) return TimePoint::max();
  return begin + std::chrono::duration_cast<Clock::duration>(span);
}

/*! \brief Replace `deadline` if `at` is earlier. */
void UpdateIfEarlier(Deadline* deadline, TimePoint at, const char* limit) {
  if (at < deadline->at) *deadline = {at, limit};
}

}  // namespace

SequenceTimer::SequenceTimer(const TimeLimits& limits, TimePoint submitted)
    : limits_(limits), submitted_(submitted) {}

void SequenceTimer::Restart(TimePoint now) { restarted_ = now; }

void SequenceTimer::Pause() { is_paused_ = true; }

void SequenceTimer::Resume(TimePoint now) {
  is_paused_ = false;
  if (restarted_) restarted_ = now;
}

Deadline SequenceTimer::Next() const {
  Deadline deadline;
  if (limits_.timeout)
    UpdateIfEarlier(&deadline, AddSaturated(submitted_, *limits_.timeout), "timeout");
  if (limits_.first_token_timeout && !restarted_) {
    UpdateIfEarlier(&deadline, AddSaturated(submitted_, *limits_.first_token_timeout),
                    "first_token_timeout");
  }
  if (limits_.inter_token_timeout && restarted_ && !is_paused_) {
    UpdateIfEarlier(&deadline, AddSaturated(*restarted_, *limits_.inter_token_timeout),
                    "inter_token_timeout");
  }
  return deadline;
}

void DeadlineQueue::Set(int64_t sequence_id, TimePoint before, TimePoint after) {
  if (before == after) return;
  entries_.erase({before, sequence_id});
  if (after != TimePoint::max()) entries_.emplace(after, sequence_id);
}

std::vector<int64_t> DeadlineQueue::Expired(TimePoint now) const {
  std::vector<int64_t> sequence_ids;
  for (const auto& [at, sequence_id] : entries_) {
    if (at > now) break;
    sequence_ids.push_back(sequence_id);
  }
  return sequence_ids;
}

}  // namespace aiomlc
