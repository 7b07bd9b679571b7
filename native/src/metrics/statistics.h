/*!
 * \file metrics/statistics.h
 * \brief A snapshot of the engine's counters.
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

/*! \brief The number and the total time of steps of one batch size. */
struct DecodeSteps {
  int64_t count = 0;
  double seconds = 0;
};

/*! \brief Indexed by batch size minus 1. */
using StepsBySize = std::array<DecodeSteps, 64>;

/*! \brief Draft tokens at one position of their drafts. */
struct DraftPositionCounts {
  int64_t proposed = 0;
  int64_t accepted = 0;
};

/*! \brief The sequence that last completed normally; times are negative until there is one. */
struct LastFinished {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  RequestTiming timing;
};

/*! \brief Counters after the last step. The first nine are gauges, the others only grow. */
struct Statistics {
  /*! \brief Sequences that hold pages. */
  int64_t num_running = 0;
  /*! \brief Sequences that wait for pages: new or preempted. */
  int64_t num_waiting = 0;
  /*! \brief Sequences that are paused for a slow consumer. */
  int64_t num_paused = 0;
  int64_t total_pages = 0;
  /*! \brief Pages that are free, or held by recycling entries, which are evicted on demand. */
  int64_t free_pages = 0;
  /*! \brief Slots of recurrent states; 0 for a model that has only a KV cache. */
  int64_t total_slots = 0;
  /*! \brief Slots that are free, or held by recycling entries. */
  int64_t free_slots = 0;
  /*! \brief Recycling entries of the prefix cache: ended sequences that are not pinned. */
  int64_t num_recycling = 0;
  /*! \brief Pinned entries of the prefix cache. */
  int64_t num_pinned = 0;

  /*! \brief Prompt tokens of all submitted sequences. */
  int64_t prompt_tokens = 0;
  /*! \brief Generated tokens, including forced ones. */
  int64_t completion_tokens = 0;
  int64_t steps = 0;
  /*! \brief Generated tokens that a grammar forced, without sampling. */
  int64_t forced_tokens = 0;
  /*! \brief Admissions that forked from the prefix cache, including those after a preemption. */
  int64_t prefix_cache_hits = 0;
  /*! \brief Tokens that these admissions did not have to compute. */
  int64_t cached_tokens = 0;
  /*! \brief Tokens that were computed in prefills, including recomputed ones. */
  int64_t prefill_tokens = 0;
  /*! \brief Completion tokens that were computed in decodes, including accepted draft tokens. */
  int64_t decode_tokens = 0;
  /*! \brief Draft tokens that were verified. */
  int64_t draft_tokens = 0;
  /*! \brief Draft tokens that were accepted. */
  int64_t accepted_tokens = 0;
  /*! \brief Time of steps. A mixed step is divided in proportion to the tokens of each kind. */
  double prefill_seconds = 0;
  double decode_seconds = 0;
  /*! \brief Time of queries for forced tokens. */
  double forced_seconds = 0;

  /*! \brief Preemptions of sequences. */
  int64_t preemptions = 0;
  /*! \brief Ended sequences by FinishReason. */
  std::array<int64_t, kNumFinishReasons> ended{};
  /*! \brief Steps with decodes only, without drafts, by the number of rows. */
  StepsBySize decode_steps{};
  /*! \brief Steps with decodes and drafts, by the number of tokens; excludes the drafting time. */
  StepsBySize verify_steps{};
  /*! \brief The drafting time, by the number of sequences. */
  StepsBySize draft_steps{};
  /*! \brief Counts by position in the draft, for the first 32 positions. */
  std::array<DraftPositionCounts, 32> draft_positions{};
  /*! \brief Drafts that were verified. */
  int64_t verified_drafts = 0;
  /*! \brief Failures of drafting, for one sequence or for all. */
  int64_t draft_failures = 0;
  /*! \brief Why drafting is disabled for all sequences; empty if it is not. */
  std::string speculation_failure;
  LastFinished last_finished;
  /*! \brief From submission to first admission. */
  Histogram queue_seconds{kSecondsBounds};
  /*! \brief From submission to first token. */
  Histogram first_token_seconds{kSecondsBounds};
  /*! \brief Between two tokens of a sequence. */
  Histogram inter_token_seconds{kSecondsBounds};
  // The next three count only sequences that completed normally.
  /*! \brief From submission to end. */
  Histogram request_seconds{kSecondsBounds};
  Histogram request_prompt_tokens{kCountBounds};
  Histogram request_completion_tokens{kCountBounds};
  /*! \brief Rows per step. */
  Histogram batch_size{kCountBounds};
};

}  // namespace aiomlc

#endif  // AIOMLC_METRICS_STATISTICS_H_
