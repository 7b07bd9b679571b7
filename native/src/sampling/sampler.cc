#include "sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/elementwise/elementwise.h"
#include "sampling/logits.h"

namespace aiomlc {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kSmallestFactor = 1e-30f;
/*! \brief The weights that are added before the block of the drawn token is known. */
constexpr int64_t kBlock = 512;

/*! \brief The output function of splitmix64 (Steele et al., 2014), a bijection. */
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
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
  const float max_logit = LargestElement(logits, vocab_size);
  if (!std::isfinite(max_logit)) return std::nullopt;
  if (options.temperature < kGreedyTemperature || options.top_k == 1) {
    return static_cast<int32_t>(std::find(logits, logits + vocab_size, max_logit) - logits);
  }
  const double uniform = UniformDraw(seed, token_index);
  // Above 0 for every temperature, so that excluded tokens have the weight 0.
  const float factor = std::max(static_cast<float>(1.0 / options.temperature), kSmallestFactor);
  const bool has_top_k = options.top_k > 0 && options.top_k < vocab_size;
  if (has_top_k) {
    KeepTopK(logits, vocab_size, static_cast<size_t>(options.top_k));
    weights_.clear();
    for (const Candidate& candidate : candidates_) weights_.push_back(candidate.value);
    logits = weights_.data();
    vocab_size = static_cast<int64_t>(weights_.size());
  }
  weights_.resize(static_cast<size_t>(vocab_size));
  ExpScaled(logits, max_logit, factor, vocab_size, weights_.data());
  if (has_top_k) {
    for (size_t i = 0; i < candidates_.size(); ++i) candidates_[i].value = weights_[i];
    if (options.top_p < 1.0) KeepTopP(options.top_p);
  } else if (options.top_p < 1.0) {
    SelectTopP(options.top_p);
    return kept_.ids[Draw(kept_.values.data(), kept_.count, uniform, options.min_p)];
  } else {
    return static_cast<int32_t>(Draw(weights_.data(), vocab_size, uniform, options.min_p));
  }
  weights_.clear();
  for (const Candidate& candidate : candidates_) weights_.push_back(candidate.value);
  const int64_t size = static_cast<int64_t>(weights_.size());
  return candidates_[Draw(weights_.data(), size, uniform, options.min_p)].token_id;
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

void Sampler::KeepTopP(double top_p) {
  const double target = top_p * SumWeights(weights_.data(), static_cast<int64_t>(weights_.size()));
  double sum = candidates_[0].value;
  size_t count = 1;
  while (count < candidates_.size() && sum < target) sum += candidates_[count++].value;
  candidates_.resize(count);
}

void Sampler::SelectTopP(double top_p) {
  const int64_t size = static_cast<int64_t>(weights_.size());
  const double total = SumWeights(weights_.data(), size);
  // Positive, so that the first token is kept.
  const double target = std::max(top_p * total, std::numeric_limits<double>::min());
  const Range range = BoundTopP(top_p, total, target);
  kept_.count = 0;
  Collect(0, size, range);
  undecided_.clear();
  for (int64_t i = 0; i < kept_.count; ++i) undecided_.push_back({kept_.values[i], kept_.ids[i]});
  // Find the last token to keep by quickselect. The undecided tokens stay in the order of their
  // ids, in which they are added up, so that the rounding depends on no library.
  constexpr size_t kMaxSorted = 64;
  double sum = range.high < kInfinity ? SumWeights(weights_.data(), size, range.high) : 0.0;
  Candidate last_kept = {};
  while (sum < target && undecided_.size() > kMaxSorted) {
    const Candidate pivot = ChoosePivot();
    const double before = SplitUndecided(pivot);
    if (sum + before >= target) continue;
    sum += before + pivot.value;
    last_kept = pivot;
    undecided_.swap(behind_pivot_);
  }
  std::sort(undecided_.begin(), undecided_.end(), ComesBefore);
  for (size_t i = 0; sum < target && i < undecided_.size(); ++i) {
    last_kept = undecided_[i];
    sum += last_kept.value;
  }
  // Of those with the same weight, only the ids up to the last one.
  kept_.count = 0;
  Collect(0, last_kept.token_id + 1, {last_kept.value, kInfinity});
  Collect(last_kept.token_id + 1, size, {std::nextafter(last_kept.value, kInfinity), kInfinity});
}

Sampler::Range Sampler::BoundTopP(double top_p, double total, double target) {
  const int64_t size = static_cast<int64_t>(weights_.size());
  // The tokens below this weight sum to less than half of the probability that top_p drops.
  const double negligible = 0.5 * (1.0 - top_p) * total / static_cast<double>(size);
  Range range = {static_cast<float>(negligible), kInfinity};
  if (range.low < negligible) range.low = std::nextafter(range.low, kInfinity);
  constexpr int64_t kSamples = 512;
  if (size < 16 * kSamples) return range;
  // Estimate the weights below which there is about as much as top_p drops: the less likely tokens
  // are so many that a sample tells their sum. Then sum up what these limits really drop.
  const int64_t stride = size / kSamples;
  samples_.resize(kSamples);
  for (int64_t i = 0; i < kSamples; ++i) samples_[i] = weights_[i * stride];
  std::sort(samples_.begin(), samples_.end());
  constexpr double kEstimates[kSumLimits] = {0.6, 0.85, 1.15, 1.5};
  const double to_drop = total - target;
  float limits[kSumLimits];
  double dropped = 0;
  size_t sample = 0;
  for (int i = 0; i < kSumLimits; ++i) {
    while (dropped < kEstimates[i] * to_drop && sample + 1 < samples_.size()) {
      dropped += static_cast<double>(stride) * samples_[sample++];
    }
    limits[i] = std::nextafter(samples_[sample], 0.0f);
  }
  float sums[kSumLimits];
  SumsAtMost(weights_.data(), size, limits, sums);
  const double error = 1e-12 * total;  // More than that of sums in float64.
  const double relative_error = static_cast<double>(size) * 0x1p-27;
  for (int i = 0; i < kSumLimits; ++i) {
    const float limit = std::nextafter(limits[i], kInfinity);
    if (sums[i] * (1 + relative_error) <= to_drop - error) {
      range.low = std::max(range.low, limit);
    } else if (sums[i] * (1 - relative_error) > to_drop + error) {
      range.high = std::min(range.high, limit);
    }
  }
  return range;
}

void Sampler::Collect(int64_t begin, int64_t end, Range range) {
  const size_t space = weights_.size() + kCollectPadding;
  if (kept_.values.size() < space) {
    kept_.values.resize(space);
    kept_.ids.resize(space);
  }
  kept_.count += CollectBetween(weights_.data(), begin, end, range.low, range.high,
                                kept_.values.data() + kept_.count, kept_.ids.data() + kept_.count);
}

Sampler::Candidate Sampler::ChoosePivot() const {
  std::array<Candidate, 9> samples;
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i] = undecided_[i * (undecided_.size() - 1) / (samples.size() - 1)];
  }
  std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end(),
                   ComesBefore);
  return samples[samples.size() / 2];
}

double Sampler::SplitUndecided(Candidate pivot) {
  behind_pivot_.resize(undecided_.size());
  size_t num_before = 0;
  size_t num_behind = 0;
  for (const Candidate candidate : undecided_) {
    // `ComesBefore` without branches, which could not be predicted.
    const bool is_before =
        (candidate.value > pivot.value) |
        ((candidate.value == pivot.value) & (candidate.token_id < pivot.token_id));
    const bool is_behind = !is_before & (candidate.token_id != pivot.token_id);
    undecided_[num_before] = candidate;
    behind_pivot_[num_behind] = candidate;
    num_before += is_before;
    num_behind += is_behind;
  }
  undecided_.resize(num_before);
  behind_pivot_.resize(num_behind);
  double sum = 0;
  for (const Candidate candidate : undecided_) sum += candidate.value;
  return sum;
}

size_t Sampler::Draw(const float* weights, int64_t size, double uniform, double min_p) {
  // The most likely token has weight 1, so weights compare with min_p directly.
  block_sums_.clear();
  double total = 0;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = std::min(kBlock, size - begin);
    block_sums_.push_back(SumWeights(weights + begin, count, min_p));
    total += block_sums_.back();
  }
  const double target = uniform * total;
  double sum = 0;
  size_t first = 0;  // The block in which the sum exceeds the target.
  while (first + 1 < block_sums_.size() && sum + block_sums_[first] <= target) {
    sum += block_sums_[first++];
  }
  size_t drawn = 0;
  for (size_t i = first * kBlock; i < static_cast<size_t>(size); ++i) {
    if (weights[i] < min_p || weights[i] <= 0) continue;
    drawn = i;
    sum += weights[i];
    if (sum > target) break;
  }
  return drawn;
}

}  // namespace aiomlc
