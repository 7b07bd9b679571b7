#include "sampling/token_logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/elementwise/elementwise.h"
#include "sampling/logits.h"

namespace aiomlc {

namespace {

/*! \return The tokens with the largest logits in descending order, with logits as values. */
std::vector<Alternative> LargestLogits(const float* logits, int64_t vocab_size, int64_t num_top) {
  std::vector<Alternative> top;
  const size_t limit = static_cast<size_t>(std::min(num_top, vocab_size));
  if (limit == 0) return top;
  for (int64_t i = 0; i < vocab_size; ++i) {
    // An equal logit with a higher id ranks below the listed ones.
    if (top.size() == limit && !(logits[i] > top.back().logprob)) continue;
    if (top.size() == limit) top.pop_back();
    const auto position = std::find_if(top.begin(), top.end(), [&](const Alternative& other) {
      return logits[i] > other.logprob;
    });
    top.insert(position, {static_cast<int32_t>(i), logits[i]});
  }
  return top;
}

}  // namespace

bool AreFinite(const float* logits, int64_t vocab_size) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  bool has_number = false;
  for (int64_t i = 0; i < vocab_size; ++i) {
    if (std::isnan(logits[i]) || logits[i] == kInfinity) return false;
    has_number = has_number || logits[i] > -kInfinity;
  }
  return has_number;
}

TokenLogprobs ComputeLogprobs(const float* logits, int64_t vocab_size, int32_t token_id,
                              int64_t num_top) {
  const float largest = LargestElement(logits, vocab_size);
  const double log_total = largest + std::log(SumExp(logits, vocab_size, largest));
  const auto logprob = [&](float logit) {
    return std::max(static_cast<float>(logit - log_total), kLowestLogprob);
  };
  TokenLogprobs result{token_id, logprob(logits[token_id]),
                       LargestLogits(logits, vocab_size, num_top)};
  for (Alternative& alternative : result.top) alternative.logprob = logprob(alternative.logprob);
  return result;
}

}  // namespace aiomlc
