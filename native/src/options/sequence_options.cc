#include "options/sequence_options.h"

#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <unordered_set>

#include "options/engine_error.h"
#include "text/streaming_detokenizer.h"

namespace aiomlc {

namespace {

void RequireOption(bool is_valid, const char* name, const std::string& value,
                   const std::string& rule) {
  if (is_valid) return;
  throw EngineError(ErrorKind::kBadRequest,
                    std::string(name) + " must be " + rule + ", got " + value);
}

std::string Describe(const Range& range) {
  std::ostringstream text;
  if (range.max < std::numeric_limits<double>::max()) {
    text << "between " << range.min << " and " << range.max;
  } else {
    text << (range.excludes_min ? "> " : ">= ") << range.min;
  }
  return text.str();
}

void RequireWithin(const Range& range, const char* name, double value) {
  const bool is_above_min = range.excludes_min ? value > range.min : value >= range.min;
  if (is_above_min && value <= range.max) return;
  RequireOption(false, name, std::to_string(value), Describe(range));
}

void ValidateLogitBias(const LogitOptions& options, int64_t vocab_size) {
  std::unordered_set<int64_t> token_ids;
  token_ids.reserve(options.logit_bias.size());
  for (const LogitBias& entry : options.logit_bias) {
    // The texts of errors are made for errors only: there may be a bias for every token.
    if (entry.token_id < 0 || entry.token_id >= vocab_size) {
      RequireOption(false, "logit_bias", "token " + std::to_string(entry.token_id),
                    "for tokens of the vocabulary");
    }
    if (!token_ids.insert(entry.token_id).second) {
      RequireOption(false, "logit_bias", "two for token " + std::to_string(entry.token_id),
                    "one number per token");
    }
    RequireWithin({-100, 100}, "logit_bias", entry.bias);
  }
}

/*! \return The part of the options that has the members of `Part`. */
template <typename Part>
const Part& PartOf(const SequenceOptions& options) {
  if constexpr (std::is_same_v<Part, SamplerOptions>) return options.sampling;
  if constexpr (std::is_same_v<Part, LogitOptions>) return options.logits;
  if constexpr (std::is_same_v<Part, TimeLimits>) return options.time_limits;
}

void ValidateStops(const SequenceOptions& options) {
  for (const std::string& stop : options.stop) {
    RequireOption(!stop.empty(), "stop", "an empty string", "non-empty");
    RequireOption(IsUtf8(stop), "stop", "invalid bytes", "valid UTF-8");
  }
  for (int32_t token_id : options.stop_token_ids) {
    if (token_id < 0) RequireOption(false, "stop_token_ids", std::to_string(token_id), ">= 0");
  }
  for (int32_t token_id : options.suppress_tokens) {
    if (token_id < 0) RequireOption(false, "suppress_tokens", std::to_string(token_id), ">= 0");
  }
}

void ValidateTopLogprobs(const std::optional<int64_t>& num_top, const char* name) {
  if (!num_top.has_value()) return;
  RequireOption(*num_top >= 0 && *num_top <= kMaxTopLogprobs, name, std::to_string(*num_top),
                "between 0 and 20");
}

void ValidateCounts(const SequenceOptions& options) {
  const std::string min_tokens = std::to_string(options.min_tokens);
  RequireOption(options.min_tokens >= 0, "min_tokens", min_tokens, ">= 0");
  if (options.max_tokens.has_value()) {
    RequireOption(*options.max_tokens >= 1, "max_tokens", std::to_string(*options.max_tokens),
                  ">= 1");
    RequireOption(options.min_tokens <= *options.max_tokens, "min_tokens", min_tokens,
                  "<= max_tokens");
  }
  ValidateTopLogprobs(options.top_logprobs, "top_logprobs");
  ValidateTopLogprobs(options.prompt_logprobs, "prompt_logprobs");
}

}  // namespace

void ValidateOptions(const SequenceOptions& options, int64_t vocab_size) {
  ForEachParameter([&]<typename Part, typename Value>(const Parameter<Part, Value>& parameter) {
    const Value& value = PartOf<Part>(options).*parameter.member;
    if constexpr (requires { value.has_value(); }) {
      if (value.has_value()) RequireWithin(parameter.range, parameter.name, *value);
    } else {
      RequireWithin(parameter.range, parameter.name, static_cast<double>(value));
    }
  });
  ValidateLogitBias(options.logits, vocab_size);
  ValidateStops(options);
  ValidateCounts(options);
}

}  // namespace aiomlc
