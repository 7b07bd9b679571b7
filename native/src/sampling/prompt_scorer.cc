#include "sampling/prompt_scorer.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace aiomlc {

int64_t PromptScorer::CountLogits(int64_t begin, int64_t end) const {
  return std::max<int64_t>(0, std::min(end, num_to_score_) - std::max(begin, num_scored_));
}

int64_t PromptScorer::MaxTokensWithin(int64_t begin, int64_t max_logits) const {
  const int64_t first = std::max(begin, num_scored_);
  if (first + max_logits >= num_to_score_) return std::numeric_limits<int64_t>::max();
  return first + max_logits - begin;
}

bool PromptScorer::Score(const float* logits, int64_t count, int64_t vocab_size,
                         std::span<const int32_t> token_ids) {
  for (int64_t i = 0; i < count; ++i) {
    if (!AreFinite(logits + i * vocab_size, vocab_size)) return false;
  }
  for (int64_t i = 0; i < count; ++i) {
    ++num_scored_;
    scored_.push_back(ComputeLogprobs(logits + i * vocab_size, vocab_size,
                                      token_ids[static_cast<size_t>(num_scored_)], *num_top_));
  }
  return true;
}

std::vector<TokenLogprobs> PromptScorer::TakeLogprobs() { return std::exchange(scored_, {}); }

}  // namespace aiomlc
