/*!
 * \file sequence/request_times.h
 * \brief Timestamps and durations of a sequence.
 */
#ifndef AIOMLC_SEQUENCE_REQUEST_TIMES_H_
#define AIOMLC_SEQUENCE_REQUEST_TIMES_H_

#include <cstdint>
#include <optional>

#include "sequence/deadline_queue.h"

namespace aiomlc {

/*! \brief The timestamps of a sequence; empty for events that have not happened yet. */
struct RequestTimes {
  TimePoint submitted = Clock::now();
  /*! \brief When the sequence was first admitted, that is given pages. */
  std::optional<TimePoint> admitted;
  std::optional<TimePoint> first_token;
  std::optional<TimePoint> last_token;
};

/*!
 * \brief Seconds since submission; -1 for events that never happened.
 *
 * Tokens that a grammar forces before the first step are not the first token.
 */
struct RequestTiming {
  double queue_seconds = -1;
  double first_token_seconds = -1;
  double total_seconds = -1;
  /*! \brief Tokens that a grammar forced, which were not sampled. */
  int64_t forced_tokens = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_SEQUENCE_REQUEST_TIMES_H_
