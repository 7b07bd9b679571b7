// The engine with a model whose sequences can be forked and rewound only at checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/doubles/fake_model.h"
#include "tests/doubles/recurrent_model.h"
#include "tests/engine/random_jobs.h"

namespace aiomlc {
namespace {

using Tokens = std::vector<int32_t>;

SequenceOptions Greedy(int64_t max_tokens) {
  SequenceOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = max_tokens;
  return options;
}

Record GenerateAlone(const Tokens& prompt, SequenceOptions options) {
  options.is_pinned = false;
  RecurrentModel model({.num_slots = 1000, .num_pages = 1000, .prefill_chunk_size = 64});
  Engine engine(&model, Letters(), {});
  engine.Submit(prompt, options);
  while (engine.Step()) {
  }
  return engine.Drain().at(0);
}

/*! \brief Tokens 1, 2, 3, ... of which the first `num_common` do not depend on `variant`. */
Tokens Prompt(int32_t num_tokens, int32_t num_common, int32_t variant) {
  Tokens prompt;
  for (int32_t i = 0; i < num_tokens; ++i) prompt.push_back(i < num_common ? i : i % 3 + variant);
  return prompt;
}

/*! \brief An engine whose model has a checkpoint after every four tokens. */
class RecurrentEngineTest : public ::testing::Test {
 protected:
  void Open(RecurrentModel::Sizes sizes, EngineOptions options) {
    engine_.reset();
    model_ = std::make_unique<RecurrentModel>(sizes);
    engine_ = std::make_unique<Engine>(model_.get(), Letters(), options);
  }
  void SetUp() override { Open({}, {.max_recycling_sequences = -1}); }

  void TearDown() override {
    engine_->Close();
    EXPECT_EQ(model_->num_sequences(), 0u);
    const Statistics statistics = engine_->GetStatistics();
    EXPECT_EQ(statistics.free_slots, statistics.total_slots);
    EXPECT_EQ(statistics.free_pages, statistics.total_pages);
  }

  void Submit(const Tokens& prompt, const SequenceOptions& options) {
    jobs_[engine_->Submit(prompt, options)] = {prompt, options};
  }

  /*! \brief Step until idle, and compare the outputs with those of running alone. */
  void Finish() {
    while (engine_->Step()) engine_->CheckInvariants();
    for (const Record& record : engine_->Drain()) {
      const auto& [prompt, options] = jobs_.at(record.sequence_id);
      const Record alone = GenerateAlone(prompt, options);
      EXPECT_EQ(record.token_ids, alone.token_ids);
      EXPECT_EQ(record.finish_reason, alone.finish_reason);
      outputs_[record.sequence_id] = record.token_ids;
    }
    EXPECT_EQ(outputs_.size(), jobs_.size());
  }

  /*! \brief Options with a draft model that knows nothing of the model. */
  EngineOptions WithWrongDrafts() {
    EngineOptions options;
    options.speculative_mode = SpeculativeMode::kSmallDraft;
    options.draft_model = &draft_model_;
    options.draft_length = 3;
    return options;
  }

  int64_t cached_tokens() const { return engine_->GetStatistics().cached_tokens; }

  FakeModel draft_model_{FakeModel::Sizes()};
  std::unique_ptr<RecurrentModel> model_;
  std::unique_ptr<Engine> engine_;
  std::map<int64_t, std::pair<Tokens, SequenceOptions>> jobs_;
  std::map<int64_t, Tokens> outputs_;
};

TEST_F(RecurrentEngineTest, APrefixCacheHitEndsAtTheLastCheckpoint) {
  Submit(Prompt(14, 14, 0), Greedy(3));
  Finish();
  Submit(Prompt(13, 11, 20), Greedy(3));
  Finish();

  EXPECT_EQ(cached_tokens(), 8);
}

TEST_F(RecurrentEngineTest, AHitBeforeTheFirstCheckpointComputesEverything) {
  Submit(Prompt(14, 14, 0), Greedy(3));
  Finish();
  Submit(Prompt(13, 3, 20), Greedy(3));
  Finish();

  EXPECT_EQ(cached_tokens(), 0);
  EXPECT_EQ(engine_->GetStatistics().prefix_cache_hits, 0);
}

TEST_F(RecurrentEngineTest, AConversationContinuesFromTheEndOfItsLastTurn) {
  Submit(Prompt(9, 9, 0), Greedy(3));
  Finish();
  Tokens next = Prompt(9, 9, 0);
  next.insert(next.end(), outputs_.at(0).begin(), outputs_.at(0).end());
  next.push_back(5);
  Submit(next, Greedy(3));
  Finish();

  EXPECT_EQ(cached_tokens(), 11) << "the last of three tokens was never computed";
}

TEST_F(RecurrentEngineTest, AnEntryIsKeptWhoseEndALongerOneDoesNotHave) {
  Submit(Prompt(9, 9, 0), Greedy(1));
  Finish();
  Submit(Prompt(14, 9, 20), Greedy(1));
  Finish();
  Submit(Prompt(14, 9, 24), Greedy(1));
  Finish();

  EXPECT_EQ(engine_->GetStatistics().num_recycling, 3);
  EXPECT_EQ(cached_tokens(), 9 + 9);
}

TEST_F(RecurrentEngineTest, ChoicesForkFromTheLastCheckpointOfTheirPrompt) {
  for (uint64_t choice = 0; choice < 4; ++choice) {
    SequenceOptions options;
    options.seed = 7 + choice;
    options.max_tokens = 6;
    Submit(Prompt(11, 11, 0), options);
  }
  Finish();

  EXPECT_EQ(cached_tokens(), 3 * 8);
  EXPECT_EQ(engine_->GetStatistics().prefill_tokens, 11 + 3 * 3);
}

TEST_F(RecurrentEngineTest, NobodyWaitsForAForkThatWouldSaveNothing) {
  Open({.prefill_chunk_size = 4}, {.max_recycling_sequences = -1});
  Submit(Prompt(7, 3, 10), Greedy(2));
  Submit(Prompt(4, 3, 20), Greedy(2));
  engine_->Step();

  EXPECT_EQ(engine_->GetStatistics().num_running, 2);
  Finish();
}

TEST_F(RecurrentEngineTest, RejectedDraftTokensAreRecomputedFromTheCheckpoint) {
  Open({}, WithWrongDrafts());
  Submit(Prompt(18, 0, 5), Greedy(30));
  Finish();

  const Statistics statistics = engine_->GetStatistics();
  EXPECT_GT(statistics.draft_tokens, statistics.accepted_tokens) << "no draft token was rejected";
  EXPECT_GT(model_->num_rewinds(), 0);
  EXPECT_GT(statistics.prefill_tokens, 18) << "nothing was recomputed";
}

TEST_F(RecurrentEngineTest, ARewindToTheBeginningKeepsTheSequenceInTheModel) {
  // No token of it is a checkpoint, so each rejected draft empties the sequence.
  Open({.interval = 100}, WithWrongDrafts());
  Submit(Prompt(12, 0, 5), Greedy(40));
  while (model_->num_rewinds() == 0) ASSERT_TRUE(engine_->Step());
  EXPECT_TRUE(model_->in_use().is_zero());
  EXPECT_EQ(model_->num_sequences(), 1u);
  engine_->CheckInvariants();
  Finish();

  EXPECT_EQ(model_->num_sequences(), 0u);
}

TEST_F(RecurrentEngineTest, SequencesArePreemptedForSlots) {
  Open({.num_slots = 8}, {.max_recycling_sequences = -1});
  for (int32_t variant : {10, 14, 18}) Submit(Prompt(4, 0, variant), Greedy(14));
  Finish();

  EXPECT_GT(engine_->GetStatistics().preemptions, 0);
}

TEST_F(RecurrentEngineTest, APromptThatNeedsMoreSlotsThanExistIsRejected) {
  Open({.num_slots = 3}, {});  // Two checkpoints: at most eleven tokens.

  EXPECT_THROW(engine_->Submit(Prompt(11, 0, 5), Greedy(1)), EngineError);
  Submit(Prompt(10, 0, 5), Greedy(5));
  while (engine_->Step()) {
  }
  EXPECT_EQ(engine_->Drain().at(0).completion_tokens, 1);
}

TEST_F(RecurrentEngineTest, APinnedPrefixIsForkedAtItsEnd) {
  SequenceOptions pin = Greedy(1);
  pin.is_pinned = true;
  Submit(Prompt(10, 10, 0), pin);
  Finish();
  Submit(Prompt(13, 10, 20), Greedy(3));
  Finish();

  EXPECT_EQ(cached_tokens(), 10);
}

TEST_F(RecurrentEngineTest, AStateMovesToAnotherEngineAsAWhole) {
  const Tokens prefix = Prompt(10, 10, 0);
  Submit(prefix, Greedy(1));
  Finish();
  std::vector<std::byte> data(model_->ExportBytes(0, 10));
  engine_->ExportPrefix(prefix, 0, data);
  EXPECT_THROW(engine_->ExportPrefix(Prompt(9, 9, 0), 0, data), EngineError)
      << "token 9 is no checkpoint";

  Open({}, {.max_recycling_sequences = -1});
  jobs_.clear();
  outputs_.clear();
  EXPECT_THROW(engine_->ImportPrefix(prefix, 4, data), EngineError) << "a state has no parts";
  engine_->ImportPrefix(prefix, 0, data);
  EXPECT_EQ(engine_->CountCached(prefix), 10);
  EXPECT_EQ(engine_->CountCached(Prompt(9, 9, 0)), 8);
  Submit(Prompt(13, 10, 20), Greedy(5));
  Finish();

  EXPECT_EQ(cached_tokens(), 10);
}

/*! \return The outcome of each job in an engine of its own. */
Outcome ServeAlone(const std::vector<Job>& jobs) {
  Outcome outcome;
  for (size_t i = 0; i < jobs.size(); ++i) {
    RecurrentModel model({.num_slots = 1000, .num_pages = 1000});
    Engine engine(&model, Letters(), {});
    engine.Submit(jobs[i].prompt, jobs[i].options);
    while (engine.Step()) {
    }
    outcome.records[static_cast<int64_t>(i)] = engine.Drain().at(0);
  }
  return outcome;
}

class RecurrentModes : public ::testing::TestWithParam<SpeculativeMode> {};

TEST_P(RecurrentModes, OutputsEqualThoseOfRunningAlone) {
  Statistics sum;
  int64_t num_rewinds = 0;
  for (unsigned round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    std::mt19937 random(round);
    const auto between = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    const std::vector<Job> jobs = RandomJobs(&random);
    RecurrentModel::Sizes sizes;
    sizes.interval = between(1, 9);
    sizes.num_slots = 1 + 64 / sizes.interval + between(0, 20);
    sizes.page_size = between(1, 5);
    sizes.num_pages = 64 / sizes.page_size + between(1, 40);
    sizes.max_batch_size = between(2, 8);
    EngineOptions options;
    options.step_token_budget = between(4, 16);
    options.max_recycling_sequences = between(-1, 3);
    options.separate_prefill = random() % 4 == 0;
    RecurrentModel::Sizes draft_sizes = sizes;
    draft_sizes.interval = between(1, 9);
    draft_sizes.num_slots = 1 + 64 / draft_sizes.interval + between(0, 20);
    RecurrentModel draft_model(draft_sizes);
    options.speculative_mode = GetParam();
    options.draft_model = &draft_model;
    options.draft_length = random() % 2 == 0 ? 0 : between(1, 6);
    RecurrentModel model(sizes);
    const Outcome together = Serve(jobs, &model, options);
    ExpectSame(together, ServeAlone(jobs));
    EXPECT_TRUE(draft_model.in_use().is_zero());
    EXPECT_EQ(together.statistics.draft_failures, 0) << together.statistics.speculation_failure;
    sum.cached_tokens += together.statistics.cached_tokens;
    sum.preemptions += together.statistics.preemptions;
    sum.accepted_tokens += together.statistics.accepted_tokens;
    num_rewinds += model.num_rewinds();
    if (HasFailure()) return;
  }
  EXPECT_GT(sum.cached_tokens, 1000);
  EXPECT_GT(sum.preemptions, 50);
  if (GetParam() == SpeculativeMode::kDisable) return;
  EXPECT_GT(sum.accepted_tokens, 500);
  EXPECT_GT(num_rewinds, 300);
}

INSTANTIATE_TEST_SUITE_P(Modes, RecurrentModes,
                         ::testing::Values(SpeculativeMode::kDisable,
                                           SpeculativeMode::kPromptLookup,
                                           SpeculativeMode::kSmallDraft));

}  // namespace
}  // namespace aiomlc
