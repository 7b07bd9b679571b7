/*!
 * \file sequence/request_times.h
 * \brief When things happened in a sequence's life.
 */
#ifndef AIOMLC_SEQUENCE_REQUEST_TIMES_H_
#define AIOMLC_SEQUENCE_REQUEST_TIMES_H_

#include <cstdint>
#include <optional>

#include "sequence/deadline_queue.h"

namespace aiomlc {

/*! \brief Moments; those that have not come are empty. */
struct RequestTimes {
  TimePoint submitted = Clock::now();
  /*! \brief When it was given pages for the first time. */
  std::optional<TimePoint> admitted;
  std::optional<TimePoint> first_token;
  std::optional<TimePoint> last_token;
};

/*! \brief Seconds since a sequence was submitted; negative for what never came. */
struct RequestTiming {
  double queue_seconds = -1;
  double first_token_seconds = -1;
  double total_seconds = -1;
  /*! \brief Tokens that a grammar forced, which took no time to sample. */
  int64_t forced_tokens = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_SEQUENCE_REQUEST_TIMES_H_
