/*!
 * \file metrics/statistics.h
 * \brief The engine's counters at one moment.
 */
#ifndef AIOMLC_METRICS_STATISTICS_H_
#define AIOMLC_METRICS_STATISTICS_H_

#include <array>
#include <cstdint>
#include <string>

#include "metrics/histogram.h"
#include "sequence/record.h"
#include "sequence/request_times.h"

namespace aiomlc {

/*! \brief Steps of one batch size that only decoded, or a part of each. */
struct DecodeSteps {
  int64_t count = 0;
  double seconds = 0;
};

/*! \brief Of batch size 1, 2 and so on. */
using StepsBySize = std::array<DecodeSteps, 64>;

/*! \brief Guessed tokens in one place of their drafts. */
struct DraftPositionCounts {
  int64_t proposed = 0;
  int64_t accepted = 0;
};

/*! \brief The sequence that ended last with an answer; its times are negative until there is one.
 */
struct LastAnswer {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  RequestTiming timing;
};

/*! \brief Counters after the last finished step; all but the first seven only grow. */
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
  /*! \brief Those that are pinned, which are not among the others. */
  int64_t num_pinned = 0;

  /*! \brief Prompt tokens of the sequences that the engine took up. */
  int64_t prompt_tokens = 0;
  /*! \brief Tokens sampled. */
  int64_t completion_tokens = 0;
  int64_t steps = 0;
  /*! \brief Those among `completion_tokens` that a grammar forced, which nothing sampled. */
  int64_t forced_tokens = 0;
  /*! \brief Sequences that started with tokens of another one, preempted ones included. */
  int64_t prefix_cache_hits = 0;
  /*! \brief Tokens that they did not have to compute. */
  int64_t cached_tokens = 0;
  /*! \brief Tokens that went through the model as part of a prompt, recomputed ones included. */
  int64_t prefill_tokens = 0;
  /*! \brief Tokens of completions that went through the model, accepted draft tokens included. */
  int64_t decode_tokens = 0;
  /*! \brief Guessed tokens that went through the model. */
  int64_t draft_tokens = 0;
  /*! \brief Those of them that were right. */
  int64_t accepted_tokens = 0;
  /*! \brief Time in steps. A step with both kinds of tokens is divided in proportion to them. */
  double prefill_seconds = 0;
  double decode_seconds = 0;
  /*! \brief Time to find what grammars force. */
  double forced_seconds = 0;

  /*! \brief How often a sequence lost its pages. */
  int64_t preemptions = 0;
  /*! \brief Ended sequences by FinishReason. */
  std::array<int64_t, kNumFinishReasons> ended{};
  /*! \brief Steps that only decoded, without drafts. */
  StepsBySize decode_steps{};
  /*! \brief Those with drafts, by the tokens of rows and drafts, without the time of guessing. */
  StepsBySize verify_steps{};
  /*! \brief The time of guessing, by the sequences it was for. */
  StepsBySize draft_steps{};
  /*! \brief Of the first, second and so on guessed token; of longer drafts these only. */
  std::array<DraftPositionCounts, 32> draft_positions{};
  /*! \brief Drafts that were verified. */
  int64_t verified_drafts = 0;
  /*! \brief How often guessing failed: each time for one sequence, or once for all. */
  int64_t draft_failures = 0;
  /*! \brief Why there are no guesses any more; empty while there may be. */
  std::string speculation_failure;
  LastAnswer last_answer;
  /*! \brief From submission to first pages. */
  Histogram queue_seconds{kSecondsBounds};
  /*! \brief From submission to first token. */
  Histogram first_token_seconds{kSecondsBounds};
  /*! \brief Between two tokens of a sequence. */
  Histogram inter_token_seconds{kSecondsBounds};
  /*! \brief The next three are of sequences that ended with an answer, not of aborted or failed
   * ones. This one is from submission to end. */
  Histogram request_seconds{kSecondsBounds};
  Histogram request_prompt_tokens{kCountBounds};
  Histogram request_completion_tokens{kCountBounds};
  /*! \brief Rows of a step. */
  Histogram batch_size{kCountBounds};
};

}  // namespace aiomlc

#endif  // AIOMLC_METRICS_STATISTICS_H_
