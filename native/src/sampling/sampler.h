/*!
 * \file sampling/sampler.h
 * \brief Sample a token from logits.
 */
#ifndef AIOMLC_SAMPLING_SAMPLER_H_
#define AIOMLC_SAMPLING_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "options/sequence_options.h"

namespace aiomlc {

/*! \brief Below this temperature decoding is greedy. */
inline constexpr double kGreedyTemperature = 1e-5;

/*!
 * \brief Return a uniform random number in [0, 1) with 53 bits, determined by seed and index.
 *
 * The generator is counter-based, so a sequence needs no generator state, and a recomputed sequence
 * draws the same numbers again.
 */
double UniformDraw(uint64_t seed, uint64_t token_index);

/*!
 * \brief Samples tokens as `SamplerOptions` defines.
 *
 * The result depends only on logits, options, seed and index. The object holds only scratch memory.
 * Not thread-safe.
 */
class Sampler {
 public:
  /*!
   * \brief Sample one token.
   * \param logits float32[vocab_size]; minus infinity excludes a token.
   * \param vocab_size At least 1.
   * \param token_index The index of the token in the completion.
   * \return The token, or nothing if a logit is NaN or the largest logit is infinite.
   */
  std::optional<int32_t> Sample(const float* logits, int64_t vocab_size,
                                const SamplerOptions& options, uint64_t seed, uint64_t token_index);

 private:
  struct Candidate {
    /*! \brief First the logit, then its weight exp((logit - max logit) / temperature). */
    float value;
    int32_t token_id;
  };
  static bool ComesBefore(const Candidate& a, const Candidate& b);

  // Each fills or filters `candidates_`.
  void KeepAll(const float* logits, int64_t vocab_size);
  void KeepTopK(const float* logits, int64_t vocab_size, size_t top_k);
  void KeepTopP(double top_p);
  /*! \brief Replace the logits of the candidates by their weights. */
  void ComputeWeights(float max_logit, double temperature);
  /*! \brief Draw a candidate by its weight, after the min_p filter. */
  int32_t Draw(double uniform, double min_p) const;

  std::vector<Candidate> candidates_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SAMPLING_SAMPLER_H_
