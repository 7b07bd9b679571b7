#include "sampling/logit_adjuster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace aiomlc {
namespace {

using ::testing::FloatEq;
using ::testing::Pointwise;

constexpr int64_t kVocabSize = 50;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  std::vector<float> logits(kVocabSize);
  for (float& logit : logits) logit = normal(generator);
  return logits;
}

/*! \brief The definition in logit_adjuster.h, token by token in float64. */
std::vector<float> Expected(const std::vector<float>& logits, const SequenceOptions& options,
                            const std::vector<int32_t>& generated) {
  std::vector<float> result;
  for (int32_t token = 0; token < kVocabSize; ++token) {
    double logit = logits[static_cast<size_t>(token)];
    for (const LogitBias& entry : options.logits.logit_bias) {
      if (entry.token_id == token) logit += entry.bias;
    }
    const auto count = std::count(generated.begin(), generated.end(), token);
    if (count > 0) {
      logit -= options.logits.presence_penalty;
      logit -= static_cast<double>(count) * options.logits.frequency_penalty;
      const double penalty = options.logits.repetition_penalty;
      logit = logit < 0 ? logit * penalty : logit / penalty;
    }
    const bool is_stop =
        std::count(options.stop_token_ids.begin(), options.stop_token_ids.end(), token) > 0;
    const bool is_early = static_cast<int64_t>(generated.size()) < options.min_tokens;
    const bool is_suppressed =
        std::count(options.suppress_tokens.begin(), options.suppress_tokens.end(), token) > 0;
    const bool is_excluded = is_suppressed || (is_stop && is_early);
    result.push_back(is_excluded ? -kInfinity : static_cast<float>(logit));
  }
  return result;
}

std::vector<float> Adjusted(std::vector<float> logits, const SequenceOptions& options,
                            const std::vector<int32_t>& generated) {
  LogitAdjuster adjuster(options);
  for (int32_t token : generated) adjuster.CountToken(token);
  if (adjuster.is_active()) adjuster.Apply(logits.data(), kVocabSize);
  return logits;
}

TEST(LogitAdjuster, MatchesTheDefinition) {
  std::mt19937 random(1);
  const auto one_of = [&](std::vector<double> values) { return values[random() % values.size()]; };
  for (uint32_t round = 0; round < 200; ++round) {
    SequenceOptions options;
    options.logits.presence_penalty = one_of({0, 0, 0.5, -2, 2});
    options.logits.frequency_penalty = one_of({0, 0, 0.25, -1, 2});
    options.logits.repetition_penalty = one_of({1, 1, 1.3, 0.5, 10});
    for (size_t i = random() % 4; i > 0; --i) {
      options.logits.logit_bias.push_back(
          {static_cast<int64_t>(10 * i + random() % 10), one_of({-100, -3, 0.5, 100})});
    }
    options.stop_token_ids = {static_cast<int32_t>(random() % kVocabSize), 7};
    options.min_tokens = static_cast<int64_t>(random() % 20);
    for (size_t i = random() % 3; i > 0; --i) {
      options.suppress_tokens.push_back(static_cast<int32_t>(random() % kVocabSize));
    }
    std::vector<int32_t> generated(random() % 20);
    for (int32_t& token : generated) token = static_cast<int32_t>(random() % 8);

    const std::vector<float> logits = RandomLogits(round);
    EXPECT_THAT(Adjusted(logits, options, generated),
                Pointwise(FloatEq(), Expected(logits, options, generated)));
  }
}

TEST(LogitAdjuster, IsInactiveIfThereIsNothingToChange) {
  SequenceOptions options;
  options.stop_token_ids = {3};
  LogitAdjuster plain(options);
  plain.CountToken(1);
  EXPECT_FALSE(plain.is_active());

  options.min_tokens = 1;
  LogitAdjuster early(options);
  EXPECT_TRUE(early.is_active());
  early.CountToken(1);
  EXPECT_FALSE(early.is_active());

  options = {};
  options.suppress_tokens = {1000};
  EXPECT_TRUE(LogitAdjuster(options).is_active());
  EXPECT_TRUE(LogitAdjuster(options).Suppresses(1000));
  EXPECT_FALSE(LogitAdjuster(options).Suppresses(3));

  options = {};
  options.logits.presence_penalty = 1;
  LogitAdjuster penalized(options);
  EXPECT_FALSE(penalized.is_active()) << "no token is generated yet";
  penalized.CountToken(1);
  EXPECT_TRUE(penalized.is_active());
}

TEST(LogitAdjuster, KeepsNanAndInfinity) {
  SequenceOptions options;
  options.logits = {.presence_penalty = 2, .repetition_penalty = 1.5, .logit_bias = {{1, -100}}};
  options.stop_token_ids = {0, 1};
  options.min_tokens = 10;
  std::vector<float> logits = RandomLogits(0);
  logits[0] = std::numeric_limits<float>::quiet_NaN();
  logits[1] = kInfinity;

  const std::vector<float> adjusted = Adjusted(logits, options, {0, 1});

  EXPECT_TRUE(std::isnan(adjusted[0]));
  EXPECT_EQ(adjusted[1], kInfinity);
}

TEST(LogitAdjuster, StaysFiniteWithAnExtremePenaltyAndIgnoresUnknownStopTokens) {
  SequenceOptions options;
  options.logits.repetition_penalty = 1e-200;
  options.stop_token_ids = {1000};
  options.suppress_tokens = {1000};
  options.min_tokens = 10;
  std::vector<float> logits(kVocabSize, 5.0f);

  EXPECT_EQ(Adjusted(logits, options, {2})[2], std::numeric_limits<float>::max());
}

}  // namespace
}  // namespace aiomlc
