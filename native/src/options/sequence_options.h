/*!
 * \file options/sequence_options.h
 * \brief The sampling parameters and limits of one sequence.
 */
#ifndef AIOMLC_OPTIONS_SEQUENCE_OPTIONS_H_
#define AIOMLC_OPTIONS_SEQUENCE_OPTIONS_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "grammar/grammar.h"
#include "options/logits_processor.h"

namespace aiomlc {

/*! \brief The maximum number of alternatives that are reported for a token. */
inline constexpr int64_t kMaxTopLogprobs = 20;

/*!
 * \brief Sampling parameters. Logits are divided by the temperature; then the filters are applied
 * in this order:
 * 1. top_k keeps the k largest logits;
 * 2. top_p keeps the smallest set of most likely tokens whose fraction of the remaining probability
 *    is at least top_p, and at least one token;
 * 3. min_p keeps the tokens that are at least min_p times as likely as the most likely token.
 * Among equally likely tokens the lowest id comes first, also in greedy decoding.
 */
struct SamplerOptions {
  /*! \brief Values below 1e-5 mean greedy decoding. */
  double temperature = 1.0;
  /*! \brief 1 disables it. */
  double top_p = 1.0;
  /*! \brief 0 disables it. */
  int64_t top_k = 0;
  /*! \brief 0 disables it. */
  double min_p = 0.0;
};

/*! \brief A bias that is added to the logit of one token. */
struct LogitBias {
  /*! \brief In [0, vocab_size); unique within a sequence. */
  int64_t token_id;
  /*! \brief In [-100, 100]. */
  double bias;
};

/*! \brief Logit bias and penalties; logit_adjuster.h defines them. */
struct LogitOptions {
  /*! \brief 0 disables it. */
  double presence_penalty = 0.0;
  /*! \brief 0 disables it. */
  double frequency_penalty = 0.0;
  /*! \brief 1 disables it. */
  double repetition_penalty = 1.0;
  std::vector<LogitBias> logit_bias;
};

/*! \brief Time limits of a sequence in seconds; an empty one sets no limit. */
struct TimeLimits {
  /*! \brief From the submission to the end. */
  std::optional<double> timeout;
  /*! \brief From the submission to the first token. */
  std::optional<double> first_token_timeout;
  /*! \brief Between the computation of two consecutive tokens. */
  std::optional<double> inter_token_timeout;
};

/*! \brief The allowed values of a parameter, which must be finite. */
struct Range {
  double min;
  double max = std::numeric_limits<double>::max();
  bool excludes_min = false;
};

/*! \brief The name of a parameter, its member and its range. */
template <typename Options, typename Value>
struct Parameter {
  const char* name;
  Value Options::* member;
  Range range;
};

/*! \brief The parameters that are validated and cross the FFI alike. */
inline constexpr std::tuple kParameters{
    Parameter{"temperature", &SamplerOptions::temperature, {0}},
    Parameter{"top_p", &SamplerOptions::top_p, {0, 1}},
    Parameter{"top_k", &SamplerOptions::top_k, {0}},
    Parameter{"min_p", &SamplerOptions::min_p, {0, 1}},
    Parameter{"presence_penalty", &LogitOptions::presence_penalty, {-2, 2}},
    Parameter{"frequency_penalty", &LogitOptions::frequency_penalty, {-2, 2}},
    Parameter{
        "repetition_penalty", &LogitOptions::repetition_penalty, {.min = 0, .excludes_min = true}},
    Parameter{"timeout", &TimeLimits::timeout, {.min = 0, .excludes_min = true}},
    Parameter{
        "first_token_timeout", &TimeLimits::first_token_timeout, {.min = 0, .excludes_min = true}},
    Parameter{
        "inter_token_timeout", &TimeLimits::inter_token_timeout, {.min = 0, .excludes_min = true}},
};

/*! \brief Call `function` for each of `kParameters`. */
template <typename Function>
void ForEachParameter(Function function) {
  std::apply([&](const auto&... parameters) { (function(parameters), ...); }, kParameters);
}

/*! \brief The options of one sequence. */
struct SequenceOptions {
  SamplerOptions sampling;
  LogitOptions logits;
  /*!
   * \brief The maximum number of generated tokens, at least 1; if empty, the context window is the
   * limit.
   */
  std::optional<int64_t> max_tokens;
  /*! \brief Neither a stop token nor a stop string ends the sequence before this many tokens. */
  int64_t min_tokens = 0;
  /*! \brief Equal seeds give equal samples; if empty, the engine draws a random seed. */
  std::optional<uint64_t> seed;
  /*! \brief The first of these strings to appear ends the sequence; the output ends before it. */
  std::vector<std::string> stop;
  /*! \brief Each of these tokens ends the sequence and is excluded from its output. */
  std::vector<int32_t> stop_token_ids;
  /*! \brief Tokens that are never generated. */
  std::vector<int32_t> suppress_tokens;
  /*!
   * \brief Alternatives to report with each generated token's log-probability, from 0 to
   * kMaxTopLogprobs; if empty, no log-probabilities are computed.
   */
  std::optional<int64_t> top_logprobs;
  /*! \brief The same for the prompt tokens, which are then not taken from the prefix cache. */
  std::optional<int64_t> prompt_logprobs;
  /*! \brief A matcher at the start of the grammar of the completion; null if unconstrained. */
  std::shared_ptr<const GrammarMatcher> grammar;
  /*! \brief May be empty. A sequence with a processor gets no draft tokens. */
  LogitsProcessor logits_processor;
  TimeLimits time_limits;
  /*! \brief Lower values are scheduled first; ties are broken by arrival. */
  int64_t priority = 0;
  /*!
   * \brief Whether the sequence's tokens stay in the prefix cache until `Unpin`, provided that it
   * completes normally.
   */
  bool is_pinned = false;
};

/*! \brief Validate all options. \throws EngineError kBadRequest: names the first invalid option. */
void ValidateOptions(const SequenceOptions& options, int64_t vocab_size);

}  // namespace aiomlc

#endif  // AIOMLC_OPTIONS_SEQUENCE_OPTIONS_H_
