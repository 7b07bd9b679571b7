/*!
 * \file sequence/deadline_queue.h
 * \brief Which sequence runs out of time next.
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

/*! \brief The end of a sequence's time, and the limit that sets it: a field of TimeLimits. */
struct Deadline {
  TimePoint at = TimePoint::max();
  const char* limit = "";
};

/*!
 * \brief The time limits of one sequence against what it has produced so far.
 *
 * The whole time and the time to the first token run from the submission; the time between tokens
 * from the last token, and not while the sequence is paused for its reader.
 */
class SequenceTimer {
 public:
  SequenceTimer(const TimeLimits& limits, TimePoint submitted);

  /*! \brief A token came, or the sequence goes on after a pause. */
  void Restart(TimePoint now);
  /*! \brief The sequence waits for its reader. */
  void Pause();

  /*! \return The first of its deadlines. */
  Deadline Next() const;

 private:
  TimeLimits limits_;
  TimePoint submitted_;
  /*! \brief The last token, or the end of a pause; nothing before the first token. */
  std::optional<TimePoint> restarted_;
  bool is_paused_ = false;
};

/*! \brief The deadlines of many sequences. */
class DeadlineQueue {
 public:
  /*! \brief Set a sequence's deadline; TimePoint::max() is none. */
  void Set(int64_t sequence_id, TimePoint before, TimePoint after);

  /*! \return The sequences whose deadlines are not after `now`, the first of them first. */
  std::vector<int64_t> Expired(TimePoint now) const;

  /*! \return The first deadline; TimePoint::max() if there is none. */
  TimePoint Next() const { return entries_.empty() ? TimePoint::max() : entries_.begin()->first; }

 private:
  std::set<std::pair<TimePoint, int64_t>> entries_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SEQUENCE_DEADLINE_QUEUE_H_
