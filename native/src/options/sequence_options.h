/*!
 * \file options/sequence_options.h
 * \brief How one sequence samples and when it ends.
 */
#ifndef AIOMLC_OPTIONS_SEQUENCE_OPTIONS_H_
#define AIOMLC_OPTIONS_SEQUENCE_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "options/logits_processor.h"

namespace aiomlc {

/*! \brief The most alternatives that are reported beside a token. */
inline constexpr int64_t kMaxTopLogprobs = 20;

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

/*! \brief What is added to the logit of one token. */
struct LogitBias {
  /*! \brief In the vocabulary, and in no other bias of the same sequence. */
  int64_t token_id;
  /*! \brief In [-100, 100]. */
  double bias;
};

/*! \brief How logits are changed before sampling; see logit_adjuster.h for the definitions. */
struct LogitOptions {
  /*! \brief In [-2, 2]; 0 is off. */
  double presence_penalty = 0.0;
  /*! \brief In [-2, 2]; 0 is off. */
  double frequency_penalty = 0.0;
  /*! \brief Above 0; 1 is off. */
  double repetition_penalty = 1.0;
  std::vector<LogitBias> logit_bias;
};

/*! \brief When a sequence ends for want of time: seconds, above 0; without one there is no limit.
 */
struct TimeLimits {
  /*! \brief From the submission to the end. */
  std::optional<double> timeout;
  /*! \brief From the submission to the first token. */
  std::optional<double> first_token_timeout;
  /*! \brief From one token to the next, as they are computed. */
  std::optional<double> inter_token_timeout;
};

/*! \brief What a caller asks of one sequence. */
struct SequenceOptions {
  SamplingOptions sampling;
  LogitOptions logits;
  /*! \brief Tokens to generate, at least 1; without it, what the context window has room for. */
  std::optional<int64_t> max_tokens;
  /*! \brief Before this many tokens neither a stop token nor a stop string ends the sequence. */
  int64_t min_tokens = 0;
  /*! \brief The same seed gives the same tokens; without it the engine draws one. */
  std::optional<uint64_t> seed;
  /*! \brief The first of these strings to complete ends the sequence and is cut off with the rest.
   */
  std::vector<std::string> stop;
  /*! \brief Each of these tokens ends the sequence and is not part of its output. */
  std::vector<int32_t> stop_token_ids;
  /*!
   * \brief How many alternatives are reported with each token's log-probability, at most
   * kMaxTopLogprobs; without it no log-probability is computed.
   */
  std::optional<int64_t> top_logprobs;
  /*! \brief The same for the tokens of the prompt, which is then not taken from the cache. */
  std::optional<int64_t> prompt_logprobs;
  /*! \brief What the completion must be, at its beginning; without it any text may come. */
  std::shared_ptr<const GrammarMatcher> grammar;
  /*! \brief May be empty. A sequence that has one gets no drafts. */
  LogitsProcessor logits_processor;
  TimeLimits time_limits;
  /*! \brief The lower, the earlier; among equals the order of arrival decides. */
  int64_t priority = 0;
  /*! \brief Whether its tokens stay in the prefix cache when it has ended well, until `Unpin`. */
  bool is_pinned = false;
};

/*! \throws EngineError kBadRequest that names the first option that is out of its range. */
void ValidateOptions(const SequenceOptions& options, int64_t vocab_size);

}  // namespace aiomlc

#endif  // AIOMLC_OPTIONS_SEQUENCE_OPTIONS_H_
