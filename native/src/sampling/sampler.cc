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
  const float max_logit = MaxLogit(logits, vocab_size);
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
  } else {
    return static_cast<int32_t>(Draw(uniform, options.min_p));
  }
  weights_.clear();
  for (const Candidate& candidate : candidates_) weights_.push_back(candidate.value);
  return candidates_[Draw(uniform, options.min_p)].token_id;
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
  const double total = SumWeights(weights_.data(), static_cast<int64_t>(weights_.size()));
  // The tokens below this weight sum to less than half of the probability that top_p drops.
  const double negligible = 0.5 * (1.0 - top_p) * total / static_cast<double>(weights_.size());
  KeepWeights(&undecided_, [=](float weight, size_t) { return weight >= negligible; });
  // Find the last token to keep by quickselect. The undecided tokens stay in the order of their
  // ids, in which they are added up, so that the rounding depends on no library.
  constexpr size_t kMaxSorted = 64;
  // Positive, so that the first token is kept.
  const double target = std::max(top_p * total, std::numeric_limits<double>::min());
  double sum = 0;
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
  const size_t last_id = static_cast<size_t>(last_kept.token_id);
  KeepWeights(&candidates_, [=](float weight, size_t id) {
    return (weight > last_kept.value) | ((weight == last_kept.value) & (id <= last_id));
  });
}

template <typename Predicate>
void Sampler::KeepWeights(std::vector<Candidate>* kept, Predicate predicate) const {
  kept->resize(weights_.size());
  size_t count = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {  // Without branches, as below.
    (*kept)[count] = {weights_[i], static_cast<int32_t>(i)};
    count += predicate(weights_[i], i);
  }
  kept->resize(count);
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

size_t Sampler::Draw(double uniform, double min_p) {
  // The most likely token has weight 1, so weights compare with min_p directly.
  const int64_t size = static_cast<int64_t>(weights_.size());
  block_sums_.clear();
  double total = 0;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = std::min(kBlock, size - begin);
    block_sums_.push_back(SumWeights(weights_.data() + begin, count, min_p));
    total += block_sums_.back();
  }
  const double target = uniform * total;
  double sum = 0;
  size_t first = 0;  // The block in which the sum exceeds the target.
  while (first + 1 < block_sums_.size() && sum + block_sums_[first] <= target) {
    sum += block_sums_[first++];
  }
  size_t drawn = 0;
  for (size_t i = first * kBlock; i < weights_.size(); ++i) {
    if (weights_[i] < min_p || weights_[i] <= 0) continue;
    drawn = i;
    sum += weights_[i];
    if (sum > target) break;
  }
  return drawn;
}

}  // namespace aiomlc
