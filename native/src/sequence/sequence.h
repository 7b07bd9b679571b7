/*!
 * \file sequence/sequence.h
 * \brief One row of tokens in the engine.
 */
#ifndef AIOMLC_SEQUENCE_SEQUENCE_H_
#define AIOMLC_SEQUENCE_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "grammar/constraint.h"
#include "options/sequence_options.h"
#include "sampling/logit_adjuster.h"
#include "sampling/prompt_scorer.h"
#include "sequence/deadline_queue.h"
#include "sequence/request_times.h"
#include "text/stop_matcher.h"
#include "text/streaming_detokenizer.h"

namespace aiomlc {

/*!
 * \brief The state of one sequence.
 *
 * Its tokens are the prompt and what was sampled after it. The first `num_computed` of them are in
 * the KV cache. A sequence that was preempted is one whose `num_computed` went back to 0: nothing
 * else that counts tells it from a new one, so its completion goes on where it was.
 */
struct Sequence {
  /*!
   * \param prompt_ids At least one token.
   * \param options Valid options; `seed` must be set.
   * \param max_completion_tokens Where the completion ends for want of room, at least 1.
   * \param vocabulary Not owned; must outlive this object.
   * \param submitted Now.
   */
  Sequence(std::vector<int32_t> prompt_ids, const SequenceOptions& options,
           int64_t max_completion_tokens, const Vocabulary* vocabulary,
           TimePoint submitted = Clock::now());

  int64_t num_tokens() const { return static_cast<int64_t>(token_ids.size()); }
  int64_t num_completion_tokens() const { return num_tokens() - num_prompt_tokens; }
  /*! \brief Tokens that the model has yet to see before it can give the next one. */
  int64_t num_uncomputed() const { return num_tokens() - num_computed; }
  /*!
   * \brief Tokens that it may take from another sequence: not the last, whose logits it needs, and
   * none whose logits its prompt's scores need.
   */
  int64_t num_forkable() const {
    return prompt_scorer.is_done() ? num_tokens() - 1 : prompt_scorer.num_scored();
  }
  /*! \brief Whether the next step gives it its next token for the price of one. */
  bool is_decoding() const { return num_completion_tokens() > 0 && num_uncomputed() == 1; }
  /*! \brief Whether its next token is only waiting for the grammar's mask. */
  bool awaits_mask() const { return !deferred_logits.empty(); }
  bool IsStopToken(int32_t token_id) const;
  /*! \brief Whether a stop string may end the sequence by now. */
  bool may_stop() const { return num_completion_tokens() >= min_tokens; }

  /*! \brief Whether it comes before another in all that both want. */
  bool ComesBefore(const Sequence& other) const {
    return std::tie(priority, id) < std::tie(other.priority, other.id);
  }

  /*! \brief Also the order of arrival; given when the sequence is queued. */
  int64_t id = 0;
  /*! \brief What the model and the prefix cache call it: `id`, until that is the name of an entry.
   */
  int64_t cache_id = 0;
  const int64_t priority;
  const int64_t num_prompt_tokens;
  const int64_t max_completion_tokens;
  const int64_t min_tokens;
  const bool is_pinned;
  const SamplingOptions sampling;
  const uint64_t seed;
  /*! \brief May be empty. */
  const LogitsProcessor logits_processor;
  const std::vector<int32_t> stop_token_ids;
  const std::optional<int64_t> top_logprobs;

  std::vector<int32_t> token_ids;
  int64_t num_computed = 0;
  /*! \brief Tokens of its prompt that were forked from another sequence when it last started. */
  int64_t num_cached = 0;
  /*! \brief Tokens that a grammar forced. */
  int64_t num_forced = 0;
  /*! \brief Whether it was ever admitted. */
  bool has_started = false;
  /*! \brief Pages reserved for it; 0 unless it is running. */
  int64_t num_pages = 0;
  /*! \brief A guess at the tokens after `token_ids`, for the next step; empty where none is. */
  std::vector<int32_t> draft_ids;
  /*! \brief Draft tokens in the KV cache, after `num_computed`, that were not found right yet. */
  int64_t num_speculated = 0;
  /*! \brief How often a later arrival was admitted before it; see scheduler_policy.h. */
  int64_t times_bypassed = 0;
  /*! \brief Whether it waits for its reader: then the scheduler does not know it. */
  bool is_paused = false;
  SequenceTimer timer;
  /*! \brief The deadline that is queued for it. */
  TimePoint deadline = TimePoint::max();
  /*! \brief Null where any token may come. */
  std::shared_ptr<Constraint> constraint;
  /*! \brief float32[vocab_size] of its next token, whose mask was late; else empty. */
  std::vector<float> deferred_logits;
  RequestTimes times;
  PromptScorer prompt_scorer;
  LogitAdjuster logit_adjuster;
  StreamingDetokenizer detokenizer;
  StopMatcher stop_matcher;
};

}  // namespace aiomlc

#endif  // AIOMLC_SEQUENCE_SEQUENCE_H_
