/*!
 * \file sampling/prompt_scorer.h
 * \brief How likely the tokens of a prompt were.
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
 * \brief Collects the log-probability of every prompt token but the first, each once.
 *
 * The token at place i + 1 is scored by the logits after the token at place i. What was scored
 * stays scored, also when the sequence loses its pages: those tokens are then computed without
 * logits, or taken from another sequence.
 */
class PromptScorer {
 public:
  /*! \param num_top Alternatives to list with each token; without it nothing is scored. */
  PromptScorer(std::optional<int64_t> num_top, int64_t num_prompt_tokens)
      : num_top_(num_top), num_wanted_(num_top.has_value() ? num_prompt_tokens - 1 : 0) {}

  bool is_done() const { return num_scored_ == num_wanted_; }
  /*! \brief Tokens of the sequence whose logits are not needed (again). */
  int64_t num_scored() const { return num_scored_; }

  /*! \return Logits that are needed when the tokens at the places [begin, end) are computed: of
   * the places from max(begin, num_scored()) on. */
  int64_t CountNeeded(int64_t begin, int64_t end) const;

  /*! \return The most tokens from `begin` on that need no more than `max_rows` logits. */
  int64_t CountWithin(int64_t begin, int64_t max_rows) const;

  /*!
   * \brief Score the next tokens.
   * \param logits float32[count, vocab_size], after the places from num_scored() on.
   * \return Whether all of them were finite numbers or minus infinity; else nothing is scored.
   */
  bool Score(const float* logits, int64_t count, int64_t vocab_size,
           std::span<const int32_t> token_ids);

  /*! \return What was scored since the last call. */
  std::vector<TokenLogprobs> TakeLogprobs();

 private:
  std::optional<int64_t> num_top_;
  int64_t num_wanted_;
  int64_t num_scored_ = 0;
  std::vector<TokenLogprobs> scored_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SAMPLING_PROMPT_SCORER_H_
