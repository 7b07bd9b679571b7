/*!
 * \file sampling/token_logprobs.h
 * \brief How likely a token was, and what else was likely.
 */
#ifndef AIOMLC_SAMPLING_TOKEN_LOGPROBS_H_
#define AIOMLC_SAMPLING_TOKEN_LOGPROBS_H_

#include <cstdint>
#include <vector>

namespace aiomlc {

/*! \brief Stands for every log-probability below it, minus infinity too. */
inline constexpr float kLowestLogprob = -9999.0f;

/*! \brief A token and its natural logarithmic probability. */
struct Alternative {
  int32_t token_id;
  float logprob;
};

/*! \brief The log-probability of one token in its place. */
struct TokenLogprobs {
  int32_t token_id = 0;
  float logprob = 0;
  /*! \brief The most likely tokens in descending order, of equals the lowest id first. */
  std::vector<Alternative> top;
};

/*! \brief Whether a row has a largest number: none is NaN or infinity, not all minus infinity. */
bool AreFinite(const float* logits, int64_t vocab_size);

/*!
 * \brief Log-probabilities under the softmax of the logits as they are, with sums in float64.
 * \param logits float32[vocab_size], finite.
 * \param num_top How many alternatives to list, at most; the chosen token is one like any other.
 */
TokenLogprobs ComputeLogprobs(const float* logits, int64_t vocab_size, int32_t token_id,
                              int64_t num_top);

}  // namespace aiomlc

#endif  // AIOMLC_SAMPLING_TOKEN_LOGPROBS_H_
