#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace aiomlc {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/*! \brief The output function of splitmix64 (Steele et al., 2014), a bijection. */
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

/*! \return The largest logit; NaN if any logit is. */
float MaxLogit(const float* logits, int64_t size) {
  // Independent lanes let the compiler vectorize the loop.
  constexpr int64_t kLanes = 16;
  float largest[kLanes];
  int32_t is_nan[kLanes] = {};
  std::fill(largest, largest + kLanes, -kInfinity);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float logit = logits[i + lane];
      largest[lane] = logit > largest[lane] ? logit : largest[lane];
      is_nan[lane] |= logit != logit;
    }
  }
  for (; i < size; ++i) {
    largest[0] = std::max(largest[0], logits[i]);
    is_nan[0] |= logits[i] != logits[i];
  }
  if (std::any_of(is_nan, is_nan + kLanes, [](int32_t flag) { return flag != 0; })) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return *std::max_element(largest, largest + kLanes);
}

}  // namespace

double UniformDraw(uint64_t seed, uint64_t token_index) {
  // The seed is mixed first, so that the streams of adjacent seeds are not shifted copies.
  const uint64_t bits =
      Mix(Mix(seed ^ 0x9e3779b97f4a7c15u) + (token_index + 1) * 0x9e3779b97f4a7c15u);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

bool Sampler::ComesBefore(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.token_id < b.token_id;
}

std::optional<int32_t> Sampler::Sample(const float* logits, int64_t vocab_size,
                                       const SamplerOptions& options, uint64_t seed,
                                       uint64_t token_index) {
  const float max_logit = MaxLogit(logits, vocab_size);
  if (!std::isfinite(max_logit)) return std::nullopt;
  if (options.temperature < kGreedyTemperature || options.top_k == 1) {
    return static_cast<int32_t>(std::find(logits, logits + vocab_size, max_logit) - logits);
  }
  if (options.top_k > 0 && options.top_k < vocab_size) {
    KeepTopK(logits, vocab_size, static_cast<size_t>(options.top_k));
  } else {
    KeepAll(logits, vocab_size);
  }
  ComputeWeights(max_logit, options.temperature);
  if (options.top_p < 1.0) KeepTopP(options.top_p);
  return Draw(UniformDraw(seed, token_index), options.min_p);
}

void Sampler::KeepAll(const float* logits, int64_t vocab_size) {
  candidates_.resize(static_cast<size_t>(vocab_size));
  for (int64_t i = 0; i < vocab_size; ++i) candidates_[i] = {logits[i], static_cast<int32_t>(i)};
}

void Sampler::KeepTopK(const float* logits, int64_t vocab_size, size_t top_k) {
  // Collect the logits above the k-th best so far, and truncate to k whenever about 2k are
  // collected. An equal logit with a higher id ranks below the k-th best, so it is not collected.
  const auto truncate = [&] {
    if (candidates_.size() <= top_k) return -kInfinity;
    std::nth_element(candidates_.begin(), candidates_.begin() + (top_k - 1), candidates_.end(),
                     ComesBefore);
    candidates_.resize(top_k);
    return candidates_.back().value;
  };
  candidates_.clear();
  float threshold = -kInfinity;
  const size_t limit = 2 * top_k + 64;
  for (int64_t i = 0; i < vocab_size; ++i) {
    if (!(logits[i] > threshold)) continue;
    candidates_.push_back({logits[i], static_cast<int32_t>(i)});
    if (candidates_.size() >= limit) threshold = truncate();
  }
  truncate();
  std::sort(candidates_.begin(), candidates_.end(), ComesBefore);
}

void Sampler::ComputeWeights(float max_logit, double temperature) {
  const float inverse = static_cast<float>(1.0 / temperature);
  for (Candidate& candidate : candidates_) {
    candidate.value = std::exp((candidate.value - max_logit) * inverse);
  }
}

void Sampler::KeepTopP(double top_p) {
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.value;
  // The tokens below this weight sum to less than half of the probability that top_p drops.
  const double negligible = 0.5 * (1.0 - top_p) * total / static_cast<double>(candidates_.size());
  std::erase_if(candidates_,
                [&](const Candidate& candidate) { return candidate.value < negligible; });
  // Bisect for the number of tokens that reach the target, so that only a few have to be sorted.
  // All tokens before `low` are kept, all tokens from `high` are dropped.
  constexpr size_t kMaxSorted = 64;
  const double target = top_p * total;
  double sum = 0;
  size_t low = 0;
  size_t high = candidates_.size();
  const auto at = [&](size_t index) { return candidates_.begin() + static_cast<int64_t>(index); };
  while (high - low > kMaxSorted) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(at(low), at(middle), at(high), ComesBefore);
    double middle_sum = 0;
    for (size_t i = low; i < middle; ++i) middle_sum += candidates_[i].value;
    if (sum + middle_sum >= target) {
      high = middle;
    } else {
      sum += middle_sum;
      low = middle;
    }
  }
  std::sort(at(low), at(high), ComesBefore);
  while (low < high && (low == 0 || sum < target)) sum += candidates_[low++].value;
  candidates_.resize(low);
}

int32_t Sampler::Draw(double uniform, double min_p) const {
  // The most likely token has weight 1, so weights compare with min_p directly.
  double total = 0;
  for (const Candidate& candidate : candidates_) {
    if (candidate.value >= min_p) total += candidate.value;
  }
  const double target = uniform * total;
  double sum = 0;
  int32_t token_id = candidates_.front().token_id;
  for (const Candidate& candidate : candidates_) {
    if (candidate.value < min_p || candidate.value <= 0) continue;
    token_id = candidate.token_id;
    sum += candidate.value;
    if (sum > target) break;
  }
  return token_id;
}

}  // namespace aiomlc
