/*!
 * \file aiomlc/statistics.h
 * \brief The engine's counters at one moment.
 */
#ifndef AIOMLC_STATISTICS_H_
#define AIOMLC_STATISTICS_H_

#include <cstdint>

namespace aiomlc {

/*! \brief Counters after the last finished step; all but the first four only grow. */
struct Statistics {
  /*! \brief Sequences that hold pages. */
  int64_t num_running = 0;
  /*! \brief Sequences that do not: new, or preempted. */
  int64_t num_waiting = 0;
  int64_t total_pages = 0;
  /*! \brief Pages that are not reserved for any sequence. */
  int64_t free_pages = 0;

  /*! \brief Prompt tokens of the sequences that the engine took up. */
  int64_t prompt_tokens = 0;
  /*! \brief Tokens sampled. */
  int64_t completion_tokens = 0;
  int64_t steps = 0;
  /*! \brief Tokens that went through the model as part of a prompt, recomputed ones included. */
  int64_t prefill_tokens = 0;
  /*! \brief Tokens that went through the model one at a time, to be continued. */
  int64_t decode_tokens = 0;
  /*! \brief Time in steps. A step with both kinds of tokens is divided in proportion to them. */
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_STATISTICS_H_
