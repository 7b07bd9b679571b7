/*!
 * \file aiomlc/statistics.h
 * \brief The engine's counters at one moment.
 */
#ifndef AIOMLC_STATISTICS_H_
#define AIOMLC_STATISTICS_H_

#include <cstdint>

namespace aiomlc {

/*! \brief Counters after the last finished step; all but the first six only grow. */
struct Statistics {
  /*! \brief Sequences that hold pages. */
  int64_t num_running = 0;
  /*! \brief Sequences that do not: new, or preempted. */
  int64_t num_waiting = 0;
  /*! \brief Sequences that wait for their readers. */
  int64_t num_paused = 0;
  int64_t total_pages = 0;
  /*! \brief Pages that no sequence holds; those of recycling entries, which are evicted on demand,
   * are among them. */
  int64_t free_pages = 0;
  /*! \brief Ended sequences in the prefix cache. */
  int64_t num_recycling = 0;

  /*! \brief Prompt tokens of the sequences that the engine took up. */
  int64_t prompt_tokens = 0;
  /*! \brief Tokens sampled. */
  int64_t completion_tokens = 0;
  int64_t steps = 0;
  /*! \brief Sequences that started with tokens of another one, preempted ones included. */
  int64_t prefix_cache_hits = 0;
  /*! \brief Tokens that they did not have to compute. */
  int64_t cached_tokens = 0;
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
