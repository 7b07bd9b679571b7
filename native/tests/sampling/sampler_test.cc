#include "sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "kernels/elementwise/elementwise.h"

namespace aiomlc {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/*! \brief The probability of every token by the definition in sampler.h, in float64. */
std::vector<double> Distribution(const std::vector<float>& logits, const SamplerOptions& options) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0) {
    order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  }
  std::vector<double> weights(logits.size(), 0.0);
  double total = 0;
  for (size_t token : order) {
    weights[token] =
        std::exp((static_cast<double>(logits[token]) - logits[order[0]]) / options.temperature);
    total += weights[token];
  }
  double sum = 0;
  double kept = 0;
  for (size_t token : order) {
    const bool in_top_p = kept == 0 || options.top_p >= 1 || sum < options.top_p * total;
    sum += weights[token];
    if (!in_top_p || weights[token] < options.min_p) weights[token] = 0;
    kept += weights[token];
  }
  for (double& weight : weights) weight /= kept;
  return weights;
}

std::vector<float> RandomLogits(size_t size, uint32_t seed, float spread) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(generator);
  return logits;
}

int32_t Sample(const std::vector<float>& logits, const SamplerOptions& options, uint64_t seed,
               uint64_t index) {
  Sampler sampler;
  return sampler.Sample(logits.data(), static_cast<int64_t>(logits.size()), options, seed, index)
      .value();
}

TEST(Sampler, GreedyTakesTheLargestLogitWithTheLowestId) {
  for (size_t size : {1u, 5u, 16u, 17u, 100u}) {
    std::vector<float> logits(size, -2.0f);
    EXPECT_EQ(Sample(logits, {.temperature = 0}, 0, 0), 0);
    logits[size - 1] = 3.0f;
    EXPECT_EQ(Sample(logits, {.temperature = 0}, 0, 0), static_cast<int32_t>(size) - 1);
    logits[size / 2] = 3.0f;
    EXPECT_EQ(Sample(logits, {.temperature = 9e-6}, 0, 0), static_cast<int32_t>(size / 2));
  }
}

TEST(Sampler, ReturnsNothingForNanOrAnInfiniteMaximum) {
  const std::vector<float> bad = {std::numeric_limits<float>::quiet_NaN(), kInfinity};
  for (size_t position : {0u, 20u, 36u}) {
    for (float value : bad) {
      std::vector<float> logits(37, 1.0f);
      logits[position] = value;
      Sampler sampler;
      EXPECT_EQ(sampler.Sample(logits.data(), 37, {.temperature = 0}, 0, 0), std::nullopt);
      EXPECT_EQ(sampler.Sample(logits.data(), 37, {.temperature = 1}, 0, 0), std::nullopt);
      EXPECT_EQ(sampler.Sample(logits.data(), 37, {.top_p = 0.9}, 0, 0), std::nullopt);
    }
  }
  const std::vector<float> nothing_allowed(37, -kInfinity);
  Sampler sampler;
  EXPECT_EQ(sampler.Sample(nothing_allowed.data(), 37, {}, 0, 0), std::nullopt);
}

TEST(Sampler, NeverDrawsTokensAtMinusInfinity) {
  std::vector<float> logits(50, -kInfinity);
  logits[7] = 1.0f;
  logits[33] = 1.0f;
  for (const SamplerOptions& options :
       {SamplerOptions{}, SamplerOptions{.top_p = 0.9}, SamplerOptions{.top_k = 10},
        SamplerOptions{.temperature = 1e60}, SamplerOptions{.temperature = 1e60, .top_p = 0.9}}) {
    std::map<int32_t, int> counts;
    for (uint64_t index = 0; index < 200; ++index) ++counts[Sample(logits, options, 1, index)];
    EXPECT_EQ(counts.size(), 2u);
    EXPECT_EQ(counts[7] + counts[33], 200);
  }
}

// A chi-squared test of the frequencies of 40,000 draws.
TEST(Sampler, DrawsFollowTheDistributionOfEveryFilter) {
  const SamplerOptions cases[] = {
      {},
      {.temperature = 0.5},
      {.temperature = 2.0},
      {.top_p = 0.7},
      {.top_k = 5},
      {.min_p = 0.1},
      {.temperature = 1.3, .top_p = 0.8, .top_k = 12, .min_p = 0.05},
      {.top_p = 0},
      {.top_k = 1},
      {.top_k = 1000},
  };
  const std::vector<float> logits = RandomLogits(40, 3, 1.5f);
  constexpr int kDraws = 40000;
  for (const SamplerOptions& options : cases) {
    const std::vector<double> expected = Distribution(logits, options);
    std::vector<int> counts(logits.size(), 0);
    Sampler sampler;
    for (uint64_t index = 0; index < kDraws; ++index) {
      ++counts[static_cast<size_t>(*sampler.Sample(logits.data(), 40, options, 5, index))];
    }
    double chi_squared = 0;
    int degrees = -1;
    for (size_t token = 0; token < logits.size(); ++token) {
      if (expected[token] == 0) {
        EXPECT_EQ(counts[token], 0) << token;
        continue;
      }
      const double mean = expected[token] * kDraws;
      chi_squared += (counts[token] - mean) * (counts[token] - mean) / mean;
      ++degrees;
    }
    EXPECT_LE(chi_squared, degrees + 5 * std::sqrt(2.0 * degrees)) << options.top_p;
  }
}

TEST(Sampler, FiltersMatchAFullSortForALargeVocabulary) {
  const SamplerOptions cases[] = {
      {.top_p = 0.95},
      {.top_p = 0.3, .top_k = 500},
      {.top_k = 40},
      {.top_k = 3000},
      {.top_p = 0.9999},
      {.min_p = 0.02},
      {.temperature = 3.0, .top_p = 0.9},
  };
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const std::vector<float> logits = RandomLogits(20000, seed, 2.0f + static_cast<float>(seed));
    for (const SamplerOptions& options : cases) {
      const std::vector<double> expected = Distribution(logits, options);
      for (uint64_t index = 0; index < 30; ++index) {
        const int32_t token = Sample(logits, options, seed, index);
        EXPECT_GT(expected[static_cast<size_t>(token)], 0) << index;
      }
    }
  }
}

/*! \brief The order of tokens by weight, and by id among equal weights. */
std::vector<size_t> SortedTokens(const std::vector<float>& weights) {
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  return order;
}

/*! \brief The token that a full sort of the vocabulary draws. */
int32_t DrawFromSorted(const std::vector<float>& weights, const std::vector<size_t>& order,
                       const SamplerOptions& options, double uniform) {
  const double target = options.top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> kept(weights.size(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < order.size() && (i == 0 || sum < target); ++i) {
    const double weight = weights[order[i]];
    sum += weight;
    if (weight >= options.min_p) kept[order[i]] = weight;
  }
  const double drawn = uniform * std::accumulate(kept.begin(), kept.end(), 0.0);
  sum = 0;
  size_t last = 0;
  for (size_t token = 0; token < kept.size(); ++token) {
    if (kept[token] <= 0) continue;
    last = token;
    sum += kept[token];
    if (sum > drawn) break;
  }
  return static_cast<int32_t>(last);
}

std::vector<float> LogitsOfKind(int kind, size_t size) {
  std::vector<float> logits = RandomLogits(size, static_cast<uint32_t>(size), 1.0f);
  for (size_t i = 0; i < size; ++i) {
    if (kind == 1) logits[i] *= 4.0f;
    if (kind == 2) logits[i] = 0.25f;
    if (kind == 3) logits[i] = std::round(logits[i]);  // Many are equal to the last that is kept.
    if (kind == 4 && i % 3 != 1) logits[i] = -kInfinity;
    if (kind == 5 && i % 997 == 5) logits[i] += 15.0f;
  }
  if (kind == 4 && size == 1) logits[0] = 0.0f;
  return logits;
}

TEST(Sampler, TopPDrawsTheTokensOfAFullSort) {
  Sampler sampler;
  for (size_t size : {1u, 2u, 17u, 500u, 8191u, 8192u, 30011u, 70000u}) {
    const int64_t vocab_size = static_cast<int64_t>(size);
    for (int kind = 0; kind < 6; ++kind) {
      const std::vector<float> logits = LogitsOfKind(kind, size);
      for (double temperature : {0.4, 1.0, 5.0}) {
        std::vector<float> weights(size);
        ExpScaled(logits.data(), *std::max_element(logits.begin(), logits.end()),
                  static_cast<float>(1.0 / temperature), vocab_size, weights.data());
        const std::vector<size_t> order = SortedTokens(weights);
        for (double top_p : {0.0, 1e-9, 0.1, 0.5, 0.9, 0.97, 0.9999, 1 - 1e-12, 1 - 1e-16}) {
          for (uint64_t index = 0; index < 4; ++index) {
            const SamplerOptions options = {
                .temperature = temperature, .top_p = top_p, .min_p = index == 0 ? 0.03 : 0.0};
            ASSERT_EQ(sampler.Sample(logits.data(), vocab_size, options, size, index),
                      DrawFromSorted(weights, order, options, UniformDraw(size, index)))
                << size << " logits of kind " << kind << ", temperature " << temperature
                << ", top_p " << top_p << ", index " << index;
          }
        }
      }
    }
  }
}

TEST(Sampler, TopKOfEqualLogitsKeepsTheLowestIds) {
  const std::vector<float> logits(300, 0.5f);
  std::map<int32_t, int> counts;
  for (uint64_t index = 0; index < 300; ++index) ++counts[Sample(logits, {.top_k = 3}, 1, index)];

  EXPECT_EQ(counts.size(), 3u);
  EXPECT_EQ(counts.rbegin()->first, 2);
}

TEST(Sampler, TopPKeepsTheSmallestSufficientSet) {
  const std::vector<float> logits(1000, 0.5f);
  std::map<int32_t, int> counts;
  for (uint64_t index = 0; index < 5000; ++index) {
    ++counts[Sample(logits, {.top_p = 0.25}, 1, index)];
  }

  EXPECT_EQ(counts.size(), 250u);
  EXPECT_EQ(counts.rbegin()->first, 249) << "ties are ordered by token id";
}

TEST(Sampler, ASampleDoesNotDependOnPreviousSamples) {
  const std::vector<float> logits = RandomLogits(500, 1, 2.0f);
  Sampler used;
  for (uint64_t index = 0; index < 50; ++index) {
    const SamplerOptions options{.top_p = 0.9};
    used.Sample(logits.data(), 100, {.top_k = 7}, 9, index);
    EXPECT_EQ(used.Sample(logits.data(), 500, options, 4, index).value(),
              Sample(logits, options, 4, index));
  }
}

TEST(UniformDraw, IsUniformOverIndicesAndSeeds) {
  constexpr int kDraws = 20000;
  for (bool over_seeds : {false, true}) {
    std::vector<int> bins(20, 0);
    for (uint64_t i = 0; i < kDraws; ++i) {
      const double draw = over_seeds ? UniformDraw(i, 0) : UniformDraw(42, i);
      ASSERT_GE(draw, 0.0);
      ASSERT_LT(draw, 1.0);
      ++bins[static_cast<size_t>(draw * 20)];
    }
    for (int count : bins) EXPECT_NEAR(count, kDraws / 20, 160);
  }
}

TEST(UniformDraw, AdjacentSeedsHaveDifferentStreams) {
  EXPECT_EQ(UniformDraw(1, 2), UniformDraw(1, 2));
  for (uint64_t index = 0; index < 50; ++index) {
    for (uint64_t shift = 0; shift < 50; ++shift) {
      EXPECT_NE(UniformDraw(1, index), UniformDraw(2, shift));
    }
  }
}

}  // namespace
}  // namespace aiomlc
