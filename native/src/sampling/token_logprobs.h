/*!
 * \file sampling/token_logprobs.h
 * \brief The log-probability of a token and of its most likely alternatives.
 */
#ifndef AIOMLC_SAMPLING_TOKEN_LOGPROBS_H_
#define AIOMLC_SAMPLING_TOKEN_LOGPROBS_H_

#include <cstdint>
#include <vector>

namespace aiomlc {

/*! \brief Lower log-probabilities, including minus infinity, are clamped to this value. */
inline constexpr float kLowestLogprob = -9999.0f;

/*! \brief A token and its log-probability (natural logarithm). */
struct Alternative {
  int32_t token_id;
  float logprob;
};

/*! \brief The log-probability of one token and its alternatives. */
struct TokenLogprobs {
  int32_t token_id = 0;
  float logprob = 0;
  /*! \brief The most likely tokens in descending order; ties are ordered by token id. */
  std::vector<Alternative> top;
};

/*! \brief Whether a row of logits is valid: no NaN or +infinity, and not all -infinity. */
bool AreFinite(const float* logits, int64_t vocab_size);

/*!
 * \brief Compute log-probabilities from the unmodified logits, with sums in float64.
 * \param logits float32[vocab_size], valid as defined by `AreFinite`.
 * \param token_id The token to score.
 * \param num_top The maximum number of alternatives to list; `token_id` may be among them.
 */
TokenLogprobs ComputeLogprobs(const float* logits, int64_t vocab_size, int32_t token_id,
                              int64_t num_top);

}  // namespace aiomlc

#endif  // AIOMLC_SAMPLING_TOKEN_LOGPROBS_H_
