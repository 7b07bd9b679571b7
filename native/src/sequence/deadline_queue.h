/*!
 * \file sequence/deadline_queue.h
 * \brief The time limits of sequences, and a queue of their deadlines.
 */
#ifndef AIOMLC_SEQUENCE_DEADLINE_QUEUE_H_
#define AIOMLC_SEQUENCE_DEADLINE_QUEUE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "options/sequence_options.h"

namespace aiomlc {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

/*! \brief The earliest time at which a time limit ends a sequence. */
struct Deadline {
  TimePoint at = TimePoint::max();
  /*! \brief The field of TimeLimits that sets the deadline; empty if there is no deadline. */
  const char* limit = "";
};

/*!
 * \brief Computes the next deadline of one sequence from its time limits and its progress.
 *
 * `timeout` and `first_token_timeout` count from the submission. `inter_token_timeout` counts from
 * the last token and is suspended while the sequence is paused.
 */
class SequenceTimer {
 public:
  SequenceTimer(const TimeLimits& limits, TimePoint submitted);

  /*! \brief Restart the inter-token timeout after a token. */
  void Restart(TimePoint now);
  /*! \brief Suspend the inter-token timeout until `Resume`. */
  void Pause();
  /*! \brief Restart the inter-token timeout, if there was a token. */
  void Resume(TimePoint now);

  /*! \return The earliest deadline. */
  Deadline Next() const;

 private:
  TimeLimits limits_;
  TimePoint submitted_;
  /*! \brief Time of the last token or end of a pause; empty before the first token. */
  std::optional<TimePoint> restarted_;
  bool is_paused_ = false;
};

/*! \brief The deadlines of all sequences, ordered by time. */
class DeadlineQueue {
 public:
  /*! \brief Move a sequence's deadline; TimePoint::max() means no deadline. */
  void Set(int64_t sequence_id, TimePoint before, TimePoint after);

  /*! \return The sequences whose deadlines are at or before `now`, earliest first. */
  std::vector<int64_t> Expired(TimePoint now) const;

  /*! \return The earliest deadline; TimePoint::max() if there is none. */
  TimePoint Next() const { return entries_.empty() ? TimePoint::max() : entries_.begin()->first; }

 private:
  std::set<std::pair<TimePoint, int64_t>> entries_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SEQUENCE_DEADLINE_QUEUE_H_
