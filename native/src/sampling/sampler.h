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
    float value;  //!< The logit or the weight.
    int32_t token_id;
  };
  /*! \brief Weights that are at least `low` and less than `high`. */
  struct Range {
    float low;
    float high;
  };
  /*! \brief Weights and ids of tokens, in the order of their ids. */
  struct Tokens {
    std::vector<float> values;
    std::vector<int32_t> ids;
    int64_t count = 0;  //!< The vectors may be longer.
  };
  static bool ComesBefore(const Candidate& a, const Candidate& b);

  /*! \brief Fill `candidates_` with the largest logits, in descending order. */
  void KeepTopK(const float* logits, int64_t vocab_size, size_t top_k);
  /*! \brief Keep the first of `candidates_`, which have the weights `weights_`. */
  void KeepTopP(double top_p);
  /*! \brief Fill `kept_` with the likeliest tokens. */
  void SelectTopP(double top_p);
  /*!
   * \brief Bound the weight of the last token that top_p keeps.
   * \param total The sum of the weights.
   * \param target The sum that the kept tokens reach.
   * \return A range that contains this weight; the weights above it sum to less than the target.
   */
  Range BoundTopP(double top_p, double total, double target);
  /*! \brief Add the tokens from `begin` on whose weights are in the range to `kept_`. */
  void Collect(int64_t begin, int64_t end, Range range);
  /*! \return The median of some of `undecided_`. */
  Candidate ChoosePivot() const;
  /*!
   * \brief Split `undecided_` into those that come before the pivot, and `behind_pivot_`.
   * \return The sum of those before it.
   */
  double SplitUndecided(Candidate pivot);
  /*! \return The index in `weights_` that is drawn, after the min_p filter. */
  size_t Draw(const float* weights, int64_t size, double uniform, double min_p);

  std::vector<Candidate> candidates_;
  std::vector<Candidate> undecided_;
  std::vector<Candidate> behind_pivot_;
  Tokens kept_;
  std::vector<float> samples_;
  std::vector<float> weights_;  //!< e^((logit - max logit) / temperature).
  std::vector<double> block_sums_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SAMPLING_SAMPLER_H_
