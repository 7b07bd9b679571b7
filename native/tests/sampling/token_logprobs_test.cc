#include "sampling/token_logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace aiomlc {
namespace {

/*! \brief A straightforward reference implementation in float64. */
std::vector<double> Oracle(const std::vector<float>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float logit : logits) total += std::exp(static_cast<double>(logit) - largest);
  std::vector<double> logprobs;
  for (float logit : logits) logprobs.push_back(logit - largest - std::log(total));
  return logprobs;
}

std::vector<int32_t> Sorted(const std::vector<double>& logprobs) {
  std::vector<int32_t> order(logprobs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logprobs[static_cast<size_t>(a)] > logprobs[static_cast<size_t>(b)];
  });
  return order;
}

TEST(TokenLogprobs, MatchAFullSort) {
  std::mt19937 generator(1);
  for (size_t size : {1u, 5u, 21u, 1000u, 30000u}) {
    for (float spread : {0.1f, 2.0f, 30.0f}) {
      std::normal_distribution<float> normal(100.0f, spread);
      std::vector<float> logits(size);
      // Rounded, so that there are ties.
      for (float& logit : logits) logit = std::round(8 * normal(generator)) / 8;
      const std::vector<double> expected = Oracle(logits);
      const std::vector<int32_t> order = Sorted(expected);
      const int32_t token = static_cast<int32_t>(generator() % size);

      const TokenLogprobs result =
          ComputeLogprobs(logits.data(), static_cast<int64_t>(size), token, 20);

      EXPECT_NEAR(result.logprob, expected[static_cast<size_t>(token)], 1e-5);
      ASSERT_EQ(result.top.size(), std::min<size_t>(size, 20));
      for (size_t i = 0; i < result.top.size(); ++i) {
        EXPECT_EQ(result.top[i].token_id, order[i]);
        EXPECT_NEAR(result.top[i].logprob, expected[static_cast<size_t>(order[i])], 1e-5);
      }
    }
  }
}

TEST(TokenLogprobs, ListNoAlternativesIfNoneAreRequested) {
  const std::vector<float> logits = {1.0f, 1.0f};

  const TokenLogprobs result = ComputeLogprobs(logits.data(), 2, 1, 0);

  EXPECT_NEAR(result.logprob, std::log(0.5), 1e-6);
  EXPECT_TRUE(result.top.empty());
}

TEST(TokenLogprobs, AreFiniteForExcludedTokens) {
  const std::vector<float> logits = {0.0f, -std::numeric_limits<float>::infinity(), -1e30f};

  const TokenLogprobs result = ComputeLogprobs(logits.data(), 3, 0, 3);

  EXPECT_EQ(result.logprob, 0.0f);
  EXPECT_EQ(result.top[1].token_id, 2);
  EXPECT_EQ(result.top[1].logprob, kLowestLogprob);
  EXPECT_EQ(result.top[2].logprob, kLowestLogprob);
}

}  // namespace
}  // namespace aiomlc
