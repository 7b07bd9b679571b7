#include "sampling/logit_adjuster.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace aiomlc {

namespace {

constexpr double kMaxFloat = std::numeric_limits<float>::max();

/*! \brief Exclude tokens; those that the vocabulary does not have are ignored. */
void Exclude(const std::vector<int32_t>& token_ids, float* logits, int64_t vocab_size) {
  for (int32_t token_id : token_ids) {
    if (token_id < vocab_size && std::isfinite(logits[token_id])) {
      logits[token_id] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace

LogitAdjuster::LogitAdjuster(const SequenceOptions& options)
    : options_(options.logits),
      has_penalty_(options_.presence_penalty != 0 || options_.frequency_penalty != 0 ||
                   options_.repetition_penalty != 1),
      min_tokens_(options.min_tokens),
      stop_token_ids_(options.stop_token_ids),
      suppress_tokens_(options.suppress_tokens) {}

bool LogitAdjuster::excludes_stop_tokens() const {
  return num_generated_ < min_tokens_ && !stop_token_ids_.empty();
}

bool LogitAdjuster::is_active() const {
  return !options_.logit_bias.empty() || !counts_.empty() || !suppress_tokens_.empty() ||
         excludes_stop_tokens();
}

void LogitAdjuster::Apply(float* logits, int64_t vocab_size) const {
  for (const LogitBias& entry : options_.logit_bias) {
    logits[entry.token_id] += static_cast<float>(entry.bias);
  }
  for (const auto& [token_id, count] : counts_) {
    if (!std::isfinite(logits[token_id])) continue;
    double logit = logits[token_id];
    logit -= options_.presence_penalty + count * options_.frequency_penalty;
    logit = logit < 0 ? logit * options_.repetition_penalty : logit / options_.repetition_penalty;
    logits[token_id] = static_cast<float>(std::clamp(logit, -kMaxFloat, kMaxFloat));
  }
  Exclude(suppress_tokens_, logits, vocab_size);
  if (excludes_stop_tokens()) Exclude(stop_token_ids_, logits, vocab_size);
}

bool LogitAdjuster::Suppresses(int32_t token_id) const {
  return std::find(suppress_tokens_.begin(), suppress_tokens_.end(), token_id) !=
         suppress_tokens_.end();
}

void LogitAdjuster::CountToken(int32_t token_id) {
  ++num_generated_;
  if (has_penalty_) ++counts_[token_id];
}

}  // namespace aiomlc
