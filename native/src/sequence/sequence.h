/*!
 * \file sequence/sequence.h
 * \brief The state of one sequence in the engine.
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
#include "model/resources.h"
#include "options/sequence_options.h"
#include "prompt/prefix_key.h"
#include "prompt/prompt.h"
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
 * `token_ids` holds the prompt and the completion so far; the KV cache holds the first
 * `num_computed` of these tokens. Preemption resets `num_computed` to 0 and keeps everything else,
 * so the completion continues once the tokens are recomputed.
 */
struct Sequence {
  /*!
   * \param prompt At least one token.
   * \param options Valid options; `seed` must be set.
   * \param max_completion_tokens The length limit of the completion, at least 1.
   * \param vocabulary Not owned; must outlive this object.
   * \param submitted The time of submission.
   */
  Sequence(Prompt prompt, const SequenceOptions& options, int64_t max_completion_tokens,
           const Vocabulary* vocabulary, TimePoint submitted = Clock::now());

  int64_t num_tokens() const { return static_cast<int64_t>(token_ids.size()); }
  int64_t num_completion_tokens() const { return num_tokens() - num_prompt_tokens; }
  /*! \brief Tokens that the model must still compute before the next token can be sampled. */
  int64_t num_uncomputed() const { return num_tokens() - num_computed; }
  /*!
   * \brief The maximum number of tokens that may be forked from another sequence instead of being
   * computed.
   *
   * The last token is always computed, since its logits are needed; so are prompt tokens whose
   * logits are needed for prompt logprobs.
   */
  int64_t num_forkable() const {
    return prompt_scorer.is_done() ? num_tokens() - 1 : prompt_scorer.num_scored();
  }
  /*! \brief Whether its next step is a decode: one uncomputed token, one new token. */
  bool is_decoding() const { return num_completion_tokens() > 0 && num_uncomputed() == 1; }
  /*! \brief Whether its logits are computed and sampling waits only for the grammar's mask. */
  bool awaits_mask() const { return !deferred_logits.empty(); }
  /*! \return The key of its first `count` tokens in the prefix cache. */
  PrefixKey prefix_key(int64_t count) const {
    return PrefixKey({}, token_ids, piece_keys).First(static_cast<size_t>(count));
  }
  bool IsStopToken(int32_t token_id) const;
  /*! \brief Whether `min_tokens` is reached, so that a stop string may end the sequence. */
  bool may_stop() const { return num_completion_tokens() >= min_tokens; }

  /*! \brief Whether it has precedence over `other`, by priority and then by arrival. */
  bool ComesBefore(const Sequence& other) const {
    return std::tie(priority, id) < std::tie(other.priority, other.id);
  }

  /*! \brief Ids ascend in the order of arrival. */
  int64_t id = 0;
  /*!
   * \brief The id of its tokens in the model and in the prefix cache.
   *
   * Equal to `id` until the sequence is paused: its cached tokens then stay in the prefix cache
   * under this id, and the sequence gets a new one.
   */
  int64_t cache_id = 0;
  const int64_t priority;
  const int64_t num_prompt_tokens;
  const int64_t max_completion_tokens;
  const int64_t min_tokens;
  const bool is_pinned;
  const SamplerOptions sampling;
  const uint64_t seed;
  /*! \brief Empty if there is none. */
  const LogitsProcessor logits_processor;
  const std::vector<int32_t> stop_token_ids;
  const std::optional<int64_t> top_logprobs;

  /*! \brief The embedded pieces of the prompt; empty for text. */
  const std::vector<PromptPiece> pieces;
  const std::vector<PieceKey> piece_keys;
  /*! \brief Whether a piece has a grid, so that RoPE positions differ from indices. */
  const bool has_grids;
  std::vector<int32_t> token_ids;
  int64_t num_computed = 0;
  /*! \brief Prompt tokens that were forked from another sequence when it was first admitted. */
  int64_t num_cached = 0;
  /*! \brief Completion tokens that a grammar forced. */
  int64_t num_forced = 0;
  /*! \brief Whether it was admitted at least once. */
  bool has_started = false;
  /*! \brief The resources reserved for it in the model; zero unless it is running. */
  Resources reserved;
  /*! \brief Draft tokens after `token_ids` for the next step to verify; may be empty. */
  std::vector<int32_t> draft_ids;
  /*! \brief Draft tokens in the KV cache, after `num_computed`, that are not accepted yet. */
  int64_t num_speculated = 0;
  /*! \brief The number of later arrivals that were admitted before it; see scheduler_policy.h. */
  int64_t times_bypassed = 0;
  /*! \brief Whether it is paused for a slow consumer, and so is not in the scheduler. */
  bool is_paused = false;
  SequenceTimer timer;
  /*! \brief Its deadline in the DeadlineQueue. */
  TimePoint deadline = TimePoint::max();
  /*! \brief Null if the output is not constrained. */
  std::shared_ptr<Constraint> constraint;
  /*! \brief float32[vocab_size]: logits kept until the mask is ready; empty otherwise. */
  std::vector<float> deferred_logits;
  RequestTimes times;
  PromptScorer prompt_scorer;
  LogitAdjuster logit_adjuster;
  StreamingDetokenizer detokenizer;
  StopMatcher stop_matcher;
};

}  // namespace aiomlc

#endif  // AIOMLC_SEQUENCE_SEQUENCE_H_
