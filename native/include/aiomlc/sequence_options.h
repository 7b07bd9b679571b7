/*!
 * \file aiomlc/sequence_options.h
 * \brief How one sequence samples and when it ends.
 */
#ifndef AIOMLC_SEQUENCE_OPTIONS_H_
#define AIOMLC_SEQUENCE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aiomlc {

/*! \brief How a token is chosen from its logits; see sampler.h for the definitions. */
struct SamplingOptions {
  /*! \brief At least 0; below 1e-5 the most likely token is taken. */
  double temperature = 1.0;
  /*! \brief In (0, 1]. */
  double top_p = 1.0;
  /*! \brief At least 0; 0 is off. */
  int64_t top_k = 0;
  /*! \brief In [0, 1]; 0 is off. */
  double min_p = 0.0;
};

/*! \brief What a caller asks of one sequence. */
struct SequenceOptions {
  SamplingOptions sampling;
  /*! \brief Tokens to generate, at least 1; without it, what the context window has room for. */
  std::optional<int64_t> max_tokens;
  /*! \brief The same seed gives the same tokens; without it the engine draws one. */
  std::optional<uint64_t> seed;
  /*! \brief The first of these strings to complete ends the sequence and is cut off with the rest.
   */
  std::vector<std::string> stop;
  /*! \brief Each of these tokens ends the sequence and is not part of its output. */
  std::vector<int32_t> stop_token_ids;
};

}  // namespace aiomlc

#endif  // AIOMLC_SEQUENCE_OPTIONS_H_
