/*!
 * \file sampling/prompt_scorer.h
 * \brief The log-probabilities of prompt tokens.
 */
#ifndef AIOMLC_SAMPLING_PROMPT_SCORER_H_
#define AIOMLC_SAMPLING_PROMPT_SCORER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sampling/token_logprobs.h"

namespace aiomlc {

/*!
 * \brief Collects the log-probability of every prompt token except the first, each once.
 *
 * The token at position i + 1 is scored with the logits at position i. Scores survive a preemption:
 * tokens that are already scored are then recomputed without logits, or forked from another
 * sequence.
 */
class PromptScorer {
 public:
  /*! \param num_top Alternatives to list for each token; if empty, nothing is scored. */
  PromptScorer(std::optional<int64_t> num_top, int64_t num_prompt_tokens)
      : num_top_(num_top), num_to_score_(num_top.has_value() ? num_prompt_tokens - 1 : 0) {}

  bool is_done() const { return num_scored_ == num_to_score_; }
  /*! \brief Leading positions whose logits are not needed any more. */
  int64_t num_scored() const { return num_scored_; }

  /*!
   * \return The number of logits that are needed when positions [begin, end) are computed: those
   * at positions from max(begin, num_scored()).
   */
  int64_t CountLogits(int64_t begin, int64_t end) const;

  /*! \return The maximum number of tokens from `begin` that need at most `max_logits` logits. */
  int64_t MaxTokensWithin(int64_t begin, int64_t max_logits) const;

  /*!
   * \brief Score the next `count` tokens.
   * \param logits float32[count, vocab_size], at the positions from num_scored().
   * \param token_ids All tokens of the sequence.
   * \return Whether every row is valid (see `AreFinite`); otherwise nothing is scored.
   */
  bool Score(const float* logits, int64_t count, int64_t vocab_size,
             std::span<const int32_t> token_ids);

  /*! \brief Return the scores since the last call. */
  std::vector<TokenLogprobs> TakeLogprobs();

 private:
  std::optional<int64_t> num_top_;
  int64_t num_to_score_;
  int64_t num_scored_ = 0;
  std::vector<TokenLogprobs> scored_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SAMPLING_PROMPT_SCORER_H_
