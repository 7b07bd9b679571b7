/*!
 * \file sampling/sampler.h
 * \brief Choose a token from logits.
 */
#ifndef AIOMLC_SAMPLING_SAMPLER_H_
#define AIOMLC_SAMPLING_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "options/sequence_options.h"

namespace aiomlc {

/*! \brief Below this temperature the most likely token is taken. */
inline constexpr double kGreedyTemperature = 1e-5;

/*!
 * \return The uniform number in [0, 1) of one token: 53 bits, a function of seed and index alone.
 *
 * Counter-based, so a sequence needs no generator state and a recomputed one draws the same again.
 */
double UniformDraw(uint64_t seed, uint64_t token_index);

/*!
 * \brief Chooses tokens. The choice depends on logits, options, seed and index, and nothing else.
 *
 * The order of the filters is the usual one:
 * 1. logits are divided by the temperature;
 * 2. top_k keeps the k largest;
 * 3. top_p keeps the smallest set of most likely tokens whose share of the probability that is left
 *    reaches top_p, the token that reaches it included;
 * 4. min_p keeps the tokens at least min_p times as likely as the most likely one.
 * Of equally likely tokens the one with the lowest id comes first, in greedy choice too.
 *
 * The object holds scratch memory only. Not thread-safe.
 */
class Sampler {
 public:
  /*!
   * \param logits float32[vocab_size]; minus infinity excludes a token.
   * \param vocab_size At least 1.
   * \param token_index How many tokens of the completion came before.
   * \return The token, or nothing when a logit is NaN or the largest is infinite.
   */
  std::optional<int32_t> Sample(const float* logits, int64_t vocab_size,
                                const SamplingOptions& options, uint64_t seed,
                                uint64_t token_index);

 private:
  struct Candidate {
    /*! \brief A logit at first, then exp((logit - largest logit) / temperature). */
    float value;
    int32_t token_id;
  };
  static bool ComesBefore(const Candidate& a, const Candidate& b);

  void KeepAll(const float* logits, int64_t vocab_size);
  void KeepTopK(const float* logits, int64_t vocab_size, size_t top_k);
  void KeepTopP(double top_p);
  void Weigh(float max_logit, double temperature);
  int32_t Draw(double uniform, double min_p) const;

  std::vector<Candidate> candidates_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SAMPLING_SAMPLER_H_
