#include "options/sequence_options.h"

#include <cmath>
#include <unordered_set>

#include "options/engine_error.h"
#include "text/streaming_detokenizer.h"

namespace aiomlc {

namespace {

void RequireOption(bool is_valid, const char* name, const std::string& value, const char* rule) {
  if (is_valid) return;
  throw EngineError(ErrorKind::kBadRequest,
                    std::string(name) + " must be " + rule + ", got " + value);
}

void RequireWithin(double min, double max, const char* name, double value, const char* rule) {
  RequireOption(value >= min && value <= max, name, std::to_string(value), rule);
}

void ValidateSampling(const SamplingOptions& options) {
  RequireOption(options.temperature >= 0 && std::isfinite(options.temperature), "temperature",
                std::to_string(options.temperature), ">= 0");
  RequireWithin(0, 1, "top_p", options.top_p, "between 0 and 1");
  RequireOption(options.top_k >= 0, "top_k", std::to_string(options.top_k), ">= 0");
  RequireWithin(0, 1, "min_p", options.min_p, "between 0 and 1");
}

void ValidateLogits(const LogitOptions& options, int64_t vocab_size) {
  RequireWithin(-2, 2, "presence_penalty", options.presence_penalty, "between -2 and 2");
  RequireWithin(-2, 2, "frequency_penalty", options.frequency_penalty, "between -2 and 2");
  RequireOption(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty),
                "repetition_penalty", std::to_string(options.repetition_penalty), "> 0");
  std::unordered_set<int64_t> token_ids;
  for (const LogitBias& entry : options.logit_bias) {
    const std::string token_id = std::to_string(entry.token_id);
    RequireOption(entry.token_id >= 0 && entry.token_id < vocab_size, "logit_bias",
                  "token " + token_id, "for tokens of the vocabulary");
    RequireOption(token_ids.insert(entry.token_id).second, "logit_bias",
                  "two for token " + token_id, "one number per token");
    RequireWithin(-100, 100, "logit_bias", entry.bias, "between -100 and 100");
  }
}

void ValidateStops(const SequenceOptions& options) {
  for (const std::string& stop : options.stop) {
    RequireOption(!stop.empty(), "stop", "an empty string", "non-empty");
    RequireOption(IsUtf8(stop), "stop", "invalid bytes", "valid UTF-8");
  }
  for (int32_t token_id : options.stop_token_ids) {
    RequireOption(token_id >= 0, "stop_token_ids", std::to_string(token_id), ">= 0");
  }
}

void ValidateTimeLimit(const std::optional<double>& seconds, const char* name) {
  if (!seconds.has_value()) return;
  RequireOption(*seconds > 0 && std::isfinite(*seconds), name, std::to_string(*seconds), "> 0");
}

void ValidateTimeLimits(const TimeLimits& limits) {
  ValidateTimeLimit(limits.timeout, "timeout");
  ValidateTimeLimit(limits.first_token_timeout, "first_token_timeout");
  ValidateTimeLimit(limits.inter_token_timeout, "inter_token_timeout");
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
  ValidateSampling(options.sampling);
  ValidateLogits(options.logits, vocab_size);
  ValidateStops(options);
  ValidateCounts(options);
  ValidateTimeLimits(options.time_limits);
}

}  // namespace aiomlc
