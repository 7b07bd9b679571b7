#include "sampling/prompt_scorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace aiomlc {
namespace {

TEST(PromptScorer, NeedsNoLogitsIfDisabled) {
  const PromptScorer scorer(std::nullopt, 9);
  EXPECT_TRUE(scorer.is_done());
  EXPECT_EQ(scorer.CountLogits(0, 9), 0);
  EXPECT_GE(scorer.MaxTokensWithin(0, 0), 9);
}

TEST(PromptScorer, ScoresEveryTokenExceptTheFirstOnce) {
  PromptScorer scorer(1, 9);
  const std::vector<int32_t> tokens = {0, 1, 0, 1, 0, 1, 0, 1, 0};
  const std::vector<float> logits(2 * 9, 0.0f);
  EXPECT_EQ(scorer.CountLogits(0, 20), 8);
  EXPECT_EQ(scorer.MaxTokensWithin(0, 7), 7);
  EXPECT_GE(scorer.MaxTokensWithin(0, 8), 20) << "the last token needs no logits";

  ASSERT_TRUE(scorer.Score(logits.data(), 5, 2, tokens));
  EXPECT_EQ(scorer.num_scored(), 5);
  EXPECT_EQ(scorer.CountLogits(0, 4), 0) << "recomputed tokens are not scored again";
  EXPECT_EQ(scorer.CountLogits(3, 7), 2);
  EXPECT_EQ(scorer.MaxTokensWithin(3, 1), 3);
  EXPECT_EQ(scorer.TakeLogprobs().size(), 5u);
  EXPECT_FALSE(scorer.is_done());

  ASSERT_TRUE(scorer.Score(logits.data(), 3, 2, tokens));
  EXPECT_TRUE(scorer.is_done());
  EXPECT_EQ(scorer.TakeLogprobs().size(), 3u);
  EXPECT_TRUE(scorer.TakeLogprobs().empty());
}

TEST(PromptScorer, ScoresEachTokenWithThePrecedingLogits) {
  PromptScorer scorer(2, 3);
  const std::vector<float> logits = {0, 1, 2, 5, 4, 3};
  const std::vector<int32_t> tokens = {1, 2, 0};
  ASSERT_TRUE(scorer.Score(logits.data(), 2, 3, tokens));
  const std::vector<TokenLogprobs> scored = scorer.TakeLogprobs();
  ASSERT_EQ(scored.size(), 2u);
  EXPECT_EQ(scored[0].token_id, 2);
  EXPECT_EQ(scored[0].logprob, ComputeLogprobs(logits.data(), 3, 2, 0).logprob);
  EXPECT_EQ(scored[1].token_id, 0);
  EXPECT_EQ(scored[1].top[1].token_id, 1);
}

TEST(PromptScorer, RejectsInvalidLogits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<int32_t> tokens = {0, 1};
  for (const std::vector<float>& logits :
       {std::vector{0.0f, NAN}, {0.0f, kInfinity}, {-kInfinity, -kInfinity}}) {
    PromptScorer scorer(0, 2);
    EXPECT_FALSE(scorer.Score(logits.data(), 1, 2, tokens));
    EXPECT_TRUE(scorer.TakeLogprobs().empty());
  }
  PromptScorer scorer(0, 2);
  const std::vector<float> logits = {0.0f, -kInfinity};
  ASSERT_TRUE(scorer.Score(logits.data(), 1, 2, tokens));
  EXPECT_EQ(scorer.TakeLogprobs().at(0).logprob, kLowestLogprob);
}

}  // namespace
}  // namespace aiomlc
