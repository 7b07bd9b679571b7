// The engine with injected model faults.
#include "model/faulty_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "tests/doubles/fake_model.h"

namespace aiomlc {
namespace {

using ::testing::HasSubstr;

struct Output {
  std::vector<int32_t> token_ids;
  FinishReason finish_reason = FinishReason::kNone;
  std::string error;
};

/*! \brief Runs three prompts to the end on an engine with a faulty model. */
class Trial {
 public:
  explicit Trial(Faults faults, EngineOptions options = {})
      : faulty_(&model_, faults), engine_(&faulty_, Vocabulary(), options) {
    for (int32_t first = 1; first <= 3; ++first) {
      SequenceOptions sequence;
      sequence.seed = 7;
      sequence.max_tokens = 10;
      engine_.Submit({first, 2, 3, 4, 5}, sequence);
    }
    try {
      while (engine_.Step()) engine_.CheckInvariants();
    } catch (const EngineError& error) {
      failure = error.what();
    }
    for (const Record& record : engine_.Drain()) {
      Output& output = outputs[record.sequence_id];
      output.token_ids.insert(output.token_ids.end(), record.token_ids.begin(),
                              record.token_ids.end());
      output.finish_reason = record.finish_reason;
      output.error = record.error;
    }
    free_pages = engine_.GetStatistics().free_pages;
    engine_.Close();
    num_leaked = model_.num_sequences();
  }

 private:
  FakeModel model_{FakeModel::Sizes()};
  FaultyModel faulty_;
  Engine engine_;

 public:
  std::map<int64_t, Output> outputs;
  std::string failure;
  int64_t free_pages = 0;
  size_t num_leaked = 0;
};

TEST(FaultyModel, WithoutFaultsTheOutputIsUnchanged) {
  FakeModel model({});
  Engine engine(&model, Vocabulary(), {});
  SequenceOptions options;
  options.seed = 7;
  options.max_tokens = 10;
  const int64_t id = engine.Submit({1, 2, 3, 4, 5}, options);
  std::vector<int32_t> expected;
  while (engine.Step()) {
  }
  for (const Record& record : engine.Drain()) {
    expected.insert(expected.end(), record.token_ids.begin(), record.token_ids.end());
  }

  EXPECT_EQ(Trial(Faults()).outputs.at(id).token_ids, expected);
}

TEST(FaultyModel, AFailedPassEndsTheEngineAndAllSequences) {
  const Trial trial({.fail_at_pass = 4});

  EXPECT_THAT(trial.failure, HasSubstr("injected fault at pass 4"));
  for (const auto& [id, output] : trial.outputs)
    EXPECT_EQ(output.finish_reason, FinishReason::kError);
  EXPECT_EQ(trial.outputs.size(), 3u);
  EXPECT_EQ(trial.free_pages, FakeModel::Sizes().num_pages);
  EXPECT_EQ(trial.num_leaked, 0u);
}

TEST(FaultyModel, AFailedAllocationEndsTheEngineAndAllSequences) {
  const Trial trial({.allocation_fails_at_pass = 2});

  EXPECT_THAT(trial.failure, HasSubstr("bad_alloc"));
  EXPECT_EQ(trial.outputs.size(), 3u);
  EXPECT_EQ(trial.free_pages, FakeModel::Sizes().num_pages);
  EXPECT_EQ(trial.num_leaked, 0u);
}

class NanRow : public ::testing::TestWithParam<SpeculativeMode> {};

TEST_P(NanRow, EndsOnlyItsSequence) {
  const EngineOptions options{.max_recycling_sequences = 4, .speculative_mode = GetParam()};
  const Trial healthy(Faults(), options);
  for (int64_t pass = 1; pass <= 12; ++pass) {
    const Trial trial({.nan_at_pass = pass}, options);

    EXPECT_EQ(trial.failure, "");
    int num_failed = 0;
    for (const auto& [id, output] : trial.outputs) {
      const std::vector<int32_t>& all = healthy.outputs.at(id).token_ids;
      if (output.finish_reason == FinishReason::kError) {
        ++num_failed;
        EXPECT_THAT(output.error, HasSubstr("not finite"));
        ASSERT_LT(output.token_ids.size(), all.size());
        EXPECT_TRUE(std::equal(output.token_ids.begin(), output.token_ids.end(), all.begin()));
      } else {
        EXPECT_EQ(output.token_ids, all);
      }
    }
    EXPECT_LE(num_failed, 1);
    if (pass == 1) {
      EXPECT_EQ(num_failed, 1);
    }
    EXPECT_EQ(trial.num_leaked, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, NanRow,
                         ::testing::Values(SpeculativeMode::kDisable,
                                           SpeculativeMode::kPromptLookup));

TEST(FaultyModel, ANanRowClearsThePrefixCache) {
  FakeModel model({});
  FaultyModel faulty(&model, {.nan_at_pass = 5});
  Engine engine(&faulty, Vocabulary(), {.max_recycling_sequences = 4});
  SequenceOptions options;
  options.max_tokens = 3;
  std::vector<int64_t> num_recycling;
  for (int32_t last : {6, 7, 8}) {
    engine.Submit({1, 2, 3, 4, 5, last}, options);
    while (engine.Step()) engine.CheckInvariants();
    engine.CheckInvariants();
    num_recycling.push_back(engine.GetStatistics().num_recycling);
  }

  EXPECT_THAT(num_recycling, ::testing::ElementsAre(1, 0, 1));
  EXPECT_EQ(engine.GetStatistics().free_pages, model.num_pages());
  engine.Close();
  EXPECT_EQ(model.num_sequences(), 0u);
}

TEST(FaultyModel, EveryNthPassCanHaveANanRow) {
  const Trial trial({.nan_every = 2});

  EXPECT_EQ(trial.failure, "");
  for (const auto& [id, output] : trial.outputs)
    EXPECT_EQ(output.finish_reason, FinishReason::kError);
  EXPECT_EQ(trial.num_leaked, 0u);
}

}  // namespace
}  // namespace aiomlc
