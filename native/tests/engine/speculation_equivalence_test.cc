// Draft tokens change the number of steps, but not the outputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/doubles/fake_model.h"
#include "tests/engine/random_jobs.h"

namespace aiomlc {
namespace {

using Tokens = std::vector<int32_t>;

/*! \brief Compute logits that depend mostly on the last two tokens, so that the output repeats. */
void RepetitiveLogits(const Tokens& tokens, std::vector<float>* logits) {
  FakeModel::HashedLogits(tokens, logits);
  std::vector<float> all = *logits;
  const auto last = tokens.end() - std::min<int64_t>(2, static_cast<int64_t>(tokens.size()));
  FakeModel::HashedLogits(Tokens(last, tokens.end()), logits);
  for (size_t i = 0; i < all.size(); ++i) (*logits)[i] += 0.1f * all[i];
}

/*! \brief Compute the logits of the draft model, which often agree with RepetitiveLogits. */
void CoarseLogits(const Tokens& tokens, std::vector<float>* logits) {
  const auto last = tokens.end() - std::min<int64_t>(2, static_cast<int64_t>(tokens.size()));
  FakeModel::HashedLogits(Tokens(last, tokens.end()), logits);
}

TEST(SpeculationFaults, OutputsDoNotDependOnDraftFailures) {
  int64_t num_failed = 0;
  for (unsigned round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    std::mt19937 random(round);
    const std::vector<Job> jobs = RandomJobs(&random);
    EngineOptions options;
    options.step_token_budget = 4 + static_cast<int64_t>(random() % 13);
    options.max_recycling_sequences = static_cast<int64_t>(random() % 4);
    FakeModel plain({.num_pages = 24});
    plain.SetLogits(RepetitiveLogits);
    const Outcome without = Serve(jobs, &plain, options);
    FakeModel model({.num_pages = 24});
    model.SetLogits(RepetitiveLogits);
    FakeModel draft_model({.num_pages = 24});
    draft_model.SetLogits(CoarseLogits);
    switch (random() % 4) {
      case 0:
        draft_model.ThrowOnRemove();
        break;
      case 1:
        draft_model.ThrowOnRewind();
        break;
      case 2:
        draft_model.PoisonToken(jobs[0].prompt[0]);
        break;
      default:
        draft_model.ThrowAt(static_cast<int64_t>(random() % 40));
    }
    options.speculative_mode = SpeculativeMode::kSmallDraft;
    options.draft_model = &draft_model;
    const Outcome with = Serve(jobs, &model, options);
    EXPECT_EQ(draft_model.num_sequences(), 0u);
    EXPECT_EQ(draft_model.pages_in_use(), 0);
    ExpectSame(with, without);
    num_failed += with.statistics.draft_failures > 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(num_failed, 100);
}

class SpeculationModes : public ::testing::TestWithParam<SpeculativeMode> {};

TEST_P(SpeculationModes, OutputsDoNotDependOnDraftTokens) {
  int64_t draft_tokens = 0;
  int64_t accepted_tokens = 0;
  for (unsigned round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    std::mt19937 random(round);
    const std::vector<Job> jobs = RandomJobs(&random);
    FakeModel::Sizes sizes;
    sizes.num_pages = 18 + static_cast<int64_t>(random() % 30);
    EngineOptions options;
    options.step_token_budget = 4 + static_cast<int64_t>(random() % 13);
    options.max_recycling_sequences = static_cast<int64_t>(random() % 4);
    FakeModel plain(sizes);
    plain.SetLogits(RepetitiveLogits);
    const Outcome without = Serve(jobs, &plain, options);
    FakeModel model(sizes);
    model.SetLogits(RepetitiveLogits);
    FakeModel::Sizes draft_sizes = sizes;
    draft_sizes.num_pages = 16 + static_cast<int64_t>(random() % 30);
    draft_sizes.context_window = 24 + static_cast<int64_t>(random() % 80);
    draft_sizes.max_batch_size = 1 + static_cast<int64_t>(random() % 8);
    draft_sizes.page_size = 1 + static_cast<int64_t>(random() % 5);
    FakeModel draft_model(draft_sizes);
    draft_model.SetLogits(CoarseLogits);
    options.speculative_mode = GetParam();
    options.draft_model = &draft_model;
    options.draft_length = random() % 2 == 0 ? 0 : static_cast<int64_t>(random() % 6);
    const Outcome with = Serve(jobs, &model, options);
    EXPECT_EQ(draft_model.num_sequences(), 0u);
    EXPECT_EQ(draft_model.pages_in_use(), 0);
    ExpectSame(with, without);
    draft_tokens += with.statistics.draft_tokens;
    accepted_tokens += with.statistics.accepted_tokens;
    EXPECT_EQ(without.statistics.draft_tokens, 0);
    if (HasFailure()) return;
  }
  EXPECT_GT(accepted_tokens, 1000);
  EXPECT_GT(draft_tokens - accepted_tokens, 500) << "too few draft tokens were rejected";
}

INSTANTIATE_TEST_SUITE_P(Modes, SpeculationModes,
                         ::testing::Values(SpeculativeMode::kPromptLookup,
                                           SpeculativeMode::kSmallDraft));

}  // namespace
}  // namespace aiomlc
