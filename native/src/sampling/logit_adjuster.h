/*!
 * \file sampling/logit_adjuster.h
 * \brief Logit bias, penalties and stop-token suppression before sampling.
 */
#ifndef AIOMLC_SAMPLING_LOGIT_ADJUSTER_H_
#define AIOMLC_SAMPLING_LOGIT_ADJUSTER_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "options/sequence_options.h"

namespace aiomlc {

/*!
 * \brief Adjusts the logits of one sequence, and counts its generated tokens.
 *
 * The order is that of MLC LLM:
 * 1. logit_bias is added;
 * 2. presence_penalty + n * frequency_penalty is subtracted from the logit of each token that was
 *    generated n > 0 times;
 * 3. the logits of these tokens are divided by repetition_penalty if positive, else multiplied;
 * 4. stop tokens are excluded while fewer than min_tokens tokens are generated, and suppress_tokens
 *    always (transformers' option).
 * Prompt tokens do not count as generated.
 */
class LogitAdjuster {
 public:
  /*! \param options Valid options. */
  explicit LogitAdjuster(const SequenceOptions& options);

  /*! \brief Whether `Apply` would change the logits of the next token. */
  bool is_active() const;

  /*!
   * \brief Adjust the logits of the next token in place; touches only the affected tokens.
   *
   * NaN and infinity are kept, so that a broken model is not hidden.
   */
  void Apply(float* logits, int64_t vocab_size) const;

  /*! \return Whether a token is never generated. */
  bool Suppresses(int32_t token_id) const;

  /*! \brief Count a generated token. */
  void CountToken(int32_t token_id);

 private:
  bool excludes_stop_tokens() const;

  LogitOptions options_;
  /*! \brief Whether any penalty is set, so that tokens must be counted. */
  bool has_penalty_;
  int64_t min_tokens_;
  std::vector<int32_t> stop_token_ids_;
  std::vector<int32_t> suppress_tokens_;
  int64_t num_generated_ = 0;
  std::unordered_map<int32_t, int32_t> counts_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SAMPLING_LOGIT_ADJUSTER_H_
