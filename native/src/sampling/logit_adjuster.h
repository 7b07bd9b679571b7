/*!
 * \file sampling/logit_adjuster.h
 * \brief Change logits before a token is chosen from them.
 */
#ifndef AIOMLC_SAMPLING_LOGIT_ADJUSTER_H_
#define AIOMLC_SAMPLING_LOGIT_ADJUSTER_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "options/sequence_options.h"

namespace aiomlc {

/*!
 * \brief The biases, penalties and bans of one sequence, with the counts that they need.
 *
 * The order is upstream's:
 * 1. logit_bias is added;
 * 2. from the logit of a token that was generated n > 0 times,
 *    presence_penalty + n * frequency_penalty is subtracted;
 * 3. what remains of it is divided by repetition_penalty, or multiplied if it is negative;
 * 4. while fewer than min_tokens tokens were generated, the stop tokens are excluded.
 * The prompt's tokens do not count as generated.
 */
class LogitAdjuster {
 public:
  /*! \param options Valid options. */
  explicit LogitAdjuster(const SequenceOptions& options);

  /*! \brief Whether the next token's logits are to be changed; a plain sequence's never are. */
  bool is_active() const;

  /*!
   * \brief Change the logits of the next token; touches only the tokens that are concerned.
   *
   * NaN and infinity stay what they are, so that a broken model is not hidden.
   */
  void Apply(float* logits, int64_t vocab_size) const;

  /*! \brief Take note of a generated token. */
  void CountToken(int32_t token_id);

 private:
  bool excludes_stop_tokens() const;

  LogitOptions options_;
  /*! \brief Whether any penalty is on, so that tokens have to be counted. */
  bool has_penalty_;
  int64_t min_tokens_;
  std::vector<int32_t> stop_token_ids_;
  int64_t num_generated_ = 0;
  std::unordered_map<int32_t, int32_t> counts_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SAMPLING_LOGIT_ADJUSTER_H_
