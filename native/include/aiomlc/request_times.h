/*!
 * \file aiomlc/request_times.h
 * \brief When things happened in a sequence's life.
 */
#ifndef AIOMLC_REQUEST_TIMES_H_
#define AIOMLC_REQUEST_TIMES_H_

#include <chrono>
#include <optional>

namespace aiomlc {

using Clock = std::chrono::steady_clock;

/*! \brief Moments; those that have not come are empty. */
struct RequestTimes {
  Clock::time_point submitted = Clock::now();
  /*! \brief When it was given pages for the first time. */
  std::optional<Clock::time_point> admitted;
  std::optional<Clock::time_point> first_token;
  std::optional<Clock::time_point> last_token;
};

/*! \brief Seconds since a sequence was submitted; negative for what never came. */
struct RequestTiming {
  double queue_seconds = -1;
  double first_token_seconds = -1;
  double total_seconds = -1;
};

}  // namespace aiomlc

#endif  // AIOMLC_REQUEST_TIMES_H_
